"""Explain a predicate of your own graph: what makes somebody a grandparent?"""

import rulewright as rw
from rulewright.data.generators import family

kb = family(80, seed=1).kb
print(kb)

learner = rw.NLILLearner(targets=["grandparent_of"], levels=0, layers=1, rounds=1, max_facts=100).fit(kb)
for rule in learner.rules_.rules:
    print(rule)

# The rules speak the common language: apply them, or ask how often one holds.
print(rw.explain_counts(learner.rules_.rules[0], kb, limit=1))

# With negation, what must not be there is learned too: who is alone has a home, and nobody lives there with them.
facts = [("home", f"p{i}") for i in range(40) if i % 2] + [("lives_with", f"p{i}", f"q{i}") for i in range(40) if i % 3]
facts += [("alone", f"p{i}") for i in range(40) if i % 2 and not i % 3]
people = rw.KnowledgeBase.from_facts(facts)
learner = rw.NLILLearner(targets="alone", negation=True, layers=1).fit(people)
for rule in learner.rules_.rules:
    print(rule)
print(rw.explain_counts(learner.rules_.rules[-1], rw.apply(learner.auxiliary_, people).completed, limit=1))
