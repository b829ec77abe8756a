"""Rule learning with logical neural networks: templates become networks whose operators never leave their logic.

`LNNLearner` (learner.py) is what most people need, with templates of their own or those of ready.py. Below it:
operators.py (connectives), template.py (names resolved), grounding.py (facts by joins), network.py (truth values),
training.py (one target), reading.py (what was learned, as rules).
"""
