"""Neural logic inductive learning: transformers write first-order rules that explain a predicate.

`NLILLearner` (learner.py) is what most people need. Below it: facts.py (facts as edges and marks), frontier.py (what a
batch of questions can reach), space.py (the relaxed rules, Equations 3 to 14), generator.py (the transformers that
write them, Equation 15), literals.py and formulas.py (rules read off attentions, counted and printed), training.py
(one round of one generator), rounds.py (one after the other), selection.py and pairs.py (rules counted and chosen),
learning.py and class_learning.py (a task from beginning to end), completion.py (ranking), explain.py (classifiers).
"""
