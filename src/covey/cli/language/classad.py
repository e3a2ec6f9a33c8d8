"""`covey classad`: try, check and format ClassAd expressions, the language of policies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from covey.cli.shared.commands import FILE_NAME, Command, json_option, leave, print_json
from covey.cli.shared.standard_input import read_text
from covey.frontend import terminal
from covey.frontend.terminal import echo, say

if TYPE_CHECKING:
    from covey.classad import Ad, Context


class NotUnderstood(click.UsageError):
    """The text is not a ClassAd. The message has a caret below the mistake."""

    def __init__(self, where: str, problem: Exception) -> None:
        super().__init__(f"{where}: {problem}")


@click.group()
def classad() -> None:
    """Try, check and format policy expressions (to learn more: covey help classad).

    \b
    covey classad eval '2 * NumCpus' --set NumCpus=8
    covey classad check --file policy.ad
    covey classad fmt policy.ad
    """


ad_option = click.option(
    "--ad",
    "ad_file",
    metavar="FILE",
    type=FILE_NAME,
    help="File with the ad of EXPRESSION; - reads standard input.",
)
target_option = click.option(
    "--target",
    "target_file",
    metavar="FILE",
    type=FILE_NAME,
    help="File with the other ad, called TARGET.",
)


@classad.command("eval", cls=Command)
@click.argument("expression")
@ad_option
@target_option
@click.option(
    "--set",
    "assigned",
    multiple=True,
    metavar="NAME=EXPR",
    help="Add an attribute to the ad; repeatable.",
)
@click.option("--explain", is_flag=True, help="Also show each attribute that was read.")
@json_option
def evaluate(
    expression: str,
    ad_file: str | None,
    target_file: str | None,
    assigned: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Print the value of EXPRESSION.

    The exit status is 1 if the value is error.

    \b
    covey classad eval '1 + 2 * 3'
    covey classad eval 'ErrorRate < 0.1 && NumCpus >= 4' --ad host.ad
    covey classad eval 'TARGET.Memory > Need' --set Need=2048 --target host.ad
    """
    from covey.classad import ERROR, parse, unparse
    from covey.classad.values import kind
    from covey.cli.shared.classad_findings import asked_for, findings

    ad = _ad(ad_file)
    for assignment in assigned:
        _assign(ad, assignment)
    target = None if target_file is None else _ad(target_file)
    try:
        parsed = parse(expression)
    except ValueError as problem:
        raise NotUnderstood("EXPRESSION", problem) from None
    context = _context()
    value = parsed.evaluate(ad, target, context)
    used = asked_for(parsed, ad, target, _context) if explain or as_json else []
    if as_json:
        answer: dict[str, Any] = {"value": _json(value), "type": kind(value)}
        answer["used"] = {name: _json(part) for name, part in used}
        if context.reason:
            answer["reason"] = context.reason
        print_json(answer)
    else:
        echo(unparse(value))
        for name, part in used if explain else ():
            echo(f"  {name} = {unparse(part)}")
    if value is ERROR:
        if not as_json:
            reasons = [finding.show(expression) for finding in findings(expression, False, [])]
            for reason in reasons or filter(None, [context.reason]):
                say(reason)
        leave(1)


@classad.command(cls=Command, short_help="Look for mistakes, without evaluating.")
@click.argument("expression", required=False)
@click.option(
    "--file",
    metavar="FILE",
    type=FILE_NAME,
    help="Check the whole ad in this file; - reads standard input.",
)
@ad_option
@target_option
@json_option
def check(
    expression: str | None,
    file: str | None,
    ad_file: str | None,
    target_file: str | None,
    as_json: bool,
) -> None:
    """Look for mistakes in EXPRESSION, or in an ad, without evaluating it.

    Finds syntax errors, unknown functions, wrong numbers of arguments, patterns that are refused
    and, if ads are given, names that are in none of them. The exit status is 1 if it finds a
    mistake.

    \b
    covey classad check 'regexp(Name, "^is[0-9]") && ErorRate < 0.1' --ad host.ad
    covey classad check --file policy.ad
    """
    from covey.cli.shared.classad_findings import findings

    if (expression is None) == (file is None):
        raise click.UsageError("give an EXPRESSION, or an ad with --file")
    ads = [_ad(name) for name in (ad_file, target_file) if name is not None]
    text = expression if expression is not None else read_text(str(file))
    mistakes = findings(text, file is not None, ads)
    if as_json:
        print_json([mistake._asdict() for mistake in mistakes])
    else:
        for mistake in mistakes:
            echo(mistake.show(text))
        if not mistakes:
            say("no mistakes found")
    leave(1 if mistakes else 0)


@classad.command(cls=Command, short_help="Format ads.")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=FILE_NAME)
@click.option(
    "-e", "--expression", metavar="EXPR", help="Format this expression instead of a file."
)
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Change nothing; exit with 1 if a file would change.",
)
@json_option
def fmt(files: tuple[str, ...], expression: str | None, only_check: bool, as_json: bool) -> None:
    """Format ads: one attribute per line, with spaces around operators.

    Files are changed in place; - reads standard input and prints the result. Comments would be
    lost, so a file that has comments is not changed.

    \b
    covey classad fmt -e 'a<1&&b'
    covey classad fmt policy.ad
    covey classad fmt --check *.ad
    """
    from covey.classad import parse, unparse

    if expression is not None:
        if files:
            raise click.UsageError("give an expression or files, not both")
        try:
            after = unparse(parse(expression))
        except ValueError as problem:
            raise NotUnderstood("EXPR", problem) from None
        if as_json:
            print_json({"formatted": after, "changed": after != expression})
        elif not only_check:
            echo(after)
        leave(1 if only_check and after != expression else 0)
    if not files:
        raise click.UsageError("give files, or an expression with -e")
    changed = [name for name in files if _format(name, only_check)]
    if as_json:
        print_json({"changed": changed})
    elif only_check:
        for name in changed:
            echo(name)
    leave(1 if only_check and changed else 0)


def _json(value: Any) -> Any:
    """The value as JSON, in HTCondor's form."""
    import msgspec

    from covey.classad import to_json

    return msgspec.Raw(to_json(value).encode())


def _format(name: str, only_check: bool) -> bool:
    """Format the file. Returns whether its text changes."""
    from covey.cli.shared.classad_findings import has_comments, laid_out

    text = read_text(name)
    try:
        after = laid_out(text)
    except ValueError as problem:
        raise NotUnderstood(name, problem) from None
    if has_comments(text) and after != text:
        raise click.ClickException(f"{name}: it has comments, which would be lost")
    if name == "-":
        if not only_check:
            terminal.echo_file(after)
    elif after != text and not only_check:
        Path(name).write_text(after, encoding="utf-8")
    return after != text


def _ad(name: str | None) -> "Ad":
    from covey.classad import Ad, parse_ad

    if name is None:
        return Ad()
    try:
        return parse_ad(read_text(name))
    except ValueError as problem:
        raise NotUnderstood(name, problem) from None


def _assign(ad: "Ad", assignment: str) -> None:
    from covey.classad import parse

    name, equals, text = assignment.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"--set {assignment}: write NAME=EXPR")
    try:
        ad[name.strip()] = parse(text)
    except ValueError as problem:
        raise NotUnderstood(f"--set {name.strip()}", problem) from None


def _context() -> "Context":
    """A context with the present time and random numbers."""
    import random
    import time

    from covey.classad import Context

    now = time.time()
    return Context(now=now, random=random.random, zone=time.localtime(now).tm_gmtoff)
