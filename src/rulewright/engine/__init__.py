"""Everything that runs the body of a rule. All of it is held to one oracle, which tries every assignment.

- `sql`: any conjunctive body as portable SQL, and `SQLEngine`, which counts and lists groundings; `duckdb`: the engine
  that is used, `Engine`.
- `chain_counts`: statements and sparse products that count all chain rules of a length at once, for the miner.
- `walks`: `Graph`, paths as products of sparse matrices, with an edge hidden from each walker; `Evidence`, which rules
  of a `RuleTable` speak for which candidates of a query, by such walks.
- `batches`: rules of one shape as one table (`RuleBatch`), so that one join runs them all; for one head the join is
  also done over sorted facts (`FactIndex`), without a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rulewright.lazy import lazy_names

if TYPE_CHECKING:
    from rulewright.engine.duckdb import Engine as Engine
    from rulewright.engine.sql import SQLEngine as SQLEngine
    from rulewright.engine.sql import Support as Support

__getattr__, __dir__, __all__ = lazy_names(__name__, {"duckdb": "Engine", "sql": "SQLEngine Support"})
