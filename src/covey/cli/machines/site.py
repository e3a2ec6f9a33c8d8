"""`covey site`: list, show, add, change, pause, drain and remove sites."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

from covey.cli.machines.site_trial import test
from covey.cli.shared import site_figures as figures
from covey.cli.shared.commands import FILE_NAME, Command, json_option, print_json, settings
from covey.core.errors import NotFound
from covey.frontend import bag_places, formats
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo, say

if TYPE_CHECKING:
    from covey.config import Config
    from covey.core.explain.answers import ServiceAnswer, WeightsAt
    from covey.wire import DriverView, SiteView

COLUMNS = (
    Column("site"),
    Column("driver"),
    Column("status"),
    Column("pilots", right=True),
    Column("slots", right=True),
    Column("busy", right=True),
    Column("waiting", right=True),
    Column("limit", right=True),
    Column("wait", right=True),
    Column("failed", right=True),
    Column("free cores", right=True),
    Column("from"),
    Column("trouble"),
)
MOST_NAMES = 5  # of sites that a service names and that there are not
WIDTH = 16  # of the names of facts
KEYS_HELP = """Keys are those of [sites.NAME] in covey.toml (covey help configuration). Keys of the
driver and of the environment have a dot: options.partition=short, environment.SGE_ROOT=/opt/sge.
An empty value removes a key."""


@click.group()
def site() -> None:
    """Show, add, test and stop sites: places where covey starts pilots by itself, as many as the
    waiting tasks need. To learn more: covey help sites.

    \b
    covey site list
    covey site add cluster driver=slurm host=login.example.org slots=8 wall=4h
    covey site test cluster
    covey explain site cluster
    """


site.add_command(test)


# -- looking at sites ----------------------------------------------------------------------------


@site.command("list", cls=Command)
@json_option
def list_(as_json: bool) -> None:
    """List the sites, how much of each is used, and what is wrong with it.

    \b
    covey site list
    covey site list --json | jq -r '.[] | select(.trouble != "") | .name'
    """
    config = settings()
    client = bag_places.running_client(config)
    views = client.sites() if client is not None else _of_file(config)
    if as_json:
        print_json(views)
        return
    if views:
        echo(render(COLUMNS, [_row(view) for view in views]))
    else:
        say("no sites: add one in covey.toml ([sites.NAME]), or with: covey site add")
    if client is None:
        say(
            "no server runs here: these are the sites of covey.toml, without those added to a "
            "server"
        )


def _of_file(config: "Config") -> list["SiteView"]:
    from covey.config_sites import local_site
    from covey.wire import SiteView

    here = (
        [local_site(config.local.pilots, config.local_slots, config.local.shared)]
        if config.local.pilots
        else []
    )
    return [
        SiteView(
            name=spec.name,
            driver=spec.driver,
            status="on",
            origin="covey.toml",
            queued_limit=spec.queued,
            running_limit=spec.running,
            price=spec.price,
            users=list(spec.users),
            failover=spec.failover,
            shared=spec.shared,
            spec=spec,
        )
        for spec in (*here, *config.sites)
    ]


def _row(view: "SiteView") -> list[str]:
    return [
        view.name,
        view.driver,
        _status(view),
        str(view.pilots),
        str(view.slots),
        str(view.busy),
        str(view.waiting),
        str(view.running_limit or "any"),
        figures.wait(view.measures),
        figures.share(view.measures.failure_rate),
        figures.cores(view.measures),
        view.origin,
        (view.trouble or _suspended(view)) if view.status == "on" else "",
    ]


def _suspended(view: "SiteView") -> str:
    return f"{formats.count(view.suspended, 'job')} suspended by the site" if view.suspended else ""


def _status(view: "SiteView") -> str:
    if view.status != "on":
        return view.status
    return "rests" if view.rests_until else "trouble" if view.trouble else "on"


@site.command(cls=Command)
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one site: its state, and its settings as they would be written in covey.toml.

    \b
    covey site show cluster
    covey site show cluster --json
    """
    config = settings()
    client = bag_places.running_client(config)
    if client is not None:
        view = client.site(name)
    else:
        views = {site_view.name: site_view for site_view in _of_file(config)}
        if name not in views:
            raise NotFound(f"covey.toml has no site {name}, and no server runs here")
        view = views[name]
    if as_json:
        print_json(view)
    else:
        echo("\n".join(_shown(view)))


@site.command(cls=Command)
@click.argument("name")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many."
)
@json_option
def jobs(name: str, limit: int, as_json: bool) -> None:
    """List the jobs of a site, the newest first, with their pilots, logs and ends; also those that
    are over.

    \b
    covey site jobs cluster
    covey site jobs cluster --json | jq -r '.[] | select(.state == "failed") | .log'
    """
    views = bag_places.client(settings()).site_jobs(name, limit)
    if as_json:
        print_json(views)
    elif views:
        echo(render(figures.JOB_COLUMNS, [figures.job_row(view) for view in views]))
    else:
        say(f"site {name} has had no jobs")


@site.command(cls=Command)
@click.option("--broker", metavar="NAME", help="By this broker.  [default: the server's]")
@click.option("--history", is_flag=True, help="Over the last day, one line for each time.")
@json_option
def weights(broker: str | None, history: bool, as_json: bool) -> None:
    """Show what each site is worth to the broker: the part of the pilots that it gets.

    \b
    covey site weights
    covey site weights --broker measured
    covey site weights --history
    """
    client = bag_places.running_client(settings())
    if client is None:
        raise NotFound("no server runs here: weights are what a server has measured")
    if history:
        _show_past(client.past_weights(), as_json)
        return
    answer = client.site_weights(broker or "")
    if as_json:
        print_json(answer)
        return
    columns = (Column("site"), Column("weight", right=True), Column("measured"), Column("why"))
    rows = [
        [
            share.site,
            f"{share.weight:.4g}",
            formats.ago(share.measured_at) if share.measured_at is not None else "-",
            share.text,
        ]
        for share in answer.sites
    ]
    echo(f"broker: {answer.text}")
    echo(render(columns, rows))
    names = [share.site for share in answer.sites]
    for service in answer.services:
        echo(f"service {service.name}: {_service_words(service, names)}")


def _service_words(service: "ServiceAnswer", sites: list[str]) -> str:
    given = "no weights yet"
    if service.given_at is not None:
        many = formats.count(len(service.weights), "site")
        given = f"weights of {many}, from {service.source}, {formats.ago(service.given_at)}"
    if unknown := [name for name in service.weights if name not in sites]:
        given += f"; there is no site {formats.some(unknown[:MOST_NAMES], len(unknown))}"
    if service.problem:
        return f"{given}; {service.fallback} is used instead: {service.problem}"
    if service.failure:
        given += f"; these are still used, but {service.failure}"
    return given


def _show_past(past: list["WeightsAt"], as_json: bool) -> None:
    if as_json:
        print_json(past)
        return
    names = list(dict.fromkeys(name for then in past for name in then.weights))
    columns = (Column("time"), *(Column(name, right=True) for name in names))
    rows = [
        [formats.clock(then.at), *(_weight(then.weights.get(name)) for name in names)]
        for then in past
    ]
    echo(render(columns, rows))


def _weight(weight: float | None) -> str:
    return "" if weight is None else f"{weight:.4g}"


@site.command(cls=Command)
@click.argument("name", required=False)
@json_option
def drivers(name: str | None, as_json: bool) -> None:
    """List the drivers (kinds of sites) that are installed here; with a NAME, its options.

    \b
    covey site drivers
    covey site drivers slurm
    """
    from covey.cli.server.settings import spell
    from covey.wiring import drivers as installed

    views = [view for view in installed() if name in (None, view.name)]
    if name is not None and not views:
        raise NotFound(f"there is no driver {name}; 'covey site drivers' lists them")
    if as_json:
        print_json(views if name is None else views[0])
    elif name is None:
        columns = (Column("driver"), Column("from"), Column("options"))
        echo(render(columns, [[view.name, view.package, _driver_options(view)] for view in views]))
    else:
        columns = (Column("option"), Column("default"), Column("meaning"))
        rows = [[option.name, spell(option.default), option.text] for option in views[0].options]
        echo(render(columns, rows) if rows else _driver_options(views[0]))


def _driver_options(view: "DriverView") -> str:
    if view.problem:
        return f"cannot be used: {view.problem}"
    return ", ".join(option.name for option in view.options) or "none"


def _shown(view: "SiteView") -> Iterator[str]:
    from covey.cli.shared.site_words import written
    from covey.config_sites import LOCAL, table_of

    facts = [
        ("site", f"{view.name} ({view.driver}), from {view.origin}"),
        ("status", _status(view) + (f": {view.trouble}" if view.trouble else "")),
        (
            "pilots",
            f"{view.pilots:,} with {formats.count(view.slots, 'slot')}, {view.busy:,} of them busy",
        ),
        ("jobs", formats.site_jobs(view.running, view.suspended, view.waiting)),
        ("users", ", ".join(view.users) or "everybody"),
    ]
    facts += figures.lines(view.measures)
    if view.price:
        facts.append(("price", f"{view.price:g} per slot and hour"))
    if view.failover:
        facts.append(("for", "tasks that failed elsewhere"))
    for name, fact in facts:
        yield f"{name:<{WIDTH}}{fact}"
    if view.spec is not None and view.name != LOCAL:
        yield ""
        yield from written(view.name, table_of(view.spec))


# -- changing sites ------------------------------------------------------------------------------

words_argument = click.argument("words", nargs=-1, metavar="[KEY=VALUE]…")
file_option = click.option(
    "--file",
    metavar="FILE",
    type=FILE_NAME,
    help="The whole site, from a TOML file; KEY=VALUE override it.",
)


@site.command(cls=Command, short_help="Add a site to a server.", epilog=KEYS_HELP)
@click.argument("name")
@words_argument
@file_option
@json_option
def add(name: str, words: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Add a site to the running server (a server is started if necessary). The site is kept when
    the server restarts. No pilots are started there until tasks wait; to try it: covey site test.

    \b
    covey site add cluster driver=slurm host=login.example.org slots=8 options.partition=short
    covey site add lab driver=ssh options.hosts='["n1", "n2"]' slots=4
    covey site add cluster --file cluster.toml
    """
    from covey.cli.shared.site_words import changed, from_file

    if file is None and not words:
        raise click.UsageError(
            "what kind of site is it? Give KEY=VALUE, such as driver=slurm, or --file FILE"
        )
    table = changed({} if file is None else from_file(file, name), words)
    client = bag_places.client(settings())
    for view in client.sites():
        if view.name == name and view.status != "removed":
            raise click.ClickException(f"there is a site {name}{_where_to_change(view)}")
    client.save_site(name, table)
    if as_json:
        print_json(client.site(name))
    else:
        say(f"site {name} is added; try it: covey site test {name}")


def _where_to_change(view: "SiteView") -> str:
    if view.origin == "added":
        return f"; change it with: covey site edit {view.name}"
    return ", which is in covey.toml: change it there"


@site.command(cls=Command, short_help="Change a site that was added.", epilog=KEYS_HELP)
@click.argument("name")
@words_argument
@file_option
@json_option
def edit(name: str, words: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Change a site that was added to the server. To change a site of covey.toml, edit that file.
    Pilots that are already at the site keep their old settings.

    \b
    covey site edit cluster wall=8h options.partition=long
    covey site edit cluster users=ann,bob memory=
    """
    from covey.cli.shared.site_words import changed, from_file, written
    from covey.config_sites import table_of

    if file is None and not words:
        raise click.UsageError("what should change? Give KEY=VALUE, or --file FILE")
    client = bag_places.client(settings())
    spec = client.site(name).spec
    if spec is None:
        raise click.ClickException("only admins can see and change the settings of a site")
    before = table_of(spec)
    client.save_site(name, changed(before if file is None else from_file(file, name), words))
    view = client.site(name)
    if as_json:
        print_json(view)
        return
    after = written(name, table_of(view.spec) if view.spec is not None else {})
    old = written(name, before)
    changes = [f"- {line}" for line in old if line not in after]
    changes += [f"+ {line}" for line in after if line not in old]
    echo("\n".join([f"site {name}:" + " nothing changed" * (not changes), *changes]))


names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


def _set(names: tuple[str, ...], word: Literal["pause", "resume", "drain"], as_json: bool) -> bool:
    """Pause, resume or drain sites. Returns whether to print a sentence for a person."""
    client = bag_places.client(settings())
    count = sum(client.set_site(name, word) for name in names)
    if as_json:
        print_json({"count": count})
    return not as_json


@site.command(cls=Command)
@names_argument
@json_option
def pause(names: tuple[str, ...], as_json: bool) -> None:
    """Start no new pilots at these sites. Pilots that run or wait there stay.

    \b
    covey site pause cluster
    """
    if _set(names, "pause", as_json):
        say(f"paused: {', '.join(names)}; go on with: covey site resume {' '.join(names)}")


@site.command(cls=Command)
@names_argument
@json_option
def resume(names: tuple[str, ...], as_json: bool) -> None:
    """Start pilots again at sites that are paused or drained. A site that rests after failures is
    used again at once.

    \b
    covey site resume cluster
    """
    if _set(names, "resume", as_json):
        say(f"resumed: {', '.join(names)}")


@site.command(cls=Command)
@names_argument
@json_option
def drain(names: tuple[str, ...], as_json: bool) -> None:
    """Cancel the pilots that wait at these sites. Running pilots end when their tasks have ended.

    \b
    covey site drain cluster
    """
    if _set(names, "drain", as_json):
        say(f"drained: {', '.join(names)}; 'covey site list' shows what is left there")


@site.command(cls=Command)
@names_argument
@json_option
def remove(names: tuple[str, ...], as_json: bool) -> None:
    """Remove sites that were added. They are drained first: pilots that wait there are cancelled,
    and running pilots end when their tasks have ended.

    \b
    covey site remove cluster
    """
    client = bag_places.client(settings())
    count = sum(client.remove_site(name) for name in names)
    if as_json:
        print_json({"count": count})
    else:
        left = sum(view.name in names for view in client.sites())
        more = f"; pilots are still ending at {formats.count(left, 'site')}" if left else ""
        say(f"removed: {', '.join(names)}{more}")
