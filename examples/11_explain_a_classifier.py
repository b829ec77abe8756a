"""Explain a classifier: hand in what any model says of objects with relations, get rules that say the same."""

import random

import rulewright as rw

random.seed(0)
facts, model = [], {}
for number in range(80):  # small scenes: people wear things and ride things; some lean on the things they could ride
    person, hat, bike, wall = (f"{kind}{number}" for kind in ("person", "hat", "bike", "wall"))
    facts += [("wears", person, hat), ("on", hat, person), ("beside", bike, wall)]
    facts += [("rides", person, bike)] if random.random() < 0.7 else [("beside", person, bike)]
    model |= {person: "person", hat: "hat", bike: "bike", wall: "wall"}
    if random.random() < 0.05:
        model[hat] = "bag"  # the model makes mistakes, and these have no reason in the scene

learner = rw.NLILLearner(levels=0, layers=1, rounds=2)
explanation = rw.explain_classifier(rw.KnowledgeBase.from_facts(facts), model, learner)
print(explanation)
name, rules = explanation.explain("bike3")
print(f"\nbike3 is a {name}, since")
for rule in rules[:3]:
    print(" ", rule)
