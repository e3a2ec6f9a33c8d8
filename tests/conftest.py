"""Settings for every test. Markers and the time limit are in pyproject.toml."""

import os
import signal

from hypothesis import settings

# The systems of the testbed are there for every test.
pytest_plugins = ["tests.testbed.fixtures"]

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


# A shell that runs us in the background has SIGINT ignored, and so would all that we start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
