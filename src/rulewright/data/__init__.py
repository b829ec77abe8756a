"""What facts are.

- `vocabulary`: the entities of a type, their labels and indices
- `facts`: facts as integer columns, all predicates of one signature together
- `knowledge_base`: entities, predicates and facts, and every view of them
- `builder`: collects facts one by one, with their labels, and makes a knowledge base
- `changes`: facts added to a knowledge base and taken from it
- `index`: arithmetic on columns of indices, for joins, walks and counts
- `generators`: examples of any size with known rules
"""

from rulewright.data.builder import ENTITY_TYPE, KnowledgeBaseBuilder
from rulewright.data.facts import FactTable, signature
from rulewright.data.knowledge_base import KnowledgeBase, Value
from rulewright.data.vocabulary import Domain

__all__ = ["ENTITY_TYPE", "Domain", "FactTable", "KnowledgeBase", "KnowledgeBaseBuilder", "Value", "signature"]
