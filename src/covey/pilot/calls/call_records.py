"""Calls: tasks that one process runs after the other, without being started for each.

    client ── server ── pilot ── slot ──(socket pair)── worker

A bag of calls (`calls`) has one parameter, `call`: what is to be done, as base64 that nobody but
the worker reads; or, if it is large, the name of a file with those bytes (see below). Its `argv`
starts the worker; the descriptor of its end of the socket pair is in $COVEY_CALLS. Both ends speak
in frames: four bytes that say how long it is (big-endian), then so many bytes, of which the
worker's first one says what it is:

    worker: HELLO  + JSON object       once, before anything else
         or REFUSE + words             instead: no call can be done here
    slot:   the call, decoded
         or @ + name                   the same, in a file of the worker's directory
    worker: VALUE  + bytes             what came of it
         or FILE   + name              the same, in a file of its directory that is the slot's now
         or ERROR  + bytes             it was done, and failed

A slot that can give calls ahead names a second descriptor in $COVEY_CALLS_AHEAD: the queue, a
socket that keeps packets apart and does not block. A worker that knows of it says so in HELLO
(`ahead`: 1, and `cpu`: the seconds of processor time that it has used). Then

    slot, in the queue: LABEL, then the call, or @ + name
            LABEL: PACKED, or ON_LINE if no packet can hold the call: then it comes on the line;
                   and a number, which is the slot's own affair
    worker: VALUE, FILE or ERROR, then HEAD, then its bytes or name as above
            HEAD: the number of the call, how many seconds it took, the processor time used so far,
                  whether it waits for GO
    slot, on the line:  GO             go on

A worker that says nothing of it gets all calls on the line, one by one. So does every worker of a
slot that does not offer a queue: workers come with their bag and may be older or newer than pilots.

The rules:
- A worker does one call at a time, in their order, and gives exactly one answer to each, before it
  takes the next one. A worker that ends, by itself or by a signal, takes the call with it that it
  was doing: that is a failure of this call, with exit code or signal, as of any task. A call that
  it had not taken goes to another worker, as if nothing had been. (But a worker that ends before
  its first answer takes the first call with it: or else there would be no end of workers.)
- What is in the queue has not begun. The slot has the worker's end of the queue too, and takes back
  from it what it wants to have back: the kernel gives each packet to one of the two. (Both take the
  first; so what the worker takes at that moment may have been behind others: their numbers tell.)
  So up to MOST_AHEAD calls wait there, however long the one before them takes, and can still be
  cancelled, or be moved to a slot that is idle. Before a slot ends a call, because it is cancelled
  or over a limit, it empties the queue and hears what was answered: then that call is the one being
  done, or is over, and no other one is hit.
- Nothing is given ahead of a bag whose tasks must not be repeated (`Body.ahead` is false): if the
  slot is killed, nobody can say which of the calls in its queue had begun. For other bags those
  count as never started, but for the one that the slot last knew to be done (see `board`).
- Large calls, and calls that need another worker, wait until nothing is ahead.
- A slot keeps its worker as long as calls of this bag come. Another bag, limits of memory or cores
  that differ, or an end of the slot end the worker: its line is closed, and some time later it is
  killed. A call over its time, or cancelled, ends it too: what it did half is in nobody's way.
- A call's time counts from when the slot has heard the answer before it, or HELLO. A worker has
  START_SECONDS to say that.
- What a worker prints while it does a call is that call's output. A worker that is given calls
  ahead looks, after each, whether its output has grown; if so, or if there is a FILE to be taken
  away, it says that it waits, and takes no other call before it hears GO. Otherwise the slot does
  not look at the output at all.
- Tags that a call publishes come with its end, or with that of one soon after it.
- VALUE and ERROR become the result of the task: a JSON object with `value` or `error`, base64, of
  up to MOST_INLINE bytes (an ERROR with more keeps its words alone). FILE is a returned file called
  `value`. An ERROR is a failed task (exit code 1), and its message is the words that come first in
  it, up to a NUL.
- A worker that refuses fails its calls with those words, and the exit code REFUSED. One that ends
  before HELLO has refused, too: the words are NOT_STARTED, how it ended, and its last line on
  standard error.

A large call, of up to MOST_FILE bytes, travels as a file that is uploaded first, and `call` is
`@DIGEST:SIZE`: its SHA-256, and nine digits. The server takes the call only if it has the file,
keeps it until the call is done (of one that failed until the bag is purged: it may be tried again),
gives it to pilots that have an attempt of this very call, and puts it into that task's `inputs`, as
CALL_FILE: so it is on the host before the call gets a slot. The slot places it into its worker's
directory, as inputs of tasks are (a link; a copy behind walls), tells its name, and removes it when
the call is over. A call itself must not begin with `@`; pickles begin with 0x80.

A pilot from before this does not look at the inputs of a call, and must not take `@…` for one.
Decoders of base64 pass over what is not in their alphabet; but 64 + 9 letters are one more than
fours can hold, which all of them refuse: the call fails as "not base64". A newer pilot whose server
does not know of this gets no file, and refuses the call likewise.
"""

import struct

CALLS = "COVEY_CALLS"  # the variable that names the descriptor
QUEUE = "COVEY_CALLS_AHEAD"  # … of the queue
CALL = "call"  # the parameter
HELLO, REFUSE, VALUE, FILE, ERROR = b"h", b"x", b"v", b"f", b"e"
REFUSED = 126  # the exit code of a call whose worker refused
NOT_STARTED = "the worker did not start: "
VALUE_FILE = "value"  # as which a large value is returned
MOST_INLINE = 40000  # bytes of a value that travels in the result; more go by file
MOST_CALL = 1 << 20  # bytes of a call that is in its task
MOST_FILE = 100 << 20  # … of one that is in a file
PACKED, ON_LINE, GO = b"c", b"l", b"g"
MOST_AHEAD = 64  # calls
MOST_PACKET = 60000  # bytes of a call that is given ahead
BY_FILE = "@"
CALL_FILE = ".covey-call"
START_SECONDS = 300.0
LENGTH = struct.Struct(">I")
HEAD = struct.Struct(">Qdd?")
LABEL = struct.Struct(">cQ")


def frame(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data
