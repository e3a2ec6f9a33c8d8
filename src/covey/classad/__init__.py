"""The policy language: ClassAd expressions, for the server and for pilots."""

from covey.classad.ads import Ad
from covey.classad.depends import Finding, check, dependencies
from covey.classad.expressions import Expression, parse
from covey.classad.fast import Policy
from covey.classad.jsonform import from_json, to_json
from covey.classad.parser import parse_ad
from covey.classad.partial import partial
from covey.classad.unparse import unparse
from covey.classad.values import (
    ERROR,
    UNDEFINED,
    AbsTime,
    ClassAdError,
    Context,
    RelTime,
    SyntaxProblem,
)

__all__ = [
    "ERROR",
    "UNDEFINED",
    "AbsTime",
    "Ad",
    "ClassAdError",
    "Context",
    "Expression",
    "Finding",
    "Policy",
    "RelTime",
    "SyntaxProblem",
    "check",
    "dependencies",
    "from_json",
    "parse",
    "parse_ad",
    "partial",
    "to_json",
    "unparse",
]
