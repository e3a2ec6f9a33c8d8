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

The rules:
- One call at a time, and exactly one answer to each. A worker that ends, by itself or by a signal,
  takes its call with it: that is a failure of the call, with exit code or signal, as of any task.
  Only a call that it had not read when it ended goes to another worker.
- A slot keeps its worker as long as calls of this bag come. Another bag, limits of memory or cores
  that differ, or an end of the slot end the worker: its line is closed, and some time later it is
  killed. A call over its time, or cancelled, ends it too: what it did half is in nobody's way.
- A call's time counts from HELLO on. A worker has START_SECONDS to say it.
- What a worker prints while it does a call is that call's output.
- VALUE and ERROR become the result of the task: a JSON object with `value` or `error`, base64, of
  up to MOST_INLINE bytes (an ERROR with more keeps its words alone). FILE is a returned file called
  `value`. An ERROR is a failed task (exit code 1), and its message is the words that come first in
  it, up to a NUL.
- A worker that refuses fails its calls with those words.

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
CALL = "call"  # the parameter
HELLO, REFUSE, VALUE, FILE, ERROR = b"h", b"x", b"v", b"f", b"e"
VALUE_FILE = "value"  # as which a large value is returned
MOST_INLINE = 40000  # bytes of a value that travels in the result; more go by file
MOST_CALL = 1 << 20  # bytes of a call that is in its task
MOST_FILE = 100 << 20  # … of one that is in a file
BY_FILE = "@"
CALL_FILE = ".covey-call"
START_SECONDS = 300.0
LENGTH = struct.Struct(">I")


def frame(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data
