"""Rule learning with logical neural networks (Sen et al., AAAI 2022).

* `countries`: where countries lie, by one rule
* `gridworld`: a policy as a rule; rewards teach it
* `kbc`: knowledge-base completion by mixtures of paths
* `leaf`: the same by mixtures at the leaves of one template
* `pictures`: rules as trees, connectives as surfaces, curves and policies
* `report`: the page of all runs
"""
