"""MILR on documents: an extractor of relations, the rules mined for it, and the ways to use them."""
