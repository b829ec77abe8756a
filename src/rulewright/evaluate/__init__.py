"""Figures of merit, of facts, answers and rules.

- `rules`: how often one rule is right, with examples; facts against facts, predicate by predicate
- `ranking`: link prediction, MRR and Hits
- `classification`: atoms with scores, AUC-PR
- `extraction`: relations in documents, F1, Ign F1 and Logic; on `extraction_facts`, their facts as integers
- `bootstrap`: whether one system is better than another, or only luckier with the documents
"""

from rulewright.evaluate.rules import Agreement, GroundedRule, RuleCounts, agreement, explain_counts

__all__ = ["Agreement", "GroundedRule", "RuleCounts", "agreement", "explain_counts"]
