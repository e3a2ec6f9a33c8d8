"""`make fuzz`: a million random questions to both engines.

    python -m tests.classad_reference.fuzz                     a million, another seed every day
    python -m tests.classad_reference.fuzz --count 20000 --seed 7

The same seed asks the same questions. Differences are made small and printed; the exit status is 1
if there was one that no deviation in deviations.py explains. Memory does not grow with the count.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from tests.classad_reference import ours
from tests.classad_reference.deviations import explanation
from tests.classad_reference.generator import Generator
from tests.classad_reference.judge import Answer, Judge, Texts
from tests.classad_reference.shapes import Shape, same, show
from tests.classad_reference.shrinking import shrink
from tests.classad_reference.signatures import CHANCE
from tests.classad_reference.trees import Question, all_parts, render, uses

BATCH = 250
TELL_SECONDS = 10.0
SHOWN = 20  # differences, before a run is given up
# Another seed every day; FUZZ_SEED brings one back.
SEED = int(os.environ.get("FUZZ_SEED", datetime.now(UTC).date().toordinal()))


class Difference(NamedTuple):
    question: Question
    ours: Shape
    theirs: Shape

    def gist(self) -> str:
        """The same for what is most likely the same, whatever the attribute is called."""
        parts = [self.question.expression, *self.question.ad.children]
        parts += self.question.target.children if self.question.target is not None else ()
        return " ".join(sorted(text for text in map(render, parts) if len(text) > 1))

    def __str__(self) -> str:
        text, ad, target = self.question.texts()
        where = f"  in {ad}" + (f" against {target}" if target is not None else "")
        return f"{text}\n{where}\n  ours   {show(self.ours)}\n  theirs {show(self.theirs)}"


class Fuzzer:
    """`judge` answers one thing at a time; batches are answered elsewhere, meanwhile."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked = 0
        self.began = self.told = time.monotonic()
        self.deaths: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.explained: Counter[str] = Counter()
        self.differences: list[Difference] = []

    def batch(self, questions: list[Question], answers: list[Answer | None]) -> None:
        for question, answer in zip(questions, answers, strict=True):
            self.asked += 1
            self.used.update(set(uses(question)))
            if answer is None:
                self.results["(the reference died)"] += 1
                continue
            self.results[answer[0][0]] += 1
            if answer[0][0] == "failed" and "failed to evaluate" not in answer[0][1]:
                self.explained["(beyond Python's calendar: not compared)"] += 1
            elif by_chance(question):
                self.explained["(chance: not compared)"] += 1
            elif compare(question, *answer) is not None:
                self._look_again(question)

    def tell(self, count: int) -> None:
        """How far it is, now and then."""
        now = time.monotonic()
        if now - self.told > TELL_SECONDS:
            self.told = now
            rate = self.asked / (now - self.began)
            found = f", {len(self.differences)} unexplained" if self.differences else ""
            print(f"{self.asked:,} of {count:,}, {rate:,.0f}/s{found}", file=sys.stderr, flush=True)

    def _look_again(self, question: Question) -> None:
        """Alone, in case a second passed; then the smallest that differs in a way unexplained."""
        found = self.difference(question)
        if found is None:
            self.explained["(not seen again)"] += 1
            return
        name = explanation(*found, self._ask)
        if name is not None:
            self.explained[name] += 1
            return
        if len(self.differences) < SHOWN:
            smallest = shrink(question, self._differs)
            found = self.difference(smallest) or found
            if found.gist() not in {one.gist() for one in self.differences}:
                self.differences.append(found)

    def difference(self, question: Question) -> Difference | None:
        (answer,) = self.judge.answers([question.texts()])
        return None if answer is None else compare(question, *answer)

    def _differs(self, question: Question) -> bool:
        found = self.difference(question)
        return found is not None and explanation(*found, self._ask) is None

    def _ask(self, texts: Texts) -> Answer | None:
        (answer,) = self.judge.answers([texts])
        return answer


def compare(question: Question, theirs: Shape, now: float) -> Difference | None:
    texts = question.texts()
    inexact = any(
        tree.kind == "call" and tree.word.lower() == "pow" for tree in all_parts(question)
    )
    general = ours.answer(texts, now)
    fast = ours.answer(texts, now, fast=True)
    if not same(general, fast):
        return Difference(question, ["two paths", show(general), show(fast)], theirs)
    if general != ["unparsable"] and any(child.kind == "ad" for child in question.ad.children):
        alone, together = ours.beside(question, now)
        if alone != together:
            return Difference(question, ["two paths", alone, together], theirs)
    return None if same(general, theirs, inexact) else Difference(question, general, theirs)


def by_chance(question: Question) -> bool:
    text = " ".join(filter(None, question.texts())).lower()
    return any(f"{name}(" in text for name in CHANCE)


def run(count: int, seed: int, progress: bool = False) -> Fuzzer:
    """Until all is asked, or enough differs, or somebody interrupts."""
    generator = Generator(random.Random(seed))
    with Judge() as judge, Judge() as ahead:
        fuzzer = Fuzzer(judge)
        try:
            for questions, answers in _answered(generator, ahead, count):
                fuzzer.batch(questions, answers)
                if progress:
                    fuzzer.tell(count)
                if len(fuzzer.differences) >= SHOWN:
                    break
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
        fuzzer.deaths.update(ahead.deaths)
    return fuzzer


def _answered(
    generator: Generator, ahead: Judge, count: int
) -> Iterator[tuple[list[Question], list[Answer | None]]]:
    """Batches with their answers; while one is looked at, the judge thinks about the next."""
    coming: list[Question] = []
    while count or coming:
        questions = coming
        answers = ahead.finish([q.texts() for q in questions]) if questions else []
        coming = [generator.question() for _ in range(min(BATCH, count))]
        count -= len(coming)
        if coming:
            ahead.begin([question.texts() for question in coming])
        yield questions, answers


def report(fuzzer: Fuzzer, seed: int) -> str:
    lines = [f"seed {seed}: {fuzzer.asked:,} questions"]
    for title, counts in (
        ("asked with", fuzzer.used),
        ("results of the reference", fuzzer.results),
        ("deaths of the reference", fuzzer.deaths),
        ("explained", fuzzer.explained),
    ):
        pairs = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        lines.append(f"{title}: " + (", ".join(f"{name} {n:,}" for name, n in pairs) or "none"))
    lines.append(f"unexplained: {len(fuzzer.differences)}")
    return "\n".join([*lines, *map(str, fuzzer.differences)])


def _interrupted(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="Ask both ClassAd engines the same.")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupted)
    fuzzer = run(given.count, given.seed, progress=True)
    print(report(fuzzer, given.seed))
    return 1 if fuzzer.differences else 0


if __name__ == "__main__":
    sys.exit(main())
