"""One queue over every machine you can reach.

This file also travels inside the pilot, so it stays light and runs on Python 3.6.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
