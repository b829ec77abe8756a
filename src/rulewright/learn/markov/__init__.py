"""Markov logic: weights of formulas and marginals of queries."""
