"""Example knowledge bases of any size with known rules; the same seed always gives the same facts.

- `generated`: what a generator returns, and how a complete knowledge base loses facts and gains wrong ones
- `family_tree`, `nations`, `encyclopedia`, `even_numbers`, `grids`, `smokers`: one example each
- `planted`: rules of a chosen shape, among facts that distract
- `random_facts`: facts without any rule, over given types and predicates
"""

from rulewright.data.generators.encyclopedia import encyclopedia
from rulewright.data.generators.even_numbers import even_successor
from rulewright.data.generators.family_tree import family
from rulewright.data.generators.generated import Generated
from rulewright.data.generators.grids import gridworld
from rulewright.data.generators.nations import nations
from rulewright.data.generators.planted import planted
from rulewright.data.generators.random_facts import random_graph
from rulewright.data.generators.smokers import smoke

__all__ = [
    "Generated",
    "encyclopedia",
    "even_successor",
    "family",
    "gridworld",
    "nations",
    "planted",
    "random_graph",
    "smoke",
]
