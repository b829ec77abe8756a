"""Markov logic: weights of formulas and marginals of queries. In the order data flows:

- `learner.py`: `MarkovLogic`, which fits and predicts with what follows.
- `parameters.py`: the parameters of a learner, with the values they may have.
- `facts.py`: the facts of a knowledge base as dense tensors over some entities; queries as columns of atoms.
- `network.py`: encoders, which give every atom its log-odds, and the network that joins them with a `LogicLayer`.
- `domains.py`: which entities are inferred together: a world, or samples of it where memory does not allow more.
- `training.py`: how weights and encoders learn.
- `marginals.py`: what inference returns: atoms with their probabilities.
"""
