"""Rule learning with logical neural networks: templates become networks whose operators never leave their logic.

`LNNLearner` (learner.py) is what most people need, with templates of their own or those of ready.py. In the order data
flows: template.py resolves the names of a template, grounding.py finds its facts by joins, operators.py has the
connectives, network.py computes truth values, training.py trains one target, crisp.py finds the rules that hold the
same facts true as a network, reading.py writes what was learned as rules and as templates.
"""
