"""From one good message, many that are nearly good. Everything comes from the generator given."""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

Path = tuple[Any, ...]

NUMBERS: list[Any] = [
    0, -1, 1, 2, 255, 4096, 4097, 2**31 - 1, 2**31, 2**32, 2**32 + 5, 2**53, 2**53 + 1, 2**63 - 1,
    2**63, 2**64, 2**70, -(2**31), -(2**53), -(2**63), -(2**70), 0.5, -0.0, 1e300, -1e300, 1e-300,
]  # fmt: skip
TEXTS = [
    "", "0", "-1", "1e9", "\0", "a\0b", "\ud7ff\ue000", "\U0001f426", "\ufffe", "\u202e",
    "../../etc", "x" * 129, "x" * 300, "y" * 70_000, "ok", "failed", "lost", "returned", "null",
    "'; DROP TABLE",    "{}", '{"a": NaN}', "[[[[", "a" * 64, "A" * 64, "\r\nX: y", "%00", "{i}",
]  # fmt: skip
# What no encoder writes: it stands in the text as it is here.
TOKENS = [
    b"1e400", b"-1e400", b"NaN", b"Infinity", b"01", b"+1", b"1.", b".5", b"0x10", b"1e", b"-",
    b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u0000"', b'"\\x00"', b'"\xff\xfe"', b'"\xed\xa0\x80"',
    b'"unfinished', b"tru", b"nul", b"[" * 600 + b"]" * 600, b'{"a":' * 600 + b"1" + b"}" * 600,
    b"[" * 5000, b"9" * 5000, b"0." + b"3" * 5000, b"", b",", b"[,]", b"{,}", b"// no",
    b"\xef\xbb\xbf1",
]  # fmt: skip
OTHERS: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
    [0] * 50,
    {"a": {"b": []}},
]
BYTES = [b"\0", b"\xff", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"9", b"-", b"e"]
MARK = "\u0001raw%d\u0001"


class Raw(NamedTuple):
    """A piece of text that is put into the message as it is."""

    token: bytes


def encode(message: Any) -> bytes:
    """As JSON; a Raw is put in afterwards."""
    raw: list[bytes] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Raw):
            raw.append(value.token)
            return MARK % (len(raw) - 1)
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
        if isinstance(value, list):
            return [plain(one) for one in value]
        return value

    text = json.dumps(plain(message), separators=(",", ":")).encode("utf-8", "surrogatepass")
    for number, token in enumerate(raw):
        text = text.replace(json.dumps(MARK % number).encode(), token)
    return text


def places(value: Any, at: Path = ()) -> list[Path]:
    """Every place in a message, but for the whole."""
    found: list[Path] = []
    pairs: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        pairs = list(enumerate(value))[:40]
    for key, one in pairs:
        found.append((*at, key))
        found += places(one, (*at, key))
    return found


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list) else value


class Mutator:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._ways: list[Callable[[Any], Any]] = [
            self._change, self._change, self._change, self._nudge, self._nudge, self._drop,
            self._add, self._repeat, self._swap, self._cut_row,
        ]  # fmt: skip

    def message(self, good: Any) -> bytes:
        """A body: mostly JSON with something off, sometimes no JSON at all."""
        lot = self.chance.random()
        if lot < 0.15:
            return self._torn(encode(good))
        if lot < 0.20:
            return self._doubled(encode(good))
        if lot < 0.22:
            return encode(self.value())
        message = copied(good)
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            message = self.chance.choice(self._ways)(message)
        return encode(message)

    def value(self) -> Any:
        lot = self.chance.random()
        if lot < 0.4:
            return self.chance.choice(NUMBERS)
        if lot < 0.65:
            return self.chance.choice(TEXTS)
        if lot < 0.85:
            return Raw(self.chance.choice(TOKENS))
        return copied(self.chance.choice(OTHERS))

    # -- of the message --------------------------------------------------------------------

    def _place(self, message: Any) -> tuple[Any, Any]:
        """Something, and the key in it where something is."""
        found = places(message)
        if not found:
            return [message], 0
        *way, key = self.chance.choice(found)
        for step in way:
            message = message[step]
        return message, key

    def _change(self, message: Any) -> Any:
        holder, key = self._place(message)
        holder[key] = self.value()
        return message

    def _nudge(self, message: Any) -> Any:
        """A number becomes another that is just as good, or just not."""
        holder, key = self._place(message)
        if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = holder[key] + self.chance.choice((-2, -1, 1, 2, 1000))
        return message

    def _drop(self, message: Any) -> Any:
        holder, key = self._place(message)
        del holder[key]
        return message

    def _add(self, message: Any) -> Any:
        holder, key = self._place(message)
        if isinstance(holder, dict):
            holder[self.chance.choice(["", "more", str(key) + "s", "\0", "x" * 5000])] = (
                self.value()
            )
        else:
            holder.insert(key, self.value())
        return message

    def _repeat(self, message: Any) -> Any:
        holder, key = self._place(message)
        if isinstance(holder, list):
            holder += [copied(holder[key])] * self.chance.choice((1, 7, 500))
        return message

    def _swap(self, message: Any) -> Any:
        one, key = self._place(message)
        other, place = self._place(message)
        one[key], other[place] = copied(other[place]), copied(one[key])
        return message

    def _cut_row(self, message: Any) -> Any:
        holder, key = self._place(message)
        if isinstance(holder[key], list) and holder[key]:
            holder[key] = holder[key][: self.chance.randrange(len(holder[key]))]
        return message

    # -- of its bytes ----------------------------------------------------------------------

    def _doubled(self, body: bytes) -> bytes:
        """The same key twice, with another value."""
        fields = [part for part in body[1:-1].split(b",") if b":" in part]
        if not fields:
            return body
        name = self.chance.choice(fields).partition(b":")[0]
        more = name + b":" + encode(self.value())
        if self.chance.random() < 0.5:
            return body[:-1] + b"," + more + b"}"
        return b"{" + more + b"," + body[1:]

    def _torn(self, body: bytes) -> bytes:
        chance, torn = self.chance, bytearray(body)
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(len(torn) + 1)
            match chance.randrange(5):
                case 0:
                    del torn[at:]
                case 1:
                    del torn[at : at + chance.choice((1, 3, 20))]
                case 2:
                    torn[at:at] = chance.choice(BYTES) * chance.choice((1, 1, 100))
                case 3:
                    torn[at : at + 1] = bytes([chance.randrange(256)])
                case _:
                    torn[at:at] = torn[chance.randrange(len(torn) + 1) :][:30]
        return bytes(torn)
