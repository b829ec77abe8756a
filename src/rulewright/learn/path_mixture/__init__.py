"""Completion of a graph by a weighted mixture of paths, `PathMixture`.

In the order data flows: paths.py finds the paths that join the ends of facts; constant_rules.py counts rules that name
entities; weighing.py builds queries with their candidates and fits weights; target.py does all of it for one direction
of one relation; rules.py writes what was learned in the rule language; learner.py is the learner, and keeps its work.
"""
