"""LogicMP (Xu et al., ICLR 2024): rules as a layer of a network, on forms, sentences and knowledge bases.

* `form_network`, `blocks`, `forms`: which words of a form stand in one block; the network, how it is scored, the runs
* `sentences`, `tagger`, `tags`: names in sentences; the features, the network with its heads, rules and runs
* `selection`, `graphs`: Markov logic networks on knowledge bases; options chosen by observed facts, the runs
* `report`: the page of all runs
"""
