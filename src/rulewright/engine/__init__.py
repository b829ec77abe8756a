"""How a rule body is run over facts: plain SQL, and the engine that executes it."""

from rulewright.engine.duckdb import Engine
from rulewright.engine.sql import SQLEngine, Support

__all__ = ["Engine", "SQLEngine", "Support"]
