"""Completion by a weighted mixture of paths."""
