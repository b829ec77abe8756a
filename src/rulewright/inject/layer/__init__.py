"""Formulas as a layer: grounding, plan, contractions, the layer itself, and what it can say of its messages."""
