"""Explain a predicate of your own graph: what makes somebody a grandparent?"""

import rulewright as rw
from rulewright.data.generators import family

kb = family(80, seed=1).kb
print(kb)

learner = rw.NLILLearner(targets=["grandparent_of"], levels=0, layers=1, epochs=10, rounds=1, max_facts=100).fit(kb)
for rule in learner.rules_.rules:
    print(rule)

# The rules speak the common language: apply them, or ask how often one holds.
print(rw.explain_counts(learner.rules_.rules[0], kb, limit=1))
