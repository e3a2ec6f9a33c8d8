"""The options of all calls of one bag, and how they are read: values that make no sense are refused
at once, by the rules of a bag file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from covey.core.record.model import PolicySpec

if TYPE_CHECKING:
    from covey.bagfile.format.kinds import Kind
    from covey.bagfile.format.sheet import Sheet

MOST_MB = 900 << 20


class Options(NamedTuple):
    cores: int = 1
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0
    limit_seconds: float = 0.0
    retries: int = 0
    idempotent: bool = True
    env: tuple[tuple[str, str], ...] = ()
    policy: PolicySpec = PolicySpec()


DEFAULT = Options()


def changed(options: Options, keywords: Mapping[str, Any]) -> Options:
    """None stands for the default. Raises TypeError for an unknown option, InvalidBag for a bad
    value."""
    unknown = keywords.keys() - set(Options._fields)
    if unknown:
        raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
    defaults = {name: getattr(DEFAULT, name) for name in keywords}
    chosen = {
        name: value
        for name, value in keywords.items()
        if value is not None and value != defaults[name]
    }
    return options._replace(**{**defaults, **(_read(chosen) if chosen else {})})


def _read(chosen: Mapping[str, Any]) -> dict[str, Any]:
    # Most executors have no options, and need none of these imports.
    from covey.bagfile.format.kinds import AmountOf, Flag, read_at
    from covey.bagfile.format.policy import PolicyOf
    from covey.bagfile.format.sheet import Sheet
    from covey.core.record.model import BAG_RANGES
    from covey.core.record.task_needs import RESOURCES
    from covey.core.values.amounts import Whole
    from covey.python.keywords import plain

    kinds: dict[str, Kind] = {
        "cores": AmountOf(RESOURCES["cores"].amount),
        "memory_mb": AmountOf(Whole(0, MOST_MB)),
        "disk_mb": AmountOf(Whole(0, MOST_MB)),
        "gpus": AmountOf(RESOURCES["gpus"].amount),
        "limit_seconds": AmountOf(RESOURCES["time"].amount),
        "retries": AmountOf(Whole(*BAG_RANGES["retries"])),
        "idempotent": Flag(),
        "policy": PolicyOf(),
    }
    sheet = Sheet("Executor()")
    values = {
        name: read_at(kinds[name], sheet, (name,), plain(value))
        for name, value in chosen.items()
        if name in kinds
    }
    if "env" in chosen:
        values["env"] = _environment(sheet, plain(chosen["env"]))
    sheet.settle()
    return values


def _environment(sheet: "Sheet", env: Any) -> tuple[tuple[str, str], ...]:
    from covey.bagfile.format.kinds import Printable, read_at, variable_problem

    if not isinstance(env, dict):
        sheet.complain(("env",), f"expected a dictionary of names and values, not {env!r:.60}")
        return ()
    for name in env:
        if problem := variable_problem(name):
            sheet.complain(("env", name), problem)
    return tuple(
        (name, read_at(Printable(), sheet, ("env", name), env[name])) for name in sorted(env)
    )
