"""The message and the exit status of a command that fails."""

import os
import sys
import traceback

import click

from covey.cli.shared.commands import ReaderLeft
from covey.cli.shared.usage_words import usage_words
from covey.core.errors import BadConfig, CoveyError, InvalidBag, InvalidQuery, Refused
from covey.frontend.terminal import echo

FAILURE = 1
MISUSE = 2
BAD_REQUEST = 400


def explain(error: BaseException, verbose: bool) -> int:
    """Print the error on stderr and return the exit status."""
    if isinstance(error, ReaderLeft):
        return _reader_left()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILURE
    if verbose:
        echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        echo(f"covey: {error.format_message()}", err=True)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        echo("covey: interrupted", err=True)
        return FAILURE
    echo(f"covey: {_words(error, verbose)}", err=True)
    return MISUSE if _is_misuse(error) else FAILURE


def _is_misuse(error: BaseException) -> bool:
    """Whether the request itself was wrong, as covey noticed here or the server did."""
    if isinstance(error, Refused):
        return error.status == BAD_REQUEST
    return isinstance(error, BadConfig | InvalidBag | InvalidQuery)


def _usage(error: click.UsageError) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        echo(error.format_message(), err=True)  # the message is the help text
        return MISUSE
    echo(f"covey: {usage_words(error)}", err=True)
    if error.ctx is not None:
        echo(f"covey: for help: {error.ctx.command_path} --help", err=True)
    return MISUSE


def _words(error: BaseException, verbose: bool) -> str:
    if isinstance(error, CoveyError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    hint = "" if verbose else "; run it again with --verbose to see where"
    return f"this is a bug in covey: {type(error).__name__}: {error}{hint}"


def _reader_left() -> int:
    """As in `covey results | head`. This is not a failure. Python must not print an error about
    the closed pipe when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
