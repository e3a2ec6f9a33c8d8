"""`covey policy`: show, check and change the policy of a bag."""

from typing import TYPE_CHECKING

import click

from covey.cli.shared.commands import (
    FILE_NAME,
    PRESET_NAME,
    Command,
    bag_argument,
    json_option,
    leave,
    print_json,
    settings,
)
from covey.client.client import Client
from covey.core.errors import NotFound
from covey.frontend import bag_places
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo, say

if TYPE_CHECKING:
    from covey.core.explain.answers import Listed, PolicyFault, PolicyReport, ShownPolicy
    from covey.core.record.model import PolicySpec

ORIGINS = {"owner": "as its owner wrote it", "default": "the default"}
FATAL = ("syntax", "invalid")  # such a policy is refused


@click.group()
def policy() -> None:
    """Show, check and change the policy of a bag: where its tasks run, in which order, and whether
    late tasks get another attempt. To learn more: covey help policies.

    \b
    covey policy attributes
    covey policy show 3
    covey policy set 3 preset=fast-tail requirements='Host.Memory > 8000'
    covey policy check 3
    """


@policy.command(cls=Command, short_help="List the attributes that expressions can use.")
@json_option
def attributes(as_json: bool) -> None:
    """List every attribute that expressions can use, with its meaning and its present value for a
    host or a bag that the server knows.

    \b
    covey policy attributes
    covey policy attributes --json | jq -r '.[] | select(.role == "Host") | .name'
    """
    client = bag_places.running_client(settings())
    if client is None:
        from covey.core.explain.catalogue import attributes_of

        listing = attributes_of(None, 0.0, None)
    else:
        listing = client.attributes()
    if as_json:
        print_json(listing)
        return
    columns = (Column("attribute"), Column("now"), Column("meaning"))
    rows = [[f"{listed.role}.{listed.name}", listed.example, listed.text] for listed in listing]
    echo(render(columns, rows))
    _say_examples(listing, client is None)


def _say_examples(attributes: list["Listed"], alone: bool) -> None:
    of = {
        attribute.role: attribute.of
        for attribute in attributes
        if attribute.of and attribute.role in ("Host", "Job")
    }
    if alone:
        say("values, and the tags of hosts, are shown while a server runs here")
        return
    if "Host" not in of:
        say(
            "no host is connected, so attributes of hosts have no values; start a pilot: covey "
            "pilot-command"
        )
    examples = ", ".join(of.values())
    if examples:
        say(f"values are those of {examples}; a Job has its parameters, too: Job.alpha")


# -- the policy of one bag -----------------------------------------------------------------------


@policy.command(cls=Command, short_help="Show the policy of a bag, or a preset.")
@bag_argument
@click.option(
    "--preset",
    metavar="NAME",
    type=PRESET_NAME,
    help="Show this preset instead of a bag's policy.",
)
@json_option
def show(bag: str, preset: str | None, as_json: bool) -> None:
    """Show the policy of a bag (the latest one if none is named): its expressions, and where each
    comes from.

    \b
    covey policy show
    covey policy show 3 --json
    covey policy show --preset reliable-tail
    """
    from covey.core.explain import catalogue
    from covey.core.record.model import PolicySpec

    if preset is not None:
        shown = catalogue.view(PolicySpec(preset=preset))
        title = "preset"
    else:
        source = bag_places.reader(settings())
        view = bag_places.find_bag(source, bag)
        shown = _view(source, view.id)
        title = f"bag {view.id} {view.name}".rstrip() + ": preset"
    if as_json:
        print_json(shown)
    else:
        echo("\n".join(_shown(title, shown)))


def _view(source: bag_places.BagSource, bag: int) -> "ShownPolicy":
    from covey.core.explain import catalogue
    from covey.core.explain.answers import ShownPolicy

    policy = source.policy(bag)
    if policy is None:
        raise NotFound(f"there is no bag {bag}; 'covey bags' lists them")
    return policy if isinstance(policy, ShownPolicy) else catalogue.view(policy, bag)


def _shown(title: str, view: "ShownPolicy") -> list[str]:
    from covey.core.match.policies import KEYS

    lines = [f"{title} {view.preset}", f"  {view.description}"]
    for expression in view.expressions:
        origins = ", and ".join(_origin(text) for text in expression.origins)
        lines += [
            "",
            f"{KEYS[expression.name]} ({origins})",
            *(f"  {line}" for line in expression.text.splitlines()),
        ]
    sticks = "a bag in its tail stays there" if view.sticky_tail else "a tail may end again"
    lines += ["", f"sticky_tail: {'true' if view.sticky_tail else 'false'} ({sticks})"]
    if view.policy.failover_sites:
        sites = ", ".join(view.policy.failover_sites)
        lines.append(f"failover_sites: {sites} (for tasks that failed elsewhere)")
    keys = {KEYS[expression.name] for expression in view.expressions}
    unset = {
        "requirements": "any host may run its tasks",
        "rank": "older bags come first",
        "concurrency": "each pilot decides how many tasks are sent ahead",
        "deadline": "an attempt may take any time while its pilot is in contact",
    }
    lines += [f"{name}: not set, so {text}" for name, text in unset.items() if name not in keys]
    return lines


def _origin(text: str) -> str:
    kind, _, name = text.partition(" ")
    if kind == "key":
        return f"from the key {name}"
    return f"from the preset {name}" if kind == "preset" else ORIGINS[kind]


@policy.command(cls=Command)
@json_option
def presets(as_json: bool) -> None:
    """List the presets: policies that have a name.

    \b
    covey policy presets
    covey policy show --preset fast-tail
    """
    from covey.core.explain import catalogue
    from covey.core.match.policies import DEFAULT_PRESET, PRESETS
    from covey.core.record.model import PolicySpec

    if as_json:
        print_json([catalogue.view(PolicySpec(preset=name)) for name in PRESETS])
        return
    rows = [
        [name + " (default)" * (name == DEFAULT_PRESET), preset.text]
        for name, preset in PRESETS.items()
    ]
    echo(render((Column("preset"), Column("what it is for")), rows))


# -- changing ------------------------------------------------------------------------------------

words_argument = click.argument("words", nargs=-1, metavar="[BAG] [KEY=VALUE]…")
file_option = click.option(
    "--file",
    metavar="FILE",
    type=FILE_NAME,
    help="The whole policy, from a TOML file; KEY=VALUE override it.",
)


@policy.command("set", cls=Command, short_help="Change the policy of a bag.")
@words_argument
@file_option
@json_option
def set_(words: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Change the policy of an unfinished bag (the latest one if none is named). Tasks that pilots
    already have stay where they are.

    Keys: preset, requirements, rank, concurrency, deadline, replication, tail, sticky_tail,
    max_replicas, grid, only_sites, avoid_sites, only_hosts, avoid_hosts, failover_sites. Items of
    a list are separated by commas. An empty value removes a key. Names of attributes are keys,
    too: Rank=….

    \b
    covey policy set 3 preset=fast-tail
    covey policy set 3 requirements='Host.Memory > 8000 && Host.ErrorRate < 0.1' deadline=30m
    covey policy set avoid_hosts=n17,n18 rank=
    covey policy set 3 --file policy.toml
    """
    from covey.cli.shared.policy_words import changed, from_file, split

    named, pairs = split(words)
    if file is None and not pairs:
        raise click.UsageError("what should change? Give KEY=VALUE, or --file FILE")
    read = None if file is None else from_file(file)
    config = settings()
    bag = bag_places.find_bag(bag_places.reader(config), named or "latest")
    if bag.over:
        raise click.ClickException(
            f"bag {bag.id} is {bag.status}: its policy has no effect any more"
        )
    client = bag_places.client(config)
    before = _view(client, bag.id)
    after = changed(before.policy if read is None else read, pairs)
    report = client.check_policy(after, bag.id)
    if any(fault.kind in FATAL for fault in report.faults):
        _tell(report, as_json)
        leave(1)
    client.set_policy(bag.id, after)
    now = _view(client, bag.id)
    if as_json:
        print_json({"bag": bag.id, "before": before, "after": now, "check": report})
        return
    changes = _changes(before, now)
    echo("\n".join([f"bag {bag.id}:" + " nothing changed" * (not changes), *changes]))
    if report.faults:
        say("this policy is set, but it has problems:")
        for line in _fault_lines(report):
            echo(line, err=True)


def _changes(before: "ShownPolicy", after: "ShownPolicy") -> list[str]:
    from covey.core.match.policies import KEYS

    old = {KEYS[expression.name]: expression.text for expression in before.expressions}
    new = {KEYS[expression.name]: expression.text for expression in after.expressions}
    for view, texts in ((before, old), (after, new)):
        texts["sticky_tail"] = "true" if view.sticky_tail else "false"
        texts["failover_sites"] = ", ".join(view.policy.failover_sites)
    lines = []
    for name in dict.fromkeys([*new, *old]):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            lines += [f"  {name}", f"    - {was or 'nothing'}", f"    + {now or 'nothing'}"]
    return lines


# -- checking ------------------------------------------------------------------------------------


@policy.command(cls=Command, short_help="Look for mistakes, and for hosts that meet the policy.")
@words_argument
@file_option
@json_option
def check(words: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Look for mistakes in a bag's policy, in a file, or in KEY=VALUE (with a BAG: as if it were
    set for that bag). Nothing changes.

    Finds syntax errors, unknown attributes, expressions that are an error on some host, and
    requirements that no host meets, with the part that is to blame. The exit status is 1 if
    anything is wrong. Without a server only the text is checked, not the hosts.

    \b
    covey policy check 3
    covey policy check requirements='Host.cpu_mhz > 2500 && Host.ErorRate < 0.1'
    covey policy check 3 rank='Host.NumCpus'
    covey policy check --file policy.toml
    """
    from covey.cli.shared.policy_words import from_file, split

    named, pairs = split(words)
    read = None if file is None else from_file(file)
    client = bag_places.running_client(settings())
    if read is None and (named is not None or not pairs):
        report = _check_bag(client, named or "latest", pairs)
    else:
        report = _check_words(client, named, read, pairs)
    _tell(report, as_json)
    leave(1 if report.faults else 0)


def _check_bag(client: Client | None, reference: str, pairs: list[str]) -> "PolicyReport":
    from covey.cli.shared.policy_words import changed
    from covey.core.explain.policy_check import examine
    from covey.core.explain.steps import finish

    source = client or bag_places.reader(settings())
    bag = bag_places.find_bag(source, reference)
    policy = changed(_view(source, bag.id).policy, pairs)
    if client is None:
        return finish(examine(None, 0.0, policy))
    return client.check_policy(policy, bag.id)


def _check_words(
    client: Client | None, named: str | None, read: "PolicySpec | None", pairs: list[str]
) -> "PolicyReport":
    from covey.cli.shared.policy_words import changed
    from covey.core.explain.policy_check import examine
    from covey.core.explain.steps import finish
    from covey.core.record.model import PolicySpec

    policy = changed(read or PolicySpec(), pairs)
    if client is None:
        return finish(examine(None, 0.0, policy))
    bag = None if named is None else bag_places.find_bag(client, named).id
    return client.check_policy(policy, bag)


def _tell(report: "PolicyReport", as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    for line in _fault_lines(report):
        echo(line)
    for note in report.notes:
        say(note)
    if not report.faults:
        hosts = ""
        if report.hosts:
            hosts = f"; {report.meeting:,} of {report.hosts:,} hosts meet its requirements"
        say(f"no {'other ' * bool(report.notes)}mistakes found{hosts}")


def _fault_lines(report: "PolicyReport") -> list[str]:
    lines = [_fault(fault) for fault in report.faults]
    if any(fault.kind == "never" for fault in report.faults) and report.parts:
        rows = [[f"{part.hosts:,} of {report.hosts:,}", part.text] for part in report.parts]
        lines.append(render((Column("hosts", right=True), Column("where this holds")), rows))
        for group in report.apart:
            if len(group) > 1:
                lines.append(f"never true together: {'  and  '.join(group)}")
    return lines


def _fault(fault: "PolicyFault") -> str:
    from covey.cli.shared.classad_findings import Finding
    from covey.core.match.policies import KEYS

    name = KEYS.get(fault.name, fault.name)
    if not fault.line:
        return f"{name}: {fault.message}"
    finding = Finding(fault.line, fault.column, fault.message, tuple(fault.near))
    return f"{name}: {finding.show(fault.text)}"
