"""`covey serve` and `covey stop`."""

import time
from pathlib import Path

import click

from covey.cli.shared.commands import Command, json_option, leave, print_json, settings
from covey.frontend.terminal import echo, say

STOP_SECONDS = 30.0
POLL_SECONDS = 0.05


@click.command(cls=Command)
@click.option(
    "--embedded",
    is_flag=True,
    help="Like the server of 'covey run': only for this machine, and it ends when idle.",
)
@click.option("--listen", metavar="ADDRESSES", help="Addresses to listen on: 0.0.0.0,::")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port to listen on.")
@click.option("--public", metavar="URL", help="Address that others use.  [default: by host name]")
@click.option(
    "--slots", type=click.IntRange(min=1), metavar="N", help="Tasks at once per local pilot."
)
@click.option("--pilots", type=click.IntRange(min=0), metavar="N", help="Local pilots; 0: none.")
@click.option(
    "--idle-exit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End this long after the last bag has finished and the last client has left.",
)
@click.option(
    "--background", is_flag=True, help="Return when the server is running; 'covey stop' ends it."
)
def serve(
    embedded: bool,
    listen: str | None,
    port: int | None,
    public: str | None,
    slots: int | None,
    pilots: int | None,
    idle_exit: float | None,
    background: bool,
) -> None:
    """Run a server in the foreground, or in the background (--background). 'covey run'
    starts one by itself: you need this only to choose how it runs, or to share it
    (covey help server).

    \b
    covey serve --slots 8 --port 8300
    covey serve --background
    covey serve --listen 0.0.0.0,:: --port 8300 --public https://covey.example.org:8300 --pilots 0
    """
    config = settings(
        serve__listen=listen,
        serve__port=port,
        serve__public=public,
        local__slots=slots,
        local__pilots=pilots,
        serve__idle_exit_seconds=idle_exit,
    )
    if background:
        _serve_in_background(config.directory)
        return
    from covey import wiring

    leave(wiring.serve(config, config.directory, embedded))


def _serve_in_background(directory: Path) -> None:
    """Start a server with the options of this command. It logs into a file."""
    from covey.client import embedded

    options = [
        word
        for name, value in click.get_current_context().params.items()
        if value is not None and not isinstance(value, bool)
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    record, new = embedded.start_background(directory, options)
    how = "runs" if new else "runs already"
    say(f"a server {how} at {record.public or record.address} (process {record.pid})")
    say(f"its log: {directory / 'server.log'}   end it with: covey stop")


@click.command(cls=Command)
@click.option("--drain", is_flag=True, help="First wait until the running tasks have ended.")
@json_option
def stop(drain: bool, as_json: bool) -> None:
    """Stop the server of this directory and its pilots. The next 'covey watch' or
    'covey run' continues the unfinished bags. Tasks that run now start over then, unless
    you wait for them with --drain.

    \b
    covey stop
    covey stop --drain
    """
    from covey.client.embedded import note_stop
    from covey.frontend import bag_places, formats

    config = settings()
    client = bag_places.running_client(config)
    if client is None:
        _end_orphans(config.directory, as_json)
        return
    pid = client.server().pid
    if not config.server:
        note_stop(config.directory)
    there = [site for site in client.sites() if not site.here]
    waiting = {site.name: site.waiting for site in there if site.waiting}
    running = 0 if drain else sum(bag.running + bag.sent for bag in client.bags())
    sent_home = client.stop(drain=drain)
    client.close()
    gone = bool(config.server) or _wait_until_gone(config.directory, drain)
    if as_json:
        facts = {"stopped": gone, "pilots": sent_home, "waiting": sum(waiting.values())}
        print_json({**facts, "interrupted": running})
    elif gone:
        echo(f"stopped the server (process {pid}) and {formats.count(sent_home, 'pilot')}")
        if running:
            tasks = formats.count(running, "task")
            say(f"{tasks} that ran will start over; 'covey stop --drain' lets them end first")
        if waiting:
            many = "keeps its place" if sum(waiting.values()) == 1 else "keep their places"
            pilots = formats.count(sum(waiting.values()), "pilot")
            say(f"{pilots} {many} in the queue of {', '.join(waiting)}")
            say("without a server they end when they start; 'covey site drain' cancels them")
    else:
        say(f"the server (process {pid}) has not ended yet; look again, or: kill {pid}")
    leave(0 if gone else 1)


def _end_orphans(directory: Path, as_json: bool) -> None:
    """End the pilots that a killed server has left."""
    from covey import wiring
    from covey.client.embedded import is_held
    from covey.frontend import formats

    # A server that holds the directory ends its pilots itself, even if it does not answer now.
    ended, left = (0, 0) if is_held(directory) else wiring.end_orphans(directory, STOP_SECONDS)
    if as_json:
        facts = {"stopped": False, "pilots": ended - left, "waiting": 0, "interrupted": 0}
        print_json(facts)
    elif ended:
        pilots = formats.count(ended - left, "pilot")
        say(f"no server runs here; ended {pilots} that an earlier server had started")
        if left:
            say(f"{formats.count(left, 'pilot')} cannot be ended; see: ps -ef | grep {directory}")
    else:
        say("no server runs here")
    leave(1 if left else 0)


def _wait_until_gone(directory: Path, drain: bool) -> bool:
    """Whether the server has ended. Without `drain`, wait for at most STOP_SECONDS."""
    from covey.client.embedded import is_held

    deadline = time.monotonic() + STOP_SECONDS
    while is_held(directory):
        if not drain and time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
