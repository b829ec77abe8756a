"""Facts and rules in and out.

- `formats`: the table of formats, finding the format of a file, and reading and writing by that table
- `folders`: which files of a folder hold facts, and why others do not
- `cursor`: walks over the tokens of a text; `json_shape`: walks over JSON; both say where something is wrong
- facts of any arity: `facts` (``.facts``), `jsonl`, `prolog`; the last two hold rules too
- graphs: `triples` (TSV, CSV), `rdf`, `frames` (Parquet and data frames); `table` (a row for each entity), `neo4j`;
  for these `delimited` (files of columns), `columns` (what each of them is), `values` (texts that are numbers or dates)
- Markov logic: `mln_formulas` (what both have in common), `alchemy` (``.mln``, ``.db``), `mln_folder`
- documents, images and sentences: `docred`, `scenes`, `funsd`, `conll`
- rules of other systems: `mined_rules` (AnyBURL, AMIE, MILR)
"""

from rulewright.io.formats import (
    FACT_FORMATS,
    FORMATS,
    RULE_FORMATS,
    holds_rules,
    read_facts,
    read_rules,
    write_facts,
    write_rules,
)

__all__ = [
    "FACT_FORMATS",
    "FORMATS",
    "RULE_FORMATS",
    "holds_rules",
    "read_facts",
    "read_rules",
    "write_facts",
    "write_rules",
]
