"""From a sheet to a bag that lacks only its files.

All complaints about a sheet are collected, then shown together. The files of the inputs are looked
up later (`gather`).
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from covey.bagfile.draft.rowsfile import read_names
from covey.bagfile.draft.template import (
    Tell,
    check_placeholders,
    name_list,
    seems_meant,
    tell_unused,
    unescaped,
)
from covey.bagfile.format.keys import BAG
from covey.bagfile.format.kinds import Filled, read_at
from covey.bagfile.format.lines import KeyPath
from covey.bagfile.format.parts import Environment, RowsFile, RuleOf, Wanted
from covey.bagfile.format.policy import check_policy
from covey.bagfile.format.sheet import Sheet, suggest
from covey.core.bags.bag_check import pattern_problem
from covey.core.errors import InvalidBag
from covey.core.record.model import BagSpec, Need, Rule, Segment
from covey.core.record.task_needs import RESOURCES, deciding_names
from covey.core.values.placeholders import names_of
from covey.core.values.space import Axis, Product, Space, Zip, check, is_text, names, size
from covey.pilot.protocol.placeholders import NAME, NUMBERS, PLACEHOLDER

SCRIPT = ".covey-script"  # hidden, so that the output pattern * does not return it

# Variables that a program needs so that it is found, and behaves as it does here.
CAPTURED = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LANG",
    "LC_ALL",
    "OMP_NUM_THREADS",
)
EVERYTHING = "*"  # in environment.inherit
OWN_VARIABLES = "COVEY_"
ABOUT_THE_SHELL = ("_", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "HOSTNAME", "LS_COLORS", "PS1")
_SECRET = re.compile(
    r"(?i)TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE|COOKIE|"
    r"(?:^|_)(?:KEY|AUTH|PASS|PWD|PAT)$|_(?:AUTH|PASS)_"
)
_GLOB = re.compile(r"([*?\[\]]+)")
_SHELL = re.compile(r"#!.*/(?:env +)?(?:ba|da|k|z)?sh\b")


class Taken(Struct, frozen=True):
    """How many tasks, out of `total`, are submitted. `more`: there are more than `total`; the rest
    was not counted."""

    tasks: int
    total: int
    more: bool = False

    @property
    def words(self) -> str:
        """3 of 1,000 tasks"""
        return f"{self.tasks:,} of {self.all_words}"

    @property
    def all_words(self) -> str:
        tasks = "task" if self.total == 1 else "tasks"
        return f"{'more than ' if self.more else ''}{self.total:,} {tasks}"


class Draft(NamedTuple):
    """`spec` has no files yet. Its command is still as it was written."""

    sheet: Sheet
    spec: BagSpec
    names: tuple[str, ...]  # of all parameters: those of the rows, then the others
    rows: RowsFile | None
    inputs: tuple[Wanted, ...]
    script: str
    here: str  # what paths in the command are relative to
    taken: Taken | None = None  # if only some tasks are submitted (`selection`)


def read_draft(sheet: Sheet, environ: Mapping[str, str], tell: Tell, retries: int = 0) -> Draft:
    """Raises InvalidBag with everything that is wrong. `retries`: if the sheet does not say."""
    found = read_at(BAG, sheet, (), sheet.tree)
    space, rows, parameters = _parameters(sheet, found)
    spec = BagSpec(
        **BAG.fields_in(found),
        argv=_argv(sheet, found, parameters),
        space=space,
        env=_environment(sheet, found.get("environment"), environ, tell),
        export=_export(found),
        chdir=_chdir(sheet, found),
        outputs=_outputs(sheet, found, "outputs", parameters),
        optional_outputs=_outputs(sheet, found, "optional_outputs", parameters),
        **_resources(sheet, found.get("resources", {}), parameters),
        retries=_retries(found, retries, tell),
        **_validation(sheet, found.get("validate", {}), parameters),
    )
    if sheet.faultless:
        check_policy(sheet, spec)
    sheet.settle()
    if "command" in found and not spec.export:
        unused = _unused(spec, found.get("inputs", ()), parameters, names(space))
        tell_unused(unused, tell)
    here = sheet.origin(("command",)).base if "command" in found else sheet.base
    script = _script(found.get("script", ""), parameters, tell)
    return Draft(sheet, spec, parameters, rows, found.get("inputs", ()), script, here)


def read_segment(sheet: Sheet) -> tuple[Segment, RowsFile | None]:
    """The parameters alone, to be appended to a bag. Raises InvalidBag."""
    found = read_at(BAG, sheet, (), sheet.tree)
    space, rows, _ = _parameters(sheet, found)
    sheet.settle()
    return Segment(space=space), rows


def _parameters(
    sheet: Sheet, found: dict[str, Any]
) -> tuple[Space, RowsFile | None, tuple[str, ...]]:
    axes = {name: Axis(name, values) for name, values in found.get("parameters", {}).items()}
    parts: list[Space] = []
    grouped: set[str] = set()
    leaders: dict[str, tuple[str, ...]] = {}
    for index, group in enumerate(found.get("zip", ())):
        missing = [name for name in group if name not in axes]
        for name in missing:
            if name not in _named(sheet):
                hint = suggest(name, axes)
                sheet.complain(("zip", index), f"there is no parameter {name}{hint}")
        if not missing:
            leaders[min(group, key=list(axes).index)] = group
            grouped.update(group)
    for name, axis in axes.items():
        if name in leaders:
            parts.append(Zip(tuple(axes[member] for member in leaders[name])))
        elif name not in grouped:
            parts.append(axis)
    space = parts[0] if len(parts) == 1 and isinstance(parts[0], Zip) else Product(tuple(parts))
    may_be_empty = found.get("open", False)
    for name, axis in axes.items():
        if not size(axis) and not may_be_empty:
            text = "the list is empty; only an open bag may begin without tasks"
            sheet.complain(("parameters", name), text)
            return _with_rows(sheet, found, space)
    try:
        check(space, may_be_empty=may_be_empty)
    except InvalidBag as error:
        sheet.complain(("zip",) if "zip" in sheet.tree else ("parameters",), str(error))
    return _with_rows(sheet, found, space)


def _named(sheet: Sheet) -> list[str]:
    """All names of parameters, also of those whose values are wrong: these have a complaint."""
    table = sheet.tree.get("parameters")
    return list(table) if isinstance(table, dict) else []


def _with_rows(
    sheet: Sheet, found: dict[str, Any], space: Space
) -> tuple[Space, RowsFile | None, tuple[str, ...]]:
    rows: RowsFile | None = found.get("rows")
    own = tuple(dict.fromkeys((*names(space), *_named(sheet))))
    if rows is None:
        return space, None, own
    try:
        columns = read_names(rows)
    except InvalidBag as error:
        sheet.complain(("rows",), str(error))
        return space, rows, own
    for name in columns:
        if name in own:
            sheet.complain(("parameters", name), f"{rows.written} has a column {name} too")
    return space, rows, (*columns, *own)


def _argv(sheet: Sheet, found: dict[str, Any], parameters: tuple[str, ...]) -> tuple[str, ...]:
    given = [name for name in ("command", "script") if name in sheet.tree]
    if not given:
        _complain_of_no_command(sheet)
    if len(given) == 2:
        sheet.complain(("script",), "there is also a command; write only one of the two")
    if "args" in sheet.tree and given == ["command"]:
        sheet.complain(("args",), "args are for a script; put them into the command")
    if "script" in given:
        argv = (f"./{SCRIPT}", *found.get("args", ()))
        at: KeyPath = ("args",)
    else:
        argv, at = found.get("command", ("?",)), ("command",)
        if not argv or not argv[0]:
            sheet.complain(at, "the command is empty")
            return ("?",)
    if sheet.faultless:  # else the names may be incomplete
        try:
            check_placeholders(argv, parameters)
        except InvalidBag as error:
            sheet.complain(at, str(error))
    return tuple(unescaped(word, parameters) for word in argv)


def _complain_of_no_command(sheet: Sheet) -> None:
    """In TOML, a table goes on until the next one begins."""
    for table, inner in sheet.tree.items():
        for name in ("command", "script"):
            if isinstance(inner, dict) and name in inner:
                text = f"this line belongs to the table [{table}]; write it above all tables"
                sheet.complain((table, name), text)
                return
    sheet.complain((), "there is no command: write command = '…' or script = '''…'''")


def _unused(
    spec: BagSpec, inputs: Sequence[Wanted], parameters: Sequence[str], own: Sequence[str]
) -> list[str]:
    """Parameters that make no difference. A table often has columns that a bag does not need. So
    they are listed only if all are unused, or if the command has a word that is like the name."""
    paths = [text for wanted in inputs for text in (wanted.source, wanted.url, wanted.to)]
    used = set(names_of(*spec.argv, *spec.outputs, *spec.optional_outputs, *paths))
    used |= deciding_names(spec)
    policy = set(re.findall(r"\w+", str(spec.policy).lower()))  # Job.seed, in any case
    unused = [name for name in parameters if name not in used and name.lower() not in policy]
    columns = [name for name in parameters if name not in own]
    all_unused = all(name in unused for name in columns)
    return [name for name in unused if name in own or all_unused or seems_meant(spec.argv, name)]


def _script(text: str, parameters: tuple[str, ...], tell: Tell) -> str:
    if not text:
        return ""
    script = script_text(text)
    if _SHELL.match(script):
        for name in re.findall(rf"(?<!\$)\{{({NAME})\}}", script):
            if name in parameters:
                tell(f"note: the script has {{{name}}}; in a script, write ${name} for the value")
    return script


def script_text(text: str) -> str:
    """A script as it is sent: with a first line that says what runs it, and a last line end."""
    script = text if text.startswith("#!") else "#!/bin/sh\n" + text
    return script if script.endswith("\n") else script + "\n"


def _export(found: dict[str, Any]) -> bool:
    """Scripts and checks always get the parameters as variables: they have no other way to them."""
    validate = found.get("validate", {})
    implied = "script" in found or "check" in validate or "files" in validate
    return bool(found.get("export", implied))


def _environment(
    sheet: Sheet, asked: Environment | None, environ: Mapping[str, str], tell: Tell
) -> dict[str, str]:
    present = {name: environ[name] for name in CAPTURED if name in environ}
    captured = {name: value for name, value in present.items() if is_text(value)}
    if asked is None:
        return captured
    for index, name in enumerate(asked.inherit):
        at = ("environment", "inherit", index)
        if name == EVERYTHING:
            captured.update(_everything(environ, tell))
        elif name.startswith(OWN_VARIABLES):
            sheet.complain(at, f"{name} is not passed on: covey sets COVEY_… itself for each task")
        elif name in environ:
            captured[name] = environ[name]
            if not is_text(environ[name]):
                sheet.complain(at, f"{name} is not text in UTF-8")
        elif not sheet.origin(at).option:
            sheet.complain(at, f"{name} is not set here; write {name} = 'VALUE'")
        else:
            sheet.complain(at, f"it is not set here; write --env {name}=VALUE")
    return {**captured, **asked.values}


def _everything(environ: Mapping[str, str], tell: Tell) -> dict[str, str]:
    """All variables that can be passed on. Those that look like secrets are left out: the record
    keeps the environment of a bag, and every host that runs its tasks sees it."""
    variables = {
        name: value
        for name, value in environ.items()
        if name.isascii()
        and name.isidentifier()
        and is_text(value)
        and name not in ABOUT_THE_SHELL
        and not name.startswith(OWN_VARIABLES)
    }
    secret = sorted(name for name in variables if _SECRET.search(name))
    if secret:
        listed = name_list(secret)
        tell(f"note: not passed on, as they look like secrets: {listed}; pass one on: --env NAME")
    return {name: value for name, value in variables.items() if name not in secret}


def _chdir(sheet: Sheet, found: dict[str, Any]) -> str:
    if "chdir" not in found:
        return ""
    origin = sheet.origin(("chdir",))
    path = os.path.abspath(os.path.join(origin.base, os.path.expanduser(found["chdir"])))
    if not os.path.isdir(path):
        sheet.complain(("chdir",), f"there is no such directory: {found['chdir']}")
    for name in ("inputs", "script", "outputs", "optional_outputs"):
        if found.get(name):
            reason = "needs a directory for each task, and with chdir there is none"
            sheet.complain(("chdir",), f"'{name}' {reason}: leave out one of the two")
    return path


def _outputs(
    sheet: Sheet, found: dict[str, Any], name: str, parameters: tuple[str, ...]
) -> tuple[str, ...]:
    for index, pattern in enumerate(found.get(name, ())):
        if _check_pattern(sheet, (name, index), pattern, parameters):
            problem = pattern_problem(pattern, parameters)
            if problem:
                sheet.complain((name, index), problem)
    return tuple(found.get(name, ()))


def _check_pattern(sheet: Sheet, path: KeyPath, pattern: str, parameters: tuple[str, ...]) -> bool:
    """Whether a pattern for files that the task makes stays in its directory; else complains."""
    inside = not (pattern.startswith(("/", "~")) or ".." in pattern.split("/"))
    if not inside:
        sheet.complain(path, f"{pattern} is not in the task's directory; write it relative to that")
    return check_names(sheet, path, pattern, [*parameters, *NUMBERS]) and inside


def check_names(sheet: Sheet, path: KeyPath, text: str, known: list[str]) -> bool:
    """Whether all {NAME}s in a path are known; complains of each that is not."""
    unknown = [name for name in names_of(text) if name not in known]
    for name in unknown:
        hint = suggest(name, known, f"; there are {', '.join(known)}" if known else "")
        sheet.complain(path, f"{text}: there is no parameter {name}{hint}")
    return not unknown


def _resources(sheet: Sheet, found: dict[str, Any], parameters: tuple[str, ...]) -> dict[str, Any]:
    need = msgspec.structs.replace(Need(), **_needs(found))
    need_from = _needs_from(sheet, ("resources",), found, parameters)
    rules: list[Rule] = []
    conditional: tuple[RuleOf, ...] = found.get("when", ())
    for rule in conditional:
        for condition in rule.when:
            if condition.name not in parameters:
                hint = suggest(condition.name, [*parameters, *RESOURCES])
                text = f"there is no parameter and no resource of this name{hint}"
                sheet.complain((*rule.at, condition.name), text)
        changed = msgspec.structs.replace(need, **_needs(rule.changes))
        kept = {name: text for name, text in need_from.items() if name not in rule.changes}
        own = _needs_from(sheet, rule.at, rule.changes, parameters)
        rules.append(Rule(when=rule.when, need=changed, need_from={**kept, **own}))
    return {
        "need": need,
        "need_from": need_from,
        "rules": tuple(rules),
    }


def _needs(found: dict[str, Any]) -> dict[str, Any]:
    """Resources that are equal for all tasks. Those that depend on the task keep their default."""
    return {
        field: getattr(Need(), field) if isinstance(found[name], Filled) else found[name]
        for name, (field, _) in RESOURCES.items()
        if name in found
    }


def _needs_from(
    sheet: Sheet, at: KeyPath, found: dict[str, Any], parameters: tuple[str, ...]
) -> dict[str, str]:
    """Resources that depend on the task: texts with {NAME}s, by resource."""
    filled = {name: found[name].text for name in RESOURCES if isinstance(found.get(name), Filled)}
    if sheet.faultless:  # else the names may be incomplete
        for name, text in filled.items():
            check_names(sheet, (*at, name), text, list(parameters))
    return filled


def _retries(found: dict[str, Any], default: int, tell: Tell) -> int:
    asked: dict[str, Any] = found.get("retries", {})
    count: int = asked.get("count", default)
    resources: dict[str, Any] = found.get("resources", {})
    limited = {name for rule in resources.get("when", ()) for name in rule.changes} | set(resources)
    if "memory" in asked and ("memory" not in limited or count == 0):
        tell("note: retries with more memory need resources.memory, and a retries.count above 0")
    if "time" in asked and "time" not in limited:
        tell("note: retries with more time need resources.time, which is not set")
    return count


def _validation(sheet: Sheet, found: dict[str, Any], parameters: tuple[str, ...]) -> dict[str, Any]:
    lines: list[str] = []
    for index, pattern in enumerate(found.get("files", ())):
        at = ("validate", "files", index)
        _check_pattern(sheet, at, pattern, parameters)
        if "**" in pattern:
            sheet.complain(at, f"{pattern}: ** is not supported here; write the folders' names")
        quoted = _quoted(pattern)
        message = shlex.quote(f"covey: there is no file {pattern}")
        lines.append(f'set -- {quoted}; [ -e "$1" ] || {{ echo {message} >&2; exit 1; }}')
    check = found.get("check", "")
    for name in names_of(check):
        if name in parameters and f"${{{name}}}" not in check:
            sheet.complain(("validate", "check"), f"write ${name} for the value, not {{{name}}}")
    return {
        "ok_codes": tuple(found.get("exit", ())) or (0,),
        "check": "\n".join([*lines, check] if check else lines),
    }


def _quoted(pattern: str) -> str:
    """A pattern for the shell: all but its wildcards and {NAME}s is quoted."""
    variables = {"task": "COVEY_TASK", "bag": "COVEY_BAG"}
    quoted = ""
    for index, text in enumerate(PLACEHOLDER.split(pattern)):
        if index % 2:
            quoted += f'"${{{variables.get(text, text)}}}"'
        else:
            parts = _GLOB.split(text)
            quoted += "".join(
                p if i % 2 else shlex.quote(p) if p else "" for i, p in enumerate(parts)
            )
    return quoted
