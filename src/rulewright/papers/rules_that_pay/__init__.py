"""Rules beside a calibrated network: what each use of them brings, on documents that networks did not learn from.

* `documents`: the documents to learn from, with text and without, and those to test on
* `crossing`: networks by folds, so that every labelled document is predicted by those that did not see it
* `uses`: calibration, then rules as a hard decoder, a soft one, a layer; scores by document
* `run`: an experiment from training to figures
* `teaching`: the forms of a loss for rules beside each other
* `report`: the page of all runs
"""
