"""Named data sets: what they are, where they are, and how to get them."""

from rulewright.datasets.catalogue import Dataset, DatasetFile, catalogue, find
from rulewright.datasets.download import get, locate
from rulewright.datasets.loading import availability, load, rules_of

__all__ = ["Dataset", "DatasetFile", "availability", "catalogue", "find", "get", "load", "locate", "rules_of"]
