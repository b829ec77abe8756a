"""MILR (Fan et al., EMNLP 2022): extractors of relations from documents, and the rules that are mined for them.

* `tasks`: the documents to train, select and test on, and their rules
* `networks`, `gain`: the extractors, over the encoders in `rulewright.papers.encoders`
* `training`: extractors by name, their settings, and how they are trained
* `predictions`: what a network says of documents, kept in a file; the best threshold
* `decoding`: labels above a threshold or decoded with rules, their scores and costs
* `run`: an experiment from training to figures
* `report`: the page of all runs
"""
