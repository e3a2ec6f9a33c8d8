"""Systems to try things on by hand: `python -m tests.testbed slurm gridengine ssh`.

Says what the environment must be for each, and waits; at the end of its input, or when it is
interrupted, all of it is gone. `sweep` alone takes away what killed runs have left.
"""

import contextlib
import signal
import sys
from collections.abc import Callable, Sequence

from tests.testbed.gridengine import GridEngine
from tests.testbed.place import System, running, sweep
from tests.testbed.slurm import Slurm
from tests.testbed.ssh import SshHosts

KINDS: dict[str, Callable[[], System]] = {
    "slurm": Slurm,
    "slurm-beta": lambda: Slurm("beta"),
    "slurm-accounting": lambda: Slurm("gamma", accounting=True),
    "gridengine": GridEngine,
    "ssh": SshHosts,
}


def tell(name: str, system: System) -> None:
    print(f"# {name}")
    if isinstance(system, SshHosts):
        print(f"ssh -F {system.config} login")
    elif isinstance(system, Slurm | GridEngine):
        for variable, text in system.environment.items():
            print(f"export {variable}={text}")


def main(names: Sequence[str]) -> None:
    for root in sweep():
        print(f"# swept away: {root}")
    if names == ["sweep"]:
        return
    if not names or not set(names) <= set(KINDS):
        sys.exit(f"python -m tests.testbed sweep, or some of: {' '.join(KINDS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    systems = {name: KINDS[name]() for name in names}
    with contextlib.suppress(KeyboardInterrupt), running(*systems.values()):
        for name, system in systems.items():
            tell(name, system)
        sys.stdout.flush()
        sys.stdin.read()


main(sys.argv[1:])
