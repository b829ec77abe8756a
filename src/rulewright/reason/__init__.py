"""What rules say about facts: apply them and see what follows, and why."""

from rulewright.reason.apply import apply
from rulewright.reason.explain import Explainer, explain
from rulewright.reason.inferred import Inferred, InferredFact, Violation
from rulewright.reason.proofs import Explanation, NearMiss, Proof
from rulewright.reason.verify import verify

__all__ = [
    "Explainer",
    "Explanation",
    "Inferred",
    "InferredFact",
    "NearMiss",
    "Proof",
    "Violation",
    "apply",
    "explain",
    "verify",
]
