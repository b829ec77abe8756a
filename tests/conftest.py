"""Settings that every test shares."""

import signal

from hypothesis import settings

# The same examples on every run and no time limit for one of them, so that a slow machine fails no test.
settings.register_profile("rulewright", deadline=None, derandomize=True)
settings.load_profile("rulewright")

# What a shell starts in the background does not hear Ctrl-C, nor do its children; tests of Ctrl-C need it heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
