"""Settings that every test shares."""

from hypothesis import settings

# The same examples on every run and no time limit for one of them, so that a slow machine fails no test.
settings.register_profile("rulewright", deadline=None, derandomize=True)
settings.load_profile("rulewright")
