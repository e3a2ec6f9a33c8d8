"""What an expression needs from outside: the names that it leaves open, and probable mistakes."""

import difflib
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from covey.classad.ads import Ad, as_node
from covey.classad.evaluation import SPECIAL_NAMES, function_of, outermost
from covey.classad.functions import FUNCTIONS
from covey.classad.nodes import Call, Literal, Node, Reference
from covey.classad.regex import compiled
from covey.classad.values import ClassAdError

PATTERN_FIRST = frozenset(
    ["regexp", "regexpmember", "regexps", "replace", "replaceall", "stringlist_regexpmember"]
)
LONGEST_GUESSED = 100  # characters of a name for which similar names are suggested


def dependencies(thing: Any, ad: Optional[Ad] = None) -> Set[str]:
    """The attributes, such as `host.errorrate`, that `ad` and the ads around it do not have."""
    return needs(as_node(thing), ad)[0]


def needs(node: Node, ad: Optional[Ad]) -> Tuple[Set[str], Set[str]]:
    """The attributes that are not defined, and the functions that are called, also indirectly."""
    needed: Tuple[Set[str], Set[str]] = (set(), set())
    collect(node, ad, None if ad is None else outermost(ad), needed, set())
    return needed


def path(node: Node) -> List[str]:
    """The names of a reference through references; empty if it goes through anything else."""
    names: List[str] = []
    while isinstance(node, Reference):
        names.insert(0, node.key)
        if node.scope is None:
            return names
        node = node.scope
    return []


def lookup(ad: Optional[Ad], names: Sequence[str]) -> Tuple[Any, Optional[Ad]]:
    """The entry that a path leads to, and the ad that has it; None if it leads outside."""
    entry: Any = None
    for number, name in enumerate(names):
        if number and not isinstance(entry, Ad):
            return None, None
        ad = entry.within(ad) if number else ad
        while ad is not None and name not in ad.table:
            ad = ad.parent
        if ad is None:
            return None, None
        entry = ad.table[name]
    return entry, ad


def is_absolute(node: Node) -> bool:
    """Whether a path begins at the root."""
    while isinstance(node, Reference) and node.scope is not None:
        node = node.scope
    return isinstance(node, Reference) and node.absolute


def collect(
    node: Node,
    ad: Optional[Ad],
    root: Optional[Ad],
    needed: Tuple[Set[str], Set[str]],
    seen: Set[Tuple[int, str]],
) -> None:
    """`root` is the outermost ad, as far as it is known: absolute names are looked up there."""
    names, start = path(node), root if is_absolute(node) else ad
    if len(names) > 1 and names[0] in ("my", "self") and lookup(start, names[:1])[1] is None:
        names = names[1:]
    entry, place = lookup(start, names)
    if not names:
        if isinstance(node, Reference):  # from a computed ad, or else from the ads around
            collect(Reference(None, node.name), ad, root, needed, seen)
        if isinstance(node, Call):
            needed[1].add(node.key)
        inside = node.within(ad) if isinstance(node, Ad) else ad
        for child in node.children:
            collect(child, inside, root, needed, seen)
    elif place is None:
        if names[0] == "currenttime":
            needed[1].add("time")
        else:
            needed[0].add(".".join(names))
    elif isinstance(entry, Node) and (id(place.table), names[-1]) not in seen:
        seen.add((id(place.table), names[-1]))
        collect(entry, place, root, needed, seen)


class Finding(NamedTuple):
    """A probable mistake, its position, and what may be meant instead."""

    position: int
    message: str
    near: Tuple[str, ...] = ()


def check(thing: Any, known_names: Optional[Iterable[str]] = None) -> List[Finding]:
    """Finds calls of unknown functions, or with too few or too many arguments; patterns that are
    not supported; and attributes that are neither defined inside nor among `known_names`."""
    known = None if known_names is None else {name.lower(): name for name in known_names}
    return sorted(set(examine(as_node(thing), None, known)))


def examine(node: Node, ad: Optional[Ad], known: Optional[Dict[str, str]]) -> List[Finding]:
    names = path(node)
    if names:
        return [] if known is None else examine_path(node, names, ad, known)
    findings = examine_call(node) if isinstance(node, Call) else []
    inside = node.within(ad) if isinstance(node, Ad) else ad
    for child in node.children:
        findings += examine(child, inside, known)
    return findings


def examine_call(node: Call) -> List[Finding]:
    function: Any = FUNCTIONS.get(node.key)
    if function is None:
        near = near_names(node.name, {key: each.name for key, each in FUNCTIONS.items()})
        return [Finding(node.position, "there is no function " + node.name, near)]
    if function_of(node):
        return examine_pattern(node) if node.key in PATTERN_FIRST else []
    expected = str(function.least)
    if function.most != function.least:
        expected += " or more" if function.most is None else " to %d" % function.most
    expected += " argument" if expected == "1" else " arguments"
    message = "%s takes %s, not %d" % (function.name, expected, len(node.arguments))
    return [Finding(node.position, message)]


def examine_pattern(node: Call) -> List[Finding]:
    pattern = node.arguments[0]
    if isinstance(pattern, Literal) and isinstance(pattern.value, str):
        try:
            compiled(pattern.value, frozenset())
        except ClassAdError as problem:
            return [Finding(pattern.position, "this pattern is not supported: %s" % problem)]
    return []


def examine_path(
    node: Node, names: List[str], ad: Optional[Ad], known: Dict[str, str]
) -> List[Finding]:
    others = ("target", "other")
    if names[0] in SPECIAL_NAMES and names[0] not in others:
        names = names[1:]
    whole = ".".join(names)
    if not names or whole in known or lookup(ad, names)[1] is not None:
        return []
    open_ad = not any(name.startswith(names[0] + ".") for name in known)
    if ((names[0] in known or names[0] in others) and open_ad) or (len(names) == 1 and not open_ad):
        return []  # an ad whose attributes are not known, or that is used as a whole
    return [Finding(node.position, "there is no attribute " + whole, near_names(whole, known))]


def near_names(name: str, known: Dict[str, str]) -> Tuple[str, ...]:
    """Names with a similar spelling; none for a very long name, because comparing takes the product
    of both lengths."""
    if len(name) > LONGEST_GUESSED:
        return ()
    return tuple(known[near] for near in difflib.get_close_matches(name.lower(), known))
