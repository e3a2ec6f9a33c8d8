"""Makes a found difference small: cuts the trees as long as the difference stays."""

from collections.abc import Callable, Iterator

from tests.classad_reference.trees import Question, Tree, leaf, size

SIMPLE = tuple(leaf(word) for word in ("1", "0", '""', '"a"', "true", "undefined", "{}", "[]"))
TRIES = 400


def shrink(question: Question, differs: Callable[[Question], bool], tries: int = TRIES) -> Question:
    """The smallest question found that still differs; `differs` is asked at most `tries` times."""
    left = tries
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in sorted(_smaller(question), key=size):
            if size(candidate) >= size(question):
                break
            left -= 1
            if differs(candidate):
                question, progress = candidate, True
                break
            if left <= 0:
                break
    return question


def _smaller(question: Question) -> Iterator[Question]:
    if question.target is not None:
        yield question._replace(target=None)
        for tree in _cuts(question.target):
            if tree.kind == "ad":
                yield question._replace(target=tree)
    yield question._replace(ad=Tree("ad"))
    for tree in _cuts(question.ad):
        if tree.kind == "ad":
            yield question._replace(ad=tree)
    for tree in _cuts(question.expression):
        yield question._replace(expression=tree)


def _cuts(tree: Tree) -> Iterator[Tree]:
    """The tree with one thing less, at any depth."""
    yield from tree.children
    if tree.kind not in ("leaf", "name"):
        yield from SIMPLE
    elif tree.kind == "leaf" and len(tree.word) > 1:
        yield from SIMPLE
        if tree.word.startswith('"'):
            yield from (leaf(f'"{cut}"') for cut in _shorter(tree.word[1:-1]))
        else:
            yield from (leaf(cut) for cut in _shorter(tree.word))
    if tree.kind in ("list", "call", "ad"):
        for place in range(len(tree.children)):
            yield tree._replace(
                children=tree.children[:place] + tree.children[place + 1 :],
                names=tree.names[:place] + tree.names[place + 1 :],
            )
    for place, child in enumerate(tree.children):
        for cut in _cuts(child):
            yield tree._replace(
                children=tree.children[:place] + (cut,) + tree.children[place + 1 :]
            )


def _shorter(text: str) -> Iterator[str]:
    yield text[: len(text) // 2]
    yield text[len(text) // 2 :]
    for place in range(len(text)):
        yield text[:place] + text[place + 1 :]
