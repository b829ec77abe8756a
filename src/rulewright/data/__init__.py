"""What facts are: the knowledge base, how it is built, and generators of examples."""

from rulewright.data.builder import ENTITY_TYPE, KnowledgeBaseBuilder
from rulewright.data.facts import FactTable, signature
from rulewright.data.knowledge_base import KnowledgeBase, Value
from rulewright.data.vocabulary import Domain

__all__ = ["ENTITY_TYPE", "Domain", "FactTable", "KnowledgeBase", "KnowledgeBaseBuilder", "Value", "signature"]
