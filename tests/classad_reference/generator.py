"""Random questions: every operator and every function, in ads as policies have them."""

import random

from tests.classad_reference import leaves
from tests.classad_reference.signatures import SIGNATURES
from tests.classad_reference.trees import Question, Tree, leaf, render

ARITHMETIC = ("+", "-", "*", "/", "%")
BITS = ("&", "|", "^", "<<", ">>", ">>>")
COMPARING = ("<", "<=", "==", "!=", ">", ">=", "=?=", "=!=", "is", "isnt")
LOGIC = ("&&", "||")
BINARY = (*ARITHMETIC, *ARITHMETIC, *BITS, *COMPARING, *LOGIC, *LOGIC, "?:", "? :")
UNARY = ("!", "-", "+", "~")
FUNCTIONS = tuple(SIGNATURES)
TEXTS = {
    "o": leaves.OPTIONS, "r": leaves.REPLACEMENTS, "c": leaves.COMPARISONS, "f": leaves.FORMATS,
    "v": leaves.VERSIONS, "k": leaves.STRING_LISTS, "E": leaves.ENVIRONMENTS,
}  # fmt: skip
DRAWN = {"i": leaves.integer, "s": leaves.string, "p": leaves.pattern, "T": leaves.time,
         "D": leaves.span}  # fmt: skip


class Generator:
    """Draws from `chance` alone, so a seed gives the same questions again."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names: tuple[str, ...] = ()

    def question(self) -> Question:
        """One in four is about an ad of ads, as in GridBot's Figure 3."""
        self.names = leaves.LOCAL_NAMES
        if self.chance.random() < 0.25:
            self.names = (*leaves.LOCAL_NAMES, *leaves.SCOPES)
            ad = self.compound()
        else:
            ad = self.flat_ad(2)
        target = self.flat_ad(1) if self.chance.random() < 0.3 else None
        expression = self.expression(self.chance.choice((1, 2, 2, 3, 3, 4)))
        if self.chance.random() < 0.04:
            expression = leaf(self.broken(render(expression)))
        return Question(expression, ad, target)

    def broken(self, text: str) -> str:
        """With a slip of the pen, which may leave it readable, or not."""
        at = self.chance.randrange(len(text) + 1)
        end = at + self.chance.choice((0, 1, 1, 2, 5))
        return text[:at] + self.pick("", "", *leaves.SLIPS) + text[end:]

    def pick(self, *some: str) -> str:
        return self.chance.choice(some)

    # -- ads -----------------------------------------------------------------------------------

    def flat_ad(self, depth: int) -> Tree:
        count = self.chance.choice((0, 1, 2, 3, 4, 6))
        names = [self.chance.choice(leaves.LOCAL_NAMES) for _ in range(count)]
        values = [self.expression(self.chance.randrange(depth + 1)) for _ in names]
        return Tree("ad", "", tuple(values), tuple(names))

    def compound(self) -> Tree:
        names = self.chance.sample(leaves.SCOPES, self.chance.randrange(2, 5))
        children = [self.flat_ad(2) for _ in names]
        if self.chance.random() < 0.5:
            names.append(self.chance.choice(leaves.LOCAL_NAMES))
            children.append(self.expression(1))
        return Tree("ad", "", tuple(children), tuple(names))

    # -- expressions ---------------------------------------------------------------------------

    def expression(self, depth: int) -> Tree:
        if depth <= 0:
            return self.atom()
        drawn = self.chance.random()
        if drawn < 0.42:
            return self.call(depth)
        if drawn < 0.68:
            return self.binary(depth)
        if drawn < 0.75:
            return Tree("unary", self.pick(*UNARY), (self.operand(depth - 1),))
        if drawn < 0.81:
            return Tree("ternary", "", tuple(self.operand(depth - 1) for _ in range(3)))
        if drawn < 0.86:
            return self.list_of("x", depth - 1)
        if drawn < 0.90:
            return self.flat_ad(depth - 1)
        if drawn < 0.94:
            return self.selection(depth - 1)
        if drawn < 0.97:
            return self.subscript(depth - 1)
        return self.atom()

    def atom(self) -> Tree:
        drawn = self.chance.random()
        if drawn < 0.3:
            return leaf(leaves.integer(self.chance))
        if drawn < 0.42:
            return leaf(leaves.real(self.chance))
        if drawn < 0.6:
            return leaf(leaves.string(self.chance))
        if drawn < 0.74:
            return leaf(self.pick("true", "false", "TRUE", "undefined", "error", "Undefined"))
        if drawn < 0.78:
            return self.typed("t", 0)
        if drawn < 0.80:
            return self.typed("d", 0)
        return self.reference()

    def reference(self) -> Tree:
        drawn = self.chance.random()
        name = self.chance.choice(self.names)
        if self.chance.random() < 0.1:
            name = name.swapcase()
        if drawn < 0.6:
            return Tree("name", name)
        if drawn < 0.85:
            scope = self.pick(
                "MY", "TARGET", "parent", "my", "Target", "other", "self", "toplevel", "root"
            )
            return Tree("select", name, (Tree("name", scope),))
        if drawn < 0.95:
            inner = Tree("name", self.chance.choice(self.names))
            return Tree("select", name, (inner,))
        return Tree("name", "." + name)

    def operand(self, depth: int) -> Tree:
        """Mostly in parentheses; where not, precedence decides, for both engines."""
        found = self.expression(depth)
        if found.kind in ("leaf", "name", "call", "list", "ad", "select"):
            return found
        return Tree("paren", "", (found,)) if self.chance.random() < 0.7 else found

    def binary(self, depth: int) -> Tree:
        operator = self.chance.choice(BINARY)
        kind = "x"
        if self.chance.random() < 0.6:
            if operator in ARITHMETIC:
                kind = "n"
            elif operator in BITS:
                kind = "i"
            elif operator in LOGIC:
                kind = "b"
            elif operator in COMPARING:
                kind = self.pick("n", "s", "b", "t", "d")
        return Tree("binary", operator, (self.typed(kind, depth - 1), self.typed(kind, depth - 1)))

    def selection(self, depth: int) -> Tree:
        base = self.pick("ad", "list", "name", "any")
        name = self.chance.choice(leaves.LOCAL_NAMES)
        if base == "ad":
            inner = self.flat_ad(depth)
        elif base == "list":
            ads = tuple(self.flat_ad(depth) for _ in range(self.chance.randrange(3)))
            inner = Tree("list", "", ads)
        elif base == "name":
            inner = self.reference()
        else:
            inner = Tree("paren", "", (self.expression(depth),))
        return Tree("select", name, (inner,))

    def subscript(self, depth: int) -> Tree:
        base = self.pick("list", "ad", "any")
        if base == "list":
            where = leaf(self.pick("0", "1", "2", "-1", "true", "1.0"))
            return Tree("index", "", (self.list_of("x", depth), where))
        if base == "ad":
            where = leaf(leaves.quoted(self.pick(*leaves.LOCAL_NAMES[:6], "A")))
            return Tree("index", "", (self.flat_ad(depth), where))
        inner = Tree("paren", "", (self.expression(depth),))
        return Tree("index", "", (inner, self.expression(0)))

    def list_of(self, kind: str, depth: int) -> Tree:
        count = self.chance.choice((0, 1, 2, 2, 3, 4))
        return Tree("list", "", tuple(self.typed(kind, depth) for _ in range(count)))

    # -- functions -----------------------------------------------------------------------------

    def call(self, depth: int) -> Tree:
        name = self.chance.choice(FUNCTIONS)
        kinds = self.chance.choice(SIGNATURES[name].split())
        if kinds == "-":
            kinds = ""
        while "*" in kinds:
            place = kinds.index("*")
            repeated = kinds[place - 1] * self.chance.randrange(4)
            kinds = kinds[: place - 1] + repeated + kinds[place + 1 :]
        if self.chance.random() < 0.03:  # too few, too many
            kinds = self.pick("", kinds + "x", kinds[:-1])
        arguments = tuple(self.argument(kind, depth - 1) for kind in kinds)
        if self.chance.random() < 0.05:
            name = self.pick(name.lower(), name.upper())
        return Tree("call", name, arguments)

    def argument(self, kind: str, depth: int) -> Tree:
        if self.chance.random() < 0.1:
            kind = self.pick("x", "x", "n", "s", "l", "b")
        return self.typed(kind, depth)

    def typed(self, kind: str, depth: int) -> Tree:
        """Something that most likely has this type; deeper ones less so."""
        if kind == "x":
            return self.operand(depth)
        if depth > 0 and kind in "insbla" and self.chance.random() < 0.35:
            return self.operand(depth)
        chance = self.chance
        if kind in TEXTS:
            return leaf(leaves.quoted(chance.choice(TEXTS[kind])))
        if kind in DRAWN:
            return leaf(DRAWN[kind](chance))
        if kind == "n":
            return leaf(leaves.integer(chance) if chance.random() < 0.55 else leaves.real(chance))
        if kind == "b":
            return leaf(
                self.pick("true", "false", "true", "false", "undefined", "error", "1", "0.0")
            )
        return self.composed(kind, depth)

    def composed(self, kind: str, depth: int) -> Tree:
        chance = self.chance
        if kind == "l":
            return self.list_of("x", min(depth, 1))
        if kind == "L":
            return self.list_of("s" if chance.random() < 0.9 else "x", 0)
        if kind == "N":
            return self.list_of("n" if chance.random() < 0.8 else "x", 0)
        if kind == "A":
            count = chance.randrange(4)
            return Tree("list", "", tuple(self.flat_ad(0) for _ in range(count)))
        if kind == "a":
            return self.flat_ad(max(0, min(depth, 1)))
        if kind == "t":
            text = leaves.time(chance)
            number = leaf(str(chance.randrange(2**31)))
            zone = leaf(self.pick("0", "3600", "-18000", "19800"))
            arguments = ((leaf(text),), (number,), (number, zone))
            return Tree("call", "absTime", chance.choice(arguments))
        if kind == "d":
            text = leaves.span(chance) if chance.random() < 0.4 else leaves.real(chance)
            return Tree("call", "relTime", (leaf(text),))
        if kind == "e":
            inner = render(self.expression(min(depth, 1)))
            return leaf(leaves.quoted(inner.replace("\\", "\\\\").replace('"', '\\"')))
        if kind == "m":
            return self.reference()
        assert kind == "q", kind  # a condition on each ad of a list
        return Tree("binary", self.pick(*COMPARING), (self.reference(), self.atom()))
