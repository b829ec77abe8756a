"""What rules say about facts: what follows from them, what answers a query, and why.

- `program`: rules read for an engine: derivations, integrity constraints, strata, predicates that are new.
- `apply`: forward chaining in SQL, round by round; `weighted`: rules that add up by weights; `inferred`: what both
  give, new facts with scores and rules; `complete`: the best of these with their reasons.
- `update`: what was inferred, brought up to date with facts that came or went. `fact_change` has these before and
  after, `settling` finds which rules give facts newly or no longer; `stored` is the file that an update goes on from.
- `rule_rows`: statements read as the rules of a query; `ranking`: the candidates of queries ``r(h, ?)`` and
  ``r(?, t)``, scored by the rules that speak for them; `stored_ranking`: the same by
  statements, of facts that stay in an engine; `answers`: the best answers to one query, with reasons.
- `calibrate`: how probable answers and new facts with some score are, fitted to the facts of a split.
- `checkup`: what is in facts and rules before anything is learned, and what looks wrong; `rule_check`: in rules.
- `instances`: which instances of rules give one fact, by indexed joins or SQL.
- `explain`: the search for the best proofs over these instances, or for the rules that came nearest;
  `proofs`: what it returns, as text, JSON and drawing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rulewright.lazy import lazy_names
from rulewright.reason.apply import apply
from rulewright.reason.complete import Completion, NewLink, complete
from rulewright.reason.explain import Explainer, explain
from rulewright.reason.inferred import Inferred, InferredFact, Violation
from rulewright.reason.proofs import Explanation, NearMiss, Proof
from rulewright.reason.update import Update, update

if TYPE_CHECKING:
    from rulewright.reason.answers import Answer, Answers, rank
    from rulewright.reason.calibrate import RankingCalibration, calibrate_ranking
    from rulewright.reason.checkup import Checkup, check
    from rulewright.reason.ranking import RuleRanker
    from rulewright.reason.rule_check import Finding, check_rules

__all__ = [
    "Answer",
    "Answers",
    "Checkup",
    "Completion",
    "Explainer",
    "Explanation",
    "Finding",
    "Inferred",
    "InferredFact",
    "NearMiss",
    "NewLink",
    "Proof",
    "RankingCalibration",
    "RuleRanker",
    "Update",
    "Violation",
    "apply",
    "calibrate_ranking",
    "check",
    "check_rules",
    "complete",
    "explain",
    "rank",
    "update",
]
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "answers": "Answer Answers rank",
        "calibrate": "RankingCalibration calibrate_ranking",
        "checkup": "Checkup check",
        "ranking": "RuleRanker",
        "rule_check": "Finding check_rules",
    },
)  # SciPy takes its time
