"""Mining: every rule of some forms that holds often enough, counted exactly, `RuleMiner`.

- confidence.py says what counts mean; filters.py which rules are wanted, and what presets say of that.
- chains.py counts chains of relations; samples.py has the entities that it may count from, and what that leaves open.
- properties.py counts rules about one entity; thresholds.py those that compare a number of it with a threshold.
- refinements.py counts chains that ask something of their ends: a unary fact, or a comparison of their numbers.
- exclusions.py counts predicates that never hold of the same.
- pruning.py leaves out rules that others make superfluous.
- learner.py brings them together and is the learner.
"""
