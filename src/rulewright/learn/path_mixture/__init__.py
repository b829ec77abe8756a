"""Completion of a graph by a weighted mixture of paths, `PathMixture`.

In the order data flows: questions.py draws the facts to ask about; paths.py finds and counts rules, paths that join
the ends of facts and rules that name entities; target.py learns one query: it poses it for facts, collects which rules
speak for which candidates, and fits the weights; losses.py has what that lowers, compiled; pruning.py leaves out the
rules that say least; learner.py is the learner: it does so for every relation and direction, keeps its work in a folder
and writes what was learned in the rule language.
"""
