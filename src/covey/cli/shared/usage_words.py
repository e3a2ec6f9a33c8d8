"""Messages about a wrong command line, in covey's words instead of click's."""

from difflib import get_close_matches

import click


def usage_words(error: click.UsageError) -> str:
    """One sentence: what is wrong and, if that is known, what would be right."""
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error)
    if isinstance(error, click.MissingParameter):
        return f"{_name(error.param)} is missing"
    if isinstance(error, click.BadOptionUsage):
        if "requires" in error.message:
            return f"{error.option_name} needs a value"
        if "does not take a value" in error.message:
            return f"{error.option_name} takes no value"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name(error.param)}: {_bad_value(error, error.param)}"
    if error.message.startswith("Got unexpected extra argument"):
        words = error.message.partition("(")[2].rpartition(")")[0]
        return f"more words than this command takes: {words}"
    return error.format_message()


def _no_such_option(error: click.NoSuchOption) -> str:
    options: list[str] = []
    if error.ctx is not None:
        params = error.ctx.command.get_params(error.ctx)
        shown = [param for param in params if not getattr(param, "hidden", False)]
        options = [name for param in shown for name in param.opts if name.startswith("--")]
    return f"there is no option {error.option_name}{_hint(error.option_name, options)}"


def _hint(written: str, options: list[str]) -> str:
    """The option that was probably meant: `written` may be another word for it, a key of policies,
    or misspelled."""
    from covey.bagfile.format.sheet import MEANT
    from covey.core.match.policies import EXPRESSIONS

    name = written.strip("-").replace("-", "_").lower()
    key = MEANT.get(name, name)
    option = "--" + key.replace("_", "-")
    if option not in options and key in EXPRESSIONS and "--policy" in options:
        return f"; write: --policy '{key}=…'"
    close = [option] if option in options else get_close_matches(written, options, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _bad_value(error: click.BadParameter, param: click.Parameter) -> str:
    value = error.message.partition(" is not ")[0]  # click's message begins with the quoted value
    kind = param.type
    if not value.startswith("'"):
        return error.message
    if isinstance(kind, click.Choice):
        return f"expected one of {', '.join(map(str, kind.choices))}; not {value}"
    if isinstance(kind, click.types.IntParamType):  # also an IntRange
        least = getattr(kind, "min", None)
        from_ = "" if least is None else f" from {least}"
        return f"expected a whole number{from_}, not {value}"
    if isinstance(kind, click.types.FloatParamType):
        return f"expected a number, not {value}"
    return error.message


def _name(param: click.Parameter | None) -> str:
    """The name of the option or argument, as a person writes it."""
    if param is None:
        return "a word"
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return (param.metavar or param.name or "a word").strip("[]").upper()
