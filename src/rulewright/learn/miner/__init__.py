"""Mining: every rule of some forms that holds often enough, counted exactly, `RuleMiner`.

confidence.py says what counts mean; properties.py counts rules about one entity; learner.py counts chains of relations
and is the learner.
"""
