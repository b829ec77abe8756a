"""Neural logic inductive learning: transformers write first-order rules that explain a predicate.

`NLILLearner` (learner.py) is what most people need. In the order that data flows: facts.py (facts as steps and marks,
and the codes of operators and statements), questions.py (what is learned, from which true and false facts), frontier.py
(what a batch of questions can reach), choices.py (which predicates each rule may use), generator.py (relaxed rules and
the transformers that write them), formulas.py (rules read off attentions, matched and written), selection.py (rules
counted and chosen), rounds.py (generators trained one after the other until a predicate is explained), classes.py
(classes learned together, their rules weighed), learner.py. On top of them: completion.py (ranking) and explain.py
(explaining a classifier).
"""
