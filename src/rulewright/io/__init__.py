"""Facts and rules in and out: one format, one file."""

from rulewright.io.formats import (
    FACT_FORMATS,
    RULE_FORMATS,
    holds_rules,
    read_facts,
    read_rules,
    write_facts,
    write_rules,
)

__all__ = ["FACT_FORMATS", "RULE_FORMATS", "holds_rules", "read_facts", "read_rules", "write_facts", "write_rules"]
