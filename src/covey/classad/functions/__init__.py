"""The functions of the language: those of ClassAds and those that HTCondor adds."""

from covey.classad.functions import lazy, moments, patterns, plain, tokens
from covey.classad.functions.table import FUNCTIONS, Function

__all__ = ["FUNCTIONS", "Function", "lazy", "moments", "patterns", "plain", "tokens"]
