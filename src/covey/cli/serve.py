"""`covey serve` and `covey stop`."""

import time
from pathlib import Path

import click

from covey.cli.base import Command, json_option, leave, print_json, say, settings

STOP_SECONDS = 30.0
POLL_SECONDS = 0.05


@click.command(cls=Command)
@click.option(
    "--embedded",
    is_flag=True,
    help="As 'covey run' starts it: only for this machine, and ends itself when idle.",
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
    help="End this long after the last bag and client.",
)
def serve(
    embedded: bool,
    listen: str | None,
    port: int | None,
    public: str | None,
    slots: int | None,
    pilots: int | None,
    idle_exit: float | None,
) -> None:
    """Run a server in the foreground. 'covey run' starts one by itself: you need
    this only to choose how it runs, or to share it (docs/server.md).

    \b
    covey serve --slots 8 --port 8300
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
    from covey import wiring

    leave(wiring.serve(config, config.directory, embedded))


@click.command(cls=Command)
@click.option("--drain", is_flag=True, help="First let the tasks that run come to their end.")
@json_option
def stop(drain: bool, as_json: bool) -> None:
    """Stop the server of this directory and its pilots. The next 'covey watch' or
    'covey run' goes on with what is unfinished; tasks that run now then start over, unless
    you wait for them with --drain.

    \b
    covey stop
    covey stop --drain
    """
    from covey.cli import formats, places
    from covey.client.embedded import note_stop

    config = settings()
    client = places.running_client(config)
    if client is None:
        if as_json:
            print_json({"stopped": False, "pilots": 0, "waiting": 0, "interrupted": 0})
        else:
            say("no server runs here")
        return
    pid = client.server().pid
    if not config.server:
        note_stop(config.directory)
    there = [site for site in client.sites() if site.driver != "local"]
    waiting = {site.name: site.waiting for site in there if site.waiting}
    running = 0 if drain else sum(bag.running for bag in client.bags())
    sent_home = client.stop(drain=drain)
    client.close()
    gone = bool(config.server) or _wait_until_gone(config.directory, drain)
    if as_json:
        facts = {"stopped": gone, "pilots": sent_home, "waiting": sum(waiting.values())}
        print_json({**facts, "interrupted": running})
    elif gone:
        click.echo(f"stopped the server (process {pid}) and {formats.count(sent_home, 'pilot')}")
        if running:
            told = f"{formats.count(running, 'task')} that ran will start over"
            say(f"{told}; 'covey stop --drain' lets them end first")
        if waiting:
            many = "keeps its place" if sum(waiting.values()) == 1 else "keep their places"
            pilots = formats.count(sum(waiting.values()), "pilot")
            say(f"{pilots} {many} in the queue of {', '.join(waiting)}")
            say("without a server they end when they start; 'covey site drain' takes them back")
    else:
        say(f"the server (process {pid}) has not ended yet; look again, or: kill {pid}")
    leave(0 if gone else 1)


def _wait_until_gone(directory: Path, drain: bool) -> bool:
    """Draining takes as long as the tasks do."""
    from covey.client.embedded import is_held

    deadline = time.monotonic() + STOP_SECONDS
    while is_held(directory):
        if not drain and time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
