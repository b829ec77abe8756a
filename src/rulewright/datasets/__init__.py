"""Named data sets.

- `catalogue`: what each set is, its files with address and checksum (``catalogue.toml``, ``files.tsv``)
- `download`: where the files are on this machine, and fetching those that are missing
- `loading`: a set as a knowledge base, and the rules that come with it
"""

from rulewright.datasets.catalogue import Dataset, DatasetFile, catalogue, find
from rulewright.datasets.download import availability, get, locate
from rulewright.datasets.loading import load, rules_of

__all__ = ["Dataset", "DatasetFile", "availability", "catalogue", "find", "get", "load", "locate", "rules_of"]
