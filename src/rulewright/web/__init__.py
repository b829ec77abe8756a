"""The explorer: rules, facts and what follows from them, in a browser."""

from rulewright.web.explorer import Explorer

__all__ = ["Explorer"]
