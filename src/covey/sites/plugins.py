"""Finds the drivers of sites, covey's own and other packages', by entry points of one group.

A plugin that cannot be loaded is listed with its error; all others still work. If another package
has a driver with the name of covey's own, covey's is used: no package can replace it.
"""

import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, structs, to_builtins
from msgspec.structs import replace

from covey.core.errors import BadConfig, CoveyError
from covey.core.record.model import SiteSpec
from covey.sites.command_driver import CommandDriver
from covey.sites.driver import Driver
from covey.wire import OptionView

GROUP = "covey.sites"
OURS = "covey"

COMMAND_FACTS = {"most_elements": int, "index": str, "environment": Mapping}


class Plugin(NamedTuple):
    """`driver` is None if it cannot be used; `problem` says why. `package` contains it."""

    name: str
    package: str
    driver: Driver | None
    problem: str = ""


def find(points: Iterable[EntryPoint] | None = None) -> dict[str, Plugin]:
    """All installed drivers, by name."""
    found: dict[str, Plugin] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        package = point.dist.name if point.dist else OURS
        plugin = _loaded(point, package)
        if point.name not in found or package == OURS:
            found[point.name] = plugin
    return dict(sorted(found.items()))


def driver_of(spec: SiteSpec, plugins: Mapping[str, Plugin]) -> Driver:
    """The driver of a site. Raises BadConfig."""
    plugin = plugins.get(spec.driver)
    if plugin is None:
        close = get_close_matches(spec.driver, plugins, 1)
        guess = f"; did you mean {close[0]!r}?" if close else ""
        raise BadConfig(
            f"site {spec.name}: there is no driver {spec.driver!r}{guess} "
            f"(drivers: {', '.join(plugins) or 'none'})"
        )
    if plugin.driver is None:
        raise BadConfig(
            f"site {spec.name}: driver {spec.driver!r} of {plugin.package} cannot be used: "
            f"{plugin.problem}"
        )
    return plugin.driver


def described(spec: SiteSpec, plugins: Mapping[str, Plugin]) -> SiteSpec:
    """The site with the facts that its driver derives from its options. Raises BadConfig."""
    driver = driver_of(spec, plugins)
    try:
        return replace(spec, facts=driver.facts(spec))
    except CoveyError:
        raise
    except Exception as error:  # a bug of the driver
        words = f"{type(error).__name__}: {error}"
        raise BadConfig(f"site {spec.name}: driver {spec.driver!r} failed: {words}") from error


def options_help(driver: Driver) -> list[OptionView]:
    """The options of a site with this driver."""
    hints = get_type_hints(driver.options, include_extras=True)
    found = []
    for field in structs.fields(driver.options):
        default = "" if field.required else field.default
        if default is NODEFAULT:
            default = field.default_factory()
        text = _description(hints[field.name])
        found.append(OptionView(name=field.name, default=to_builtins(default), text=text))
    return found


def _loaded(point: EntryPoint, package: str) -> Plugin:
    """This runs code of other packages, so any exception may come out of it."""
    try:
        driver = point.load()()
        problem = _wrong(point.name, driver)
    except (Exception, SystemExit) as error:
        return Plugin(point.name, package, None, f"{type(error).__name__}: {error}"[:300])
    return Plugin(point.name, package, None if problem else driver, problem)


def _wrong(name: str, driver: object) -> str:
    commands = isinstance(driver, CommandDriver)
    for fact, kind in {"name": str, **(COMMAND_FACTS if commands else {})}.items():
        if not isinstance(getattr(driver, fact, None), kind):
            return f"its {fact!r} is not of type {kind.__name__}"
    if getattr(driver, "name", "") != name:
        return f"its entry point is {name!r}, but its own name is {getattr(driver, 'name', '')!r}"
    for method, promised in vars(CommandDriver if commands else Driver).items():
        if method.startswith("_") or not inspect.isfunction(promised):
            continue
        function = getattr(driver, method, None)
        if not callable(function):
            return f"it has no method {method!r}"
        arguments = len(inspect.signature(promised).parameters) - 1
        try:
            inspect.signature(function).bind(*range(arguments))
        except TypeError:
            return f"its method {method!r} does not take {arguments} argument(s)"
    options = getattr(driver, "options", None)
    if not (isinstance(options, type) and issubclass(options, Struct)):
        return "its 'options' are not a msgspec.Struct"
    for option, hint in get_type_hints(options, include_extras=True).items():
        if not _description(hint):
            return f"its option {option!r} has no description (msgspec.Meta)"
    return ""


def _description(kind: object) -> str:
    if get_origin(kind) is not Annotated:
        return ""
    return next((m.description or "" for m in get_args(kind)[1:] if isinstance(m, Meta)), "")
