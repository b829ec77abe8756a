"""Everything that runs the body of a rule. All of it is held to one oracle, which tries every assignment.

- `sql`: any conjunctive body as portable SQL, and `SQLEngine`, what a back end offers; `journal`: what of a long run
  is done; `duckdb`: the embedded back end, `Engine`; `spark`: the distributed one, `SparkEngine`.
- `stored_facts`: `StoredFacts`, a knowledge base whose facts stay in an engine, and `use_engine`, the engine that has
  the facts of any knowledge base.
- `chain_counts`: statements that count all chain rules of a length at once, for the miner.
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
    from rulewright.engine.stored_facts import StoredFacts as StoredFacts
    from rulewright.engine.stored_facts import store_facts as store_facts
    from rulewright.engine.stored_facts import use_engine as use_engine

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"duckdb": "Engine", "sql": "SQLEngine Support", "stored_facts": "StoredFacts store_facts use_engine"}
)
