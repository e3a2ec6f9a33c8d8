"""`covey cancel`, `pause`, `resume` and `retry`: commands that change a bag after submission."""

import re
from typing import TYPE_CHECKING

import click

from covey.cli.shared.commands import (
    Command,
    bag_argument,
    bags_argument,
    json_option,
    leave,
    print_json,
    settings,
)
from covey.frontend import bag_places, formats
from covey.frontend.amounts import More, read_memory, read_time
from covey.frontend.terminal import echo, say
from covey.wire import BagView

if TYPE_CHECKING:
    from covey.frontend.input_changes import RetryFiles

MOST_NAMED = 100_000  # tasks on one command line
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")


@click.command(cls=Command)
@bags_argument
@json_option
def cancel(bags: tuple[str, ...], as_json: bool) -> None:
    """Stop bags for good: the latest one if none is named. Their results stay.

    \b
    covey cancel
    covey cancel 3 4 sweep-a
    """
    config = settings()
    answers = []
    for view in bag_places.find_bags(bag_places.reader(config), bags):
        count = 0 if view.over else bag_places.client(config).cancel(view.id)
        answers.append({"bag": view.id, "count": count})
        if as_json:
            continue
        if view.over:
            say(f"bag {view.id} is {view.status} already; nothing to cancel")
        else:
            echo(f"bag {view.id} cancelled: {formats.count(count, 'task')} stopped or not run")
    if as_json:
        print_json(one_or_all(bags, answers))


@click.command(cls=Command)
@bags_argument
@click.option("--reason", default="", metavar="TEXT", help="The reason, shown with the bag.")
@json_option
def pause(bags: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Start no more tasks of these bags for now. Tasks that are running may finish.

    \b
    covey pause
    covey pause 3 4 --reason 'the licence server is down'
    """
    config = settings()
    answers = []
    for view in bag_places.find_bags(bag_places.reader(config), bags):
        if view.status == "running":
            bag_places.client(config).pause(view.id, reason)
        answers.append({"bag": view.id, "paused": not view.over})
        if as_json:
            continue
        if view.over:
            say(f"bag {view.id} is {view.status} already; nothing to pause")
        elif view.status == "paused":
            say(f"bag {view.id} is paused already; go on with: covey resume {view.id}")
        else:
            echo(f"bag {view.id} paused; go on with: covey resume {view.id}")
    if as_json:
        print_json(one_or_all(bags, answers))


@click.command(cls=Command)
@bags_argument
@click.option("--watch", is_flag=True, help="Follow the bag afterwards; one bag only.")
@json_option
def resume(bags: tuple[str, ...], watch: bool, as_json: bool) -> None:
    """Continue bags that are paused.

    \b
    covey resume
    covey resume 3 --watch
    """
    if watch and len(bags) > 1:
        raise click.UsageError("--watch can follow only one bag: name one")
    config = settings()
    answers = []
    for view in bag_places.find_bags(bag_places.reader(config), bags):
        paused = view.status == "paused"
        if paused:
            bag_places.client(config).resume(view.id)
        answers.append({"bag": view.id, "resumed": paused})
        if as_json:
            continue
        if paused:
            echo(f"bag {view.id} goes on")
        else:
            say(f"bag {view.id} is not paused but {view.status}; nothing to resume")
    if as_json and not (watch and answers[0]["resumed"]):
        print_json(one_or_all(bags, answers))
    if watch and answers[0]["resumed"]:
        from covey.cli.bags.watch import follow

        leave(follow(bag_places.client(config), answers[0]["bag"], as_json=as_json))


def one_or_all(named: tuple[str, ...], answers: list[dict[str, int]]) -> object:
    """A single object for one bag, a list for several."""
    return answers if len(named) > 1 else answers[0]


def _more(ctx: click.Context, param: click.Parameter, text: str | None) -> More:
    if text is None:
        return More()
    try:
        return read_memory(text) if param.name == "memory" else read_time(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _tasks(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> list[int]:
    """Task numbers and ranges of them, such as 7 9-12."""
    tasks: list[int] = []
    for word in words:
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + MOST_NAMED - len(tasks):
            advice = (
                f"write numbers such as 7, or ranges such as 9-12, of at most {MOST_NAMED:,} tasks"
            )
            raise click.BadParameter(f"{word!r}: {advice}", ctx, param)
        tasks += range(first, last + 1)
    return tasks


@click.command(cls=Command)
@bag_argument
@click.argument("named", nargs=-1, metavar="[TASK | FIRST-LAST]...", callback=_tasks)
@click.option("--failed", is_flag=True, help="All failed tasks.")
@click.option(
    "--done",
    is_flag=True,
    help="Also run tasks again that are done: all of them, or those that are named. The new "
    "result replaces the old one.",
)
@click.option(
    "--cause",
    "causes",
    multiple=True,
    metavar="TEXT",
    help="Failed tasks with this cause (its first words are enough); repeatable.",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="This failed task; repeatable.",
)
@click.option(
    "--memory",
    callback=_more,
    metavar="+50%|x2|2GB",
    help="With more memory (x2, +50%), or this much (2GB).",
)
@click.option(
    "--time",
    callback=_more,
    metavar="+50%|x2|2h",
    help="With more time (x2, +50%), or this much (90m).",
)
@click.option(
    "--refresh",
    is_flag=True,
    help="Send the input files once more that have changed here. These tasks, and all that start "
    "later, run with them.",
)
@click.option("--watch", is_flag=True, help="Follow the bag afterwards.")
@json_option
def retry(
    bag: str,
    named: list[int],
    failed: bool,
    done: bool,
    causes: tuple[str, ...],
    tasks: tuple[int, ...],
    memory: More,
    time: More,
    refresh: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Run failed tasks of a bag again, with the same parameters. Other tasks of the bag may
    still be running. 'covey failures' lists the causes. With --done, tasks that are
    done run again, too.

    Tasks get the input files as they were sent with the bag. If some have changed here since, a
    note says so; with --refresh, tasks get them as they are now.

    \b
    covey retry --failed
    covey retry --failed --refresh
    covey retry 3 7 9-12
    covey retry 3 7 9-12 --done --memory 2GB
    covey retry 3 --cause 'memory limit' --memory +50%
    covey retry 3 --task 17 --task 18 --time x2 --watch
    """
    chosen = [*tasks, *named]
    if not (failed or done or causes or chosen):
        which = "" if bag == "latest" else f" {bag}"
        raise click.UsageError(
            f"which tasks? To run all failed ones again: covey retry{which} --failed"
        )
    config = settings()
    view = bag_places.find_bag(bag_places.reader(config), bag)
    if not (view.failed or (done and view.done)):
        _say_retried(view, 0, bool(chosen), done, as_json)
        return
    client = bag_places.client(config)
    from covey.frontend.input_changes import RetryFiles

    files = RetryFiles(client, view, bool(config.server), refresh)
    count = client.retry(
        view.id,
        causes=causes,
        tasks=chosen or None,
        memory=memory.times,
        time=time.times,
        memory_mb=int(memory.amount),
        limit_seconds=time.amount,
        done=done,
        changes=files.send(),
    )
    if not (watch and as_json and count):
        _say_retried(view, count, bool(causes or chosen), done, as_json, files)
    how = f"covey retry {view.id} --failed --refresh"
    for note in files.notes(how) if count else ():
        say(f"note: {note}")
    if watch and count:
        from covey.cli.bags.watch import follow

        leave(follow(client, view.id, as_json=as_json))


def _say_retried(
    bag: BagView,
    count: int,
    chosen: bool,
    done: bool,
    as_json: bool,
    files: "RetryFiles | None" = None,
) -> None:
    what = "task" if done else "failed task"
    hint = "" if done or not bag.done else "; to run tasks again that are done, add --done"
    if as_json:
        fields = {} if files is None or not count else files.fields()
        print_json({"bag": bag.id, "count": count, **fields})
    elif count:
        words = "" if files is None else files.words()
        echo(f"bag {bag.id}: {formats.count(count, what)} will run again{words}")
    elif chosen:
        say(f"bag {bag.id} has no such {what}s; see: covey failures {bag.id}{hint}")
    else:
        say(f"bag {bag.id} has no {what}s; nothing to retry{hint}")
