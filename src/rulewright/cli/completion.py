"""What a shell may complete beyond commands and options: names that Rulewright itself knows."""

from __future__ import annotations


def experiment_names(incomplete: str) -> list[str]:
    """Return the experiments, and their families, that begin so."""
    from rulewright.experiments import experiments

    found = experiments()
    names = {*found, *(each.family for each in found.values())}
    return sorted(name for name in names if name.startswith(incomplete))


def dataset_names(incomplete: str) -> list[str]:
    """Return the data sets that begin so.

    >>> dataset_names("uml")
    ['umls']
    """
    from rulewright.datasets import catalogue

    return sorted(name for name in catalogue() if name.startswith(incomplete))
