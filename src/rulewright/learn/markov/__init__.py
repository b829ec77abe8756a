"""Markov logic: weights of formulas and marginals of queries. In the order data flows:

- `learner.py`: `MarkovLogic`, which fits and predicts with what follows.
- `parameters.py`: the parameters of a learner, with the values they may have.
- `facts.py`: the facts of a knowledge base as dense tensors over some entities; queries as columns of atoms.
- `encoders.py`: encoders, which give every atom its log-odds.
- `network.py`: the network that joins an encoder, weights and a `LogicLayer`.
- `domains.py`: which entities are inferred together: a world, or samples of it where the parameters ask for them.
- `candidates.py`: a world over candidate atoms, those that formulas reach from what is observed and asked for.
- `scope.py`: what part of a world is inferred and how, by what it costs; refusals before any work.
- `training.py`: how weights and encoders learn through the layer.
- `sampled.py`: ground clauses drawn near what is observed, a batch at a time.
- `sampled_training.py`: how an encoder, or a table of atoms, becomes the mean field of what is drawn.
- `marginals.py`: what inference returns: atoms with their probabilities.
- `selection.py`: options chosen by facts that are hidden and inferred.
"""
