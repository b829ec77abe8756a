"""The papers' tables on one code base: one module for each family, settings in packaged files."""

from rulewright.papers.catalogue import Experiment, experiments, find, with_settings

__all__ = ["Experiment", "experiments", "find", "with_settings"]
