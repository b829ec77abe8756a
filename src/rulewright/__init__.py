"""Rulewright learns logical rules from data and puts them to work inside neural networks.

    import rulewright as rw

Names load on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rulewright.lazy import lazy_names

__version__ = "0.2.0"

if TYPE_CHECKING:
    from rulewright import datasets as datasets
    from rulewright.data import KnowledgeBase as KnowledgeBase
    from rulewright.data import KnowledgeBaseBuilder as KnowledgeBaseBuilder
    from rulewright.engine import Engine as Engine
    from rulewright.engine import StoredFacts as StoredFacts
    from rulewright.engine import store_facts as store_facts
    from rulewright.errors import RulewrightError as RulewrightError
    from rulewright.evaluate import explain_counts as explain_counts
    from rulewright.evaluate.ranking import evaluate_ranking as evaluate_ranking
    from rulewright.inject import ConsistencyLoss as ConsistencyLoss
    from rulewright.inject import Decoded as Decoded
    from rulewright.inject import LabelCalibration as LabelCalibration
    from rulewright.inject import LogicLayer as LogicLayer
    from rulewright.inject import RuleDecoder as RuleDecoder
    from rulewright.inject import RuleFit as RuleFit
    from rulewright.inject import calibrate as calibrate
    from rulewright.inject import distillation_loss as distillation_loss
    from rulewright.inject import fit_rules as fit_rules
    from rulewright.io import read_facts as read_facts
    from rulewright.io import read_rules as read_rules
    from rulewright.io import write_facts as write_facts
    from rulewright.io import write_rules as write_rules
    from rulewright.learn import LNNLearner as LNNLearner
    from rulewright.learn import MarkovLogic as MarkovLogic
    from rulewright.learn import NLILLearner as NLILLearner
    from rulewright.learn import PathMixture as PathMixture
    from rulewright.learn import RuleMiner as RuleMiner
    from rulewright.learn import choose_options as choose_options
    from rulewright.learn import evaluate as evaluate
    from rulewright.learn import explain_classifier as explain_classifier
    from rulewright.logic import Rule as Rule
    from rulewright.logic import RuleSet as RuleSet
    from rulewright.logic import parse_formula as parse_formula
    from rulewright.logic import parse_rule as parse_rule
    from rulewright.logic import parse_rules as parse_rules
    from rulewright.reason import RankingCalibration as RankingCalibration
    from rulewright.reason import apply as apply
    from rulewright.reason import calibrate_ranking as calibrate_ranking
    from rulewright.reason import check as check
    from rulewright.reason import complete as complete
    from rulewright.reason import explain as explain
    from rulewright.reason import rank as rank
    from rulewright.reason import update as update

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "datasets": "",
        "data": "KnowledgeBase KnowledgeBaseBuilder",
        "engine": "Engine StoredFacts store_facts",
        "errors": "RulewrightError",
        "evaluate": "evaluate explain_counts",
        "evaluate.ranking": "evaluate_ranking",
        "inject": "ConsistencyLoss Decoded LabelCalibration LogicLayer RuleDecoder RuleFit calibrate distillation_loss "
        "fit_rules",
        "io": "read_facts read_rules write_facts write_rules",
        "learn": "LNNLearner MarkovLogic NLILLearner PathMixture RuleMiner choose_options explain_classifier",
        "logic": "Rule RuleSet parse_formula parse_rule parse_rules",
        "reason": "RankingCalibration apply calibrate_ranking check complete explain rank update",
    },
)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what is done is told to whoever listens
