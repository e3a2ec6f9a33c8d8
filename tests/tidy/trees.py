"""Python files as trees. Many checks look at the same files, so each is read and parsed once."""

import ast
from functools import cache
from pathlib import Path


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def tree(path: Path) -> ast.Module:
    return parsed(text(path))
