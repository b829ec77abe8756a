"""Learners: facts in, rules or probabilities out. Names load on first use: mining needs no torch.

base.py says what every learner offers. miner/ counts all rules (`RuleMiner`); path_mixture/ weighs paths to
complete a graph (`PathMixture`); lnn/ fills templates by gradient (`LNNLearner`); nlil/ has transformers write rules
that explain a relation (`NLILLearner`); markov/ learns the weights of given formulas (`MarkovLogic`). evaluation.py
holds facts out, has a learner learn from the others and asks for them (`evaluate`); processes.py runs work in parallel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rulewright.lazy import lazy_names

if TYPE_CHECKING:
    from rulewright.learn.base import Learner as Learner
    from rulewright.learn.evaluation import Evaluation as Evaluation
    from rulewright.learn.evaluation import evaluate as evaluate
    from rulewright.learn.lnn.learner import LNNLearner as LNNLearner
    from rulewright.learn.markov.learner import MarkovLogic as MarkovLogic
    from rulewright.learn.markov.marginals import Marginal as Marginal
    from rulewright.learn.markov.marginals import Marginals as Marginals
    from rulewright.learn.markov.scope import Scope as Scope
    from rulewright.learn.markov.selection import Choice as Choice
    from rulewright.learn.markov.selection import choose_options as choose_options
    from rulewright.learn.miner.learner import RuleMiner as RuleMiner
    from rulewright.learn.nlil.explain import ClassifierExplanation as ClassifierExplanation
    from rulewright.learn.nlil.explain import explain_classifier as explain_classifier
    from rulewright.learn.nlil.learner import NLILLearner as NLILLearner
    from rulewright.learn.path_mixture.learner import PathMixture as PathMixture

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "base": "Learner",
        "evaluation": "Evaluation evaluate",
        "lnn.learner": "LNNLearner",
        "markov.learner": "MarkovLogic",
        "markov.marginals": "Marginal Marginals",
        "markov.scope": "Scope",
        "markov.selection": "Choice choose_options",
        "miner.learner": "RuleMiner",
        "nlil.explain": "ClassifierExplanation explain_classifier",
        "nlil.learner": "NLILLearner",
        "path_mixture.learner": "PathMixture",
    },
)
