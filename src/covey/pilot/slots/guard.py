"""The guard: the process between the pilot and the keeper, which outlives both.

    pilot ── guard ── keeper ── slot ── task

The rule: whichever of pilot, keeper and slots are killed, even all at once, no process of a task is
left. The guard is a subreaper, as the keeper and the slots are: a process whose ancestors are dead
becomes a child of the nearest living one of them, even if it is a daemon by now. So when the keeper
is dead, all that is left of tasks becomes a child of the guard, and the guard has no other
children.

The guard does nothing while the keeper lives. When the keeper has ended, normally or not, the guard
gives slots a moment to end themselves, kills everything else, and exits. If the pilot lives, it
takes the guard's end for the end of everything, and forks a new one. If the guard is killed, the
keeper notices that its parent is gone, and ends all (see ``keeper``); the pilot kills what then
becomes its own child.

What this cannot prevent: if all of them are killed, the guard too, processes of tasks are left.
"""

import os
import signal
import socket
import struct
import time
from typing import List, Tuple

from covey.pilot.files.safe_paths import remove
from covey.pilot.slots import process_tree
from covey.pilot.slots.keeper import Keeper, close_all_but, open_standard_streams, prepare
from covey.pilot.slots.shared_page import SharedPage
from covey.pilot.slots.workspace import SlotSettings, outbox

_PID = struct.Struct("=I")
_SLOT_SECONDS = 5.0  # for slots to end themselves
_LOOK_SECONDS = 0.005
_SLOT_NAME = "covey-slot"  # the beginning of their processes' names: see ``keeper``


def fork_guard(settings: SlotSettings, page: SharedPage) -> Tuple[int, int, socket.socket]:
    """Fork the guard, which forks the keeper. Returns their process ids, and the socket for
    requests to the keeper. Raises OSError."""
    open_standard_streams()
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    pilot = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            prepare([theirs.fileno(), writer])
            process_tree.name_process("covey-guard")
            _guard(settings, page, theirs, writer, pilot)
        finally:
            os._exit(0)  # never back into the pilot's own stack
    theirs.close()
    os.close(writer)
    try:
        packed = os.read(reader, _PID.size)
    finally:
        os.close(reader)
    if len(packed) < _PID.size:
        ours.close()
        raise OSError("the keeper did not start")
    return pid, _PID.unpack(packed)[0], ours


def _guard(
    settings: SlotSettings, page: SharedPage, requests: socket.socket, writer: int, pilot: int
) -> None:
    guard = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        try:
            os.close(writer)
            os.setsid()
            process_tree.become_subreaper()
            process_tree.name_process("covey-keeper")
            Keeper(settings, page, requests, guard).serve()
        finally:
            os._exit(0)
    os.write(writer, _PID.pack(keeper))
    close_all_but([])
    _wait_for_keeper(keeper)
    _end_slots()
    process_tree.kill_all_children()
    if os.getppid() != pilot:
        _remove_files(settings.directory)


def _wait_for_keeper(keeper: int) -> None:
    while True:
        try:
            _, status = os.waitpid(keeper, os.WUNTRACED)
        except ChildProcessError:
            return
        if not os.WIFSTOPPED(status):
            return
        process_tree.send(keeper, signal.SIGCONT)  # a task outside of a sandbox may have stopped it


def _end_slots() -> None:
    """Let slots whose keeper is dead end their tasks and remove their files. A process that only
    has the name of a slot gets the same moment, and no more."""
    give_up = time.monotonic() + _SLOT_SECONDS
    while time.monotonic() < give_up:
        left = process_tree.children(os.getpid())
        for pid in [pid for pid in left if not _is_slot(pid)]:
            process_tree.send(pid, signal.SIGKILL)
        if not left:
            return
        _reap(left)
        time.sleep(_LOOK_SECONDS)


def _is_slot(pid: int) -> bool:
    try:
        with open("/proc/{}/comm".format(pid), encoding="utf-8", errors="replace") as file:
            return file.read().startswith(_SLOT_NAME)
    except OSError:
        return False


def _reap(pids: List[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def _remove_files(directory: str) -> None:
    """Remove what killed slots left on disk, if there is no pilot that starts others."""
    try:
        names = [name for name in os.listdir(directory) if name.startswith("slot-")]
    except OSError:
        return
    for path in [os.path.join(directory, name) for name in names] + [outbox(directory)]:
        try:
            remove(path)
        except OSError:
            pass
    try:
        os.rmdir(directory)
    except OSError:
        pass  # the pilot's own files are there
