"""Mining: every rule of some forms that holds often enough, counted exactly, `RuleMiner`.

confidence.py says what counts mean; learner.py counts chains of relations and is the learner.
"""
