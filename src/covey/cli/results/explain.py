"""`covey explain`: why a bag waits, why a task runs where it runs, why a site gets no pilots."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from covey.cli.shared import site_figures
from covey.cli.shared.commands import Command, json_option, print_json, settings
from covey.core.errors import NotFound
from covey.frontend import bag_places, formats
from covey.frontend.terminal import clean_lines, echo

if TYPE_CHECKING:
    from covey.config import Config
    from covey.core.explain.answers import (
        BagAnswer,
        Limit,
        Near,
        Reason,
        Replication,
        Rival,
        RunningAttempt,
    )
    from covey.wire import Explanation, ResultRow, SiteExplanation, WasteView

MOST_ATTEMPTS = 20
MOST_WANTING = 20
MOST_SHARES = 20  # of pilots, over sites or bags, that are shown
SITE = "site"


@click.command(cls=Command)
@click.argument("bag", required=False, default="latest", metavar="[BAG | site]")
@click.argument("of", required=False, metavar="[TASK | NAME]")
@json_option
@click.pass_context
def explain(ctx: click.Context, bag: str, of: str | None, as_json: bool) -> None:
    """Explain why a bag waits (the latest one if none is named). With TASK: why that task waits,
    runs where it runs, or got another attempt. With 'site NAME': why that site gets no pilots, or
    no more. The short answer comes first.

    \b
    covey explain
    covey explain 3
    covey explain 3 17 --json
    covey explain site cluster
    """
    config = settings()
    if bag == SITE:
        if of is None:
            raise click.UsageError("which site? 'covey site list' lists them")
        explain_site(config, of, as_json)
        return
    task = None if of is None else click.IntRange(min=0)(of, None, ctx)
    client = bag_places.running_client(config)
    number = -1 if task is None else task
    seen = bag_places.find_bag(client or bag_places.reader(config), bag)
    if client is not None:
        explanation = client.explain(seen.id, number)
    else:
        from covey.wiring import recount

        recounted = recount(config.directory, seen.id, number)
        if recounted is None:
            raise NotFound(f"there is no bag {seen.id}; 'covey bags' lists them")
        explanation = recounted
    if as_json:
        print_json(explanation)
    else:
        echo(clean_lines(_lines(explanation, task)))


def _lines(explanation: "Explanation", task: int | None) -> Iterator[str]:
    title = f"bag {explanation.bag} {explanation.name}".rstrip()
    if task is not None:
        values = explanation.task.values if explanation.task is not None else {}
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        title += f", task {task}" + (f" ({shown})" if shown else "")
    yield f"{title}: {explanation.summary}"
    facts = [
        *_of_task(explanation),
        *_of_bag(explanation),
        *_waste(explanation.waste, task is None),
    ]
    yield from _table(facts)


def _table(facts: list[tuple[str, str]]) -> Iterator[str]:
    if facts:
        yield ""
    width = max((len(name) for name, _ in facts), default=0)
    before = ""
    for name, fact in facts:
        yield f"{name if name != before else '':<{width}}  {fact}"
        before = name


def _of_bag(explanation: "Explanation") -> Iterator[tuple[str, str]]:
    answer = explanation.answer
    if answer is None:
        return
    if explanation.task is None:
        yield "tasks", _counts(answer)
    for reason in answer.reasons:
        yield "why", _reason(reason)
    if answer.order and answer.waiting > 1:
        yield "order", answer.order
    if answer.waiting and answer.hosts:
        able = f"{answer.able:,} of {answer.hosts:,} connected hosts could run the waiting tasks"
        yield "hosts", able
    for chance in answer.sites:
        can = "can get pilots for this bag" if chance.able else "gets no pilots for this bag"
        yield "sites", f"{chance.site} {can}: {chance.text}"
    if answer.broker is not None and explanation.task is None:
        yield "broker", answer.broker.text
        for share in answer.broker.sites[:MOST_SHARES]:
            yield "broker", f"{_share(share.site, share.pilots)}: {share.text}"
        if len(answer.broker.sites) > MOST_SHARES:
            yield "broker", f"… and {len(answer.broker.sites) - MOST_SHARES:,} sites more (--json)"
    for near in answer.near:
        yield "close", _near(near)
    for rival in answer.first:
        why = f": {rival.why}" if rival.why else ""
        yield "first", f"{_rival(rival)}, on {answer.first_on}{why}"
    if explanation.task is None:
        yield "tail", "it is in its tail" if answer.tail else "it is not in its tail"
        yield from _replicas(answer.replication, answer.replicas)


def _counts(answer: "BagAnswer") -> str:
    parts = [
        f"{answer.done:,} done",
        f"{answer.failed:,} failed",
        f"{answer.running:,} running",
        *([f"{answer.sent:,} sent"] if answer.sent else []),
        f"{answer.waiting:,} waiting",
    ]
    if answer.doubtful:
        parts.append(f"{answer.doubtful:,} being checked after a restart")
    return f"{answer.total:,}: {', '.join(parts)}"


def _reason(reason: "Reason") -> str:
    import time

    named = f" ({', '.join(reason.hosts)})" if reason.hosts and reason.kind != "order" else ""
    left = reason.until - time.time()
    until = f"; that ends in {formats.duration(left)}" if reason.until and left > 0 else ""
    return reason.text + named + until


def _near(near: "Near") -> str:
    values = ", ".join(f"{name} is {value}" for name, value in near.values.items())
    return f"{near.host} lacks {' and '.join(near.missing)}" + (f" ({values})" if values else "")


def _rival(rival: "Rival") -> str:
    name = f" {rival.name}" if rival.name else ""
    rank = f"rank {rival.rank:.6g}, " if rival.rank else ""
    return f"bag {rival.bag}{name} ({rank}{formats.count(rival.waiting, 'task')} to send)"


def _replicas(replication: "Replication", sent: int = 0) -> Iterator[tuple[str, str]]:
    already = f"; {sent:,} sent so far" if sent else ""
    yield "replicas", replication.text + already
    if replication.values:
        values = ", ".join(f"{name} is {value}" for name, value in replication.values.items())
        yield "replicas", f"where it is not true: {values}"


def _of_task(explanation: "Explanation") -> Iterator[tuple[str, str]]:
    task = explanation.task
    sent = [*explanation.attempts, *(task.running if task is not None else ())]
    several = any(attempt.inputs_version > 1 for attempt in sent)
    for attempt in explanation.attempts[-MOST_ATTEMPTS:]:
        yield "ended", _ended(attempt) + _inputs(attempt, several)
    if task is None:
        return
    if task.need is not None:
        yield "needs", formats.need(task.need)
    if task.tries or task.losses:
        yield "before", f"it failed {task.tries:,} and was lost {task.losses:,} times"
    for running in task.running:
        yield "out", _running(running) + _inputs(running, several)
        for rival in running.behind:
            yield "behind it", f"{_rival(rival)}, on {running.host} now"
    if task.replication is not None:
        yield from _replicas(task.replication)


def _running(running: "RunningAttempt") -> str:
    ahead = ", where it waits for a slot" if running.ahead else ""
    parts = [f"attempt {running.attempt} on {running.host} ({running.site}){ahead}"]
    parts.append(f"sent {formats.ago(running.sent)}: {running.text}")
    if running.expired:
        parts.append("its deadline has passed")
    elif running.deadline:
        parts.append(f"its deadline is {formats.clock(running.deadline)}")
    if running.suspected:
        parts.append("its pilot is silent")
    return "; ".join(parts)


def _inputs(attempt: "ResultRow | RunningAttempt", several: bool) -> str:
    """The version of the bag's input files that the attempt got, if there are several."""
    return f", with version {attempt.inputs_version} of the inputs" if several else ""


def _ended(row: "ResultRow") -> str:
    counted = "" if row.counted else ", does not count"
    took = formats.duration(row.wall_seconds)
    return f"attempt {row.attempt} on {row.host}: {formats.explained(row)} after {took}{counted}"


def _waste(waste: "WasteView", whole: bool) -> Iterator[tuple[str, str]]:
    if not whole:
        return
    parts = [
        (
            waste.cancelled,
            waste.cancelled_seconds,
            "stopped because another attempt finished first",
        ),
        (waste.discarded, waste.discarded_seconds, "succeeded too late"),
        (waste.lost, waste.lost_seconds, "lost with their host, or never started there"),
    ]
    texts = [
        f"{formats.count(count, 'attempt')} {words} ({formats.duration(seconds)})"
        for count, seconds, words in parts
        if count
    ]
    yield "waste", "; ".join(texts) or "none so far"


# -- sites -----------------------------------------------------------------------------------------


def explain_site(config: "Config", name: str, as_json: bool) -> None:
    client = bag_places.running_client(config)
    if client is None:
        raise NotFound("no server runs here, so no site gets pilots; 'covey run' starts a server")
    explanation = client.explain_site(name)
    if as_json:
        print_json(explanation)
    else:
        echo(clean_lines(_site_lines(explanation)))


def _site_lines(explanation: "SiteExplanation") -> Iterator[str]:
    yield f"site {explanation.name}: {explanation.summary}"
    answer = explanation.answer
    facts = [("why", _reason(reason)) for reason in answer.reasons]
    many, more = formats.count(answer.pilots, "pilot"), formats.count(answer.slots, "slot")
    facts.append(("pilots", f"{many} with {more}, {answer.busy:,} busy"))
    facts.append(("jobs", formats.site_jobs(answer.running, answer.suspended, answer.waiting)))
    facts += [("known", f"{name}: {value}") for name, value in site_figures.lines(answer.measures)]
    facts += [("limits", _limit(limit)) for limit in answer.limits]
    facts.append(("room", f"for {formats.count(answer.room, 'pilot')} now"))
    for demand in answer.wanting[:MOST_WANTING]:
        bag = f"bag {demand.bag} {demand.name}".rstrip()
        missing = f", {demand.missing:,} of them with no slot expected" if demand.missing else ""
        tasks = formats.count(demand.tasks, "task")
        facts.append(("demand", f"{tasks} of {bag}{missing}: {demand.text}"))
    if len(answer.wanting) > MOST_WANTING:
        facts.append(("demand", f"… and {len(answer.wanting) - MOST_WANTING:,} more (--json)"))
    for bag_share in answer.shares[:MOST_SHARES]:
        whose = f"for bag {bag_share.bag} {bag_share.name}".rstrip()
        when = formats.ago(bag_share.at)
        share = bag_share.share
        words = f"{_share(f'{whose} it', share.pilots)} {when} ({bag_share.algorithm})"
        facts.append(("broker", f"{words}: {share.text}"))
    if len(answer.shares) > MOST_SHARES:
        facts.append(("broker", f"… and {len(answer.shares) - MOST_SHARES:,} more (--json)"))
    yield from _table(facts)


def _share(whose: str, pilots: int) -> str:
    return f"{whose} got {formats.count(pilots, 'pilot') if pilots else 'none'}"


def _limit(limit: "Limit") -> str:
    if limit.key.startswith("all_"):
        used, most = formats.megabytes(limit.used), formats.megabytes(limit.most)
        return f"{limit.key}: {used} of {most}"
    return f"{limit.key}: {limit.used:,} of {limit.most or 'any number'}"
