"""A pytest plugin: tests in random order, `-p tests.shuffled --shuffle SEED`.

Modules are shuffled, and so are the tests inside each of them. A module's tests stay together:
they share what is costly to start. The seed is printed, and brings the same order back.
"""

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in this random order")


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--shuffle")
    return f"shuffled: --shuffle {seed}" if seed else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed:
        items[:] = shuffled(items, random.Random(seed))


def shuffled(items: list[pytest.Item], chance: random.Random) -> list[pytest.Item]:
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    names = list(modules)
    chance.shuffle(names)
    for tests in modules.values():
        chance.shuffle(tests)
    return [item for name in names for item in modules[name]]
