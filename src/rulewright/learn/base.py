"""What every learner offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator

from rulewright.checks import ParameterRule, check_parameters
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, NotFittedError
from rulewright.logic import RuleSet


class Learner(BaseEstimator):  # type: ignore[misc]
    """Facts in, rules out: ``fit(kb)`` returns the learner itself, and ``rules_`` are the rules it found.

    A learner is a scikit-learn estimator: every parameter stands in its signature with type and default and is kept as
    it was given, so that ``get_params``, ``set_params`` and ``sklearn.base.clone`` work and ``repr`` reads as the call
    that made it. What was learned ends in ``_`` and is there after `fit` only. A new learner

    - takes keyword-only parameters, assigns each to the attribute of its name and calls `_check_parameters`;
    - names in ``_parameter_rules`` which values each may have;
    - annotates in its class what it learns (``rules_: RuleSet``), which before `fit` raises `NotFittedError`;
    - implements `fit`, which begins with `_check_before_fit`, since ``set_params`` may have changed parameters;
    - reports long work by ``progress(stage, done, total)`` (`rulewright.checks.Progress`);
    - takes a ``time_limit`` in seconds, after which it keeps the best so far;
    - says in ``note_`` what a person should know of what was left out, cut short or guessed; empty where nothing was.
    """

    rules_: RuleSet
    note_: str
    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {}

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn from facts."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot mean what was intended."""
        check_parameters(vars(self), self._parameter_rules)

    def _check_before_fit(self, kb: object) -> None:
        """Check the parameters again, and refuse to learn from anything but a knowledge base."""
        self._check_parameters()
        if not isinstance(kb, KnowledgeBase):
            raise DataError(f"fit takes a KnowledgeBase, got {type(kb).__name__}; read_facts and from_triples make one")

    def __getattr__(self, name: str) -> Any:
        """Raise `NotFittedError` where something learned, annotated in the class, is read before `fit`."""
        if name.endswith("_") and any(name in vars(base).get("__annotations__", {}) for base in type(self).__mro__):
            raise NotFittedError(f"{type(self).__name__} has no {name} yet: fit(kb) comes first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_NAMED = 5


def list_names(names: Sequence[str]) -> str:
    """Return names for a note, the first few of many.

    >>> list_names(["p", "q"]), list_names([f"r{n}" for n in range(9)])
    ('p, q', 'r0, r1, r2, r3, r4 and 4 more')
    """
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def describe_time_limit(seconds: float | None, left_undone: str) -> str:
    """Return the note of a learner that a time limit has stopped, empty where nothing was left undone.

    >>> describe_time_limit(60, "likes had none")
    'stopped by the time limit of 60 s: likes had none; more time may give more and better rules'
    """
    if not left_undone or seconds is None:
        return ""
    return f"stopped by the time limit of {seconds:g} s: {left_undone}; more time may give more and better rules"
