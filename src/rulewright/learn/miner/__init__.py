"""Mining: every rule of some forms that holds often enough, counted exactly, `RuleMiner`.

learner.py counts chains of relations and is the learner.
"""
