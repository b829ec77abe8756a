"""A template of your own: gradient descent finds what fills it and how "and" behaves; the result is read and drawn."""

from pathlib import Path

import rulewright as rw
from rulewright.data.generators import family
from rulewright.errors import MissingExtraError
from rulewright.papers.lnn.pictures import draw_rule_tree

made = family(120, missing=0.1, seed=0)

# Who is whose grandparent? Two steps, each over one of three relations: which, is for the data to say.
TEMPLATE = """
template grandparent_of(X, Z) :- ?P(X, Y), ?Q(Y, Z)
    where ?P in {parent_of, spouse_of, sibling_of}, ?Q in {parent_of, spouse_of, sibling_of}.
"""
learner = rw.LNNLearner(TEMPLATE, epochs=40, seed=0).fit(made.kb)

print("the crisp reading, with what was learned and counted:")
for rule in learner.rules_:
    print("   ", rule)
print("\nthe operators behind it: weights, truth table at 0 and 1, sparsity")
print(learner.describe("grandparent_of"))

hidden = set(made.hidden.tuples("grandparent_of"))
found = {tuple(map(str, fact.args)) for fact in rw.apply(learner.rules_, made.kb)}
print(f"\n{len(hidden & found)} of {len(hidden)} hidden facts found, {len(found - hidden)} others inferred")

try:
    draw_rule_tree(Path("grandparent.png"), learner.network("grandparent_of"))
    print("drawn: grandparent.png")
except MissingExtraError as error:
    print(f"not drawn: {error}")
