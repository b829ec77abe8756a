"""LogicMP."""
