"""Every learner in every use: a small network corrected by the rules of each learner in each way.

* `worlds`: the data sets as worlds of entities with relations, and the network that reads them
* `run`: rules learned and put to work, with figures
* `report`: the page of all runs
"""
