"""Words, numbers, bags, policies, queries and messages that were made to hurt.

Everything comes from the generator given, so that a seed brings each of them back.
"""

import random
from collections.abc import Callable
from typing import Any

from tests.classad_reference.generator import Generator
from tests.classad_reference.trees import render
from tests.fuzz.mutations import NUMBERS, TEXTS, Mutator

LENGTHS = (1, 30, 700, 4_400, 20_000, 60_000)
PIECES = (
    " ", "\t", "(", ")", "[", "]", "{", "}", "{{", '"', "'", "\\", "/", "*", "**/", "?", "[!a]",
    "a", "aa*", "(a+)+",
    "1", "9", "0", ".", "1e", "-", "=", "==", "<", "&&", "||", "!", "!!", ",", ";",
    "a=", "a = ", " and ", "not ", "\n", "\r\n", "\0", "\x1b[31m", "\u202e", "\u00e9", "e\u0301",
    "\ufffd", "%", "%s", "../", "x.", "x[0]", "1,", "1 ", "1h", "1h1m", "a|", "#", "\u2028",
)  # fmt: skip
HUGE_NUMBERS = (
    "1e5000", "1e99999999999999", "-1e99999999999999", "1e-99999999999999", "NaN", "-NaN", "sNaN",
    "Infinity", "-Infinity", "9" * 5000, "0." + "3" * 5000, "1e308", "5e-324", "1_000", "٣", "0x10",
    "", " ", "1" * 4400, "1e4300", "-0", "0e0", "1E+400",
)  # fmt: skip
COUNTS = (0, 1, -1, 2, 1000, 10**6, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30)
COLUMNS = ("i", "task", "state", "seconds", "host", "memory", "cause", "x", "no_such", "", "ended")
COMPARISONS = ("<", "<=", "=", "==", "!=", ">", ">=", "~", "like", "in", "=<", "", "<>")


class Evil:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.mutator = Mutator(chance)
        self._classads = Generator(chance)

    def text(self) -> str:
        """Long, and of few different pieces: what parsers stumble over."""
        chance = self.chance
        if chance.random() < 0.3:
            return chance.choice((*TEXTS, *HUGE_NUMBERS))
        pieces = [chance.choice(PIECES) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        unit = "".join(pieces)
        long = unit * max(1, chance.choice(LENGTHS) // len(unit))
        if chance.random() < 0.5:
            long = chance.choice(PIECES) + long + chance.choice(PIECES)
        return long

    def number(self) -> Any:
        return self.chance.choice((*NUMBERS, *COUNTS))

    def query(self) -> str:
        """A condition on results."""
        chance = self.chance
        if chance.random() < 0.3:
            return self.text()
        name = chance.choice(COLUMNS) if chance.random() < 0.8 else self.text()
        value = chance.choice(("1", "failed", "'a'", self.text(), chance.choice(HUGE_NUMBERS)))
        gap = " " * chance.choice((0, 1, 1, 1, 1800))
        return f"{gap}{name}{gap}{chance.choice(COMPARISONS)}{gap}{value}{gap}"

    def expression(self) -> str:
        """Of a policy."""
        chance = self.chance
        lot = chance.random()
        if lot < 0.25:
            return self.text()
        if lot < 0.5:
            depth = chance.choice((3, 50, 400))
            opening, closing = chance.choice((("(", ")"), ("{", "}"), ("[a=", "]"), ("!", "")))
            return opening * depth + "Host.Memory" + closing * depth
        if lot < 0.6:
            word = chance.choice(("Host.Memory > 1", "Job.i", "1", "Bag.Done", "TARGET.x", '"a"'))
            joint = chance.choice((" && ", " || ", " + ", " ? 1 : ", " == ", " ^ "))
            return joint.join([word] * chance.choice((2, 50, 900)))
        if lot < 0.7:
            pattern = self.text().replace('"', "")[:2000]
            return f'regexp("{pattern}", strcat({", ".join(["Host.Name"] * 20)}))'
        self._classads.names = ("Host", "Job", "Bag", "Pilot", "x")
        return render(self._classads.expression(chance.choice((1, 2, 3))))

    def policy(self) -> dict[str, Any]:
        chance = self.chance
        names = ("requirements", "rank", "concurrency", "deadline", "replication", "tail",
                 "max_replicas", "grid", "preset")  # fmt: skip
        chosen = chance.sample(names, chance.choice((1, 1, 2, 4)))
        found: dict[str, Any] = {name: self.expression() for name in chosen}
        if chance.random() < 0.3:
            found[chance.choice(("only_sites", "avoid_hosts"))] = [self.text()] * chance.choice(
                (1, 50)
            )
        return found

    # -- bags ------------------------------------------------------------------------------

    def axis(self, number: int) -> dict[str, Any]:
        chance = self.chance
        name = f"p{number}" if chance.random() < 0.95 else self.text()
        if chance.random() < 0.5:
            start, step = (
                chance.choice(("0", "1", "0.1", *HUGE_NUMBERS)) if chance.random() < 0.5 else "1"
                for _ in range(2)
            )
            values: dict[str, Any] = {
                "type": "range", "start": start, "step": step,
                "count": chance.choice((2, 3, 10, *COUNTS)),
            }  # fmt: skip
        else:
            items = [
                chance.choice((1, 0.5, "a", self.number(), self.text()[:3000]))
                for _ in range(chance.choice((0, 1, 3, 40)))
            ]
            values = {"type": "values", "items": items}
        return {"type": "axis", "name": name, "values": values}

    def space(self, depth: int = 0) -> dict[str, Any]:
        chance = self.chance
        if depth > 3 or chance.random() < 0.6:
            return self.axis(chance.randrange(1000))
        if chance.random() < 0.2:
            one = self.axis(0)
            for _ in range(chance.choice((5, 60, 150))):
                one = {"type": "product", "parts": [one]}
            return one
        count = chance.choice((0, 1, 2, 3, 300)) if not depth else 2
        parts = [self.axis(n) if count > 3 else self.space(depth + 1) for n in range(count)]
        return {"type": chance.choice(("product", "product", "zip")), "parts": parts}

    def bag(self) -> dict[str, Any]:
        """Mostly good, with something in it that is not."""
        chance = self.chance
        spec: dict[str, Any] = {
            "argv": ["true", "{p0}"],
            "space": self.space() if chance.random() < 0.6 else self._plain_space(),
            "name": "fuzz",
        }
        ways: tuple[Callable[[], None], ...] = (
            lambda: spec.update(policy=self.policy()),
            lambda: spec.update(need=self._need()),
            lambda: spec.update(rules=[self._rule() for _ in range(chance.choice((1, 3, 900)))]),
            lambda: spec.update(outputs=[self.text()[:4000]] * chance.choice((1, 20))),
            lambda: spec.update(optional_outputs=["**/" * chance.choice((1, 20, 300)) + "*"]),
            lambda: spec.update(env={self.text(): self.text()}),
            lambda: spec.update(argv=[self.text() for _ in range(chance.choice((0, 1, 5, 3000)))]),
            lambda: spec.update(labels={self.text(): self.text()}),
            lambda: spec.update(notes=self.text(), name=self.text()),
            lambda: spec.update(inputs=[{"path": self.text(), "url": self.text()}]),
            lambda: spec.update(inputs=[{"path": "a", "blob": {"digest": "a" * 64, "size": 1}}]),
            lambda: spec.update(task_inputs=[{"source": self.text(), "path": self.text()}]),
            lambda: spec.update(rows={"digest": "b" * 64, "form": "csv", "names": ["p0"]}),
            lambda: spec.update(
                {chance.choice(("retries", "grow_memory", "grow_time", "overtimes", "breaker",
                                "output_mb", "setup_seconds", "log_kb")): self.number()}
            ),
            lambda: spec.update(ok_codes=[self.number() for _ in range(5)]),
            lambda: spec.update(check=self.text(), setup=self.text()),
            lambda: spec.update(calls=True, open=True),
            lambda: spec.update(open=True, chdir=self.text()),
            lambda: spec.update({self.text(): self.number()}),
        )  # fmt: skip
        for way in chance.sample(ways, chance.choice((0, 1, 1, 2, 4))):
            way()
        return spec

    def _plain_space(self) -> dict[str, Any]:
        values = {"type": "range", "start": "0", "step": "1", "count": 3}
        return {"type": "axis", "name": "p0", "values": values}

    def _need(self) -> dict[str, Any]:
        names = ("cores", "memory_mb", "disk_mb", "gpus", "limit_seconds")
        return {name: self.number() for name in self.chance.sample(names, 2)}

    def _rule(self) -> dict[str, Any]:
        chance = self.chance
        when = {"name": "p0", "values": [self.number(), self.text()[:100]]}
        if chance.random() < 0.5:
            when = {"name": "p0", "low": self.number(), "high": self.number()}
        return {"when": [when], "need": {"cores": chance.choice((1, 2, self.number()))}}

    # -- pilots ----------------------------------------------------------------------------

    def tags(self) -> dict[str, Any]:
        chance = self.chance
        count = chance.choice((0, 1, 3, 3000))
        return {
            (f"tag{n}" if chance.random() < 0.8 else self.text()): (
                self.text() if count < 10 else "x" * chance.choice((1, 500))
            )
            for n in range(count)
        }
