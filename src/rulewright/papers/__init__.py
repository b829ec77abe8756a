"""The papers' tables on one code base: ``milr``, ``logicmp``, ``lnn``, ``nlil``, and ``matrix`` for all together.

Each folder has its settings in ``experiments.toml``, the runs of its tasks and its ``report``. Above them:

* `catalogue`: the experiments by name, and the function that runs each
* `documents`, `encoders`: documents as tensors, and their encoders
* `completion_runs`: what runs of knowledge-base completion share
* `report_page`: the saved runs of a family as tables in its page of results
"""
