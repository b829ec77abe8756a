"""What rules say about facts: apply them and see what follows."""

from rulewright.reason.apply import Inferred, InferredFact, Violation, apply

__all__ = ["Inferred", "InferredFact", "Violation", "apply"]
