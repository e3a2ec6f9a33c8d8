"""Calls: tasks of one bag that a single long-lived process, the worker, runs one after the other.

    client ── server ── pilot ── slot ──(socket pair)── worker

A bag of calls (`calls`) has one parameter, `call`. It holds the call as base64, which only the
worker decodes; a large call is in a file, and the parameter names the file (see below). The bag's
`argv` starts the worker. $COVEY_CALLS has the descriptor of the worker's end of the socket pair,
called the line. Both ends send frames: four bytes with the length (big-endian), then the data. The
first byte of a worker's frame says what the frame is:

    worker: HELLO  + JSON object       once, before anything else
         or REFUSE + message           instead: this worker cannot run any call
    slot:   the call, decoded
         or @ + name                   the call is in a file of the worker's directory
    worker: VALUE  + bytes             the call's result
         or FILE   + name              the result is in a file of that directory; the slot takes it
         or ERROR  + bytes             the call ran and failed

A slot may also offer a queue, so that calls wait in front of the worker. $COVEY_CALLS_AHEAD has the
queue's descriptor: a socket that keeps packets apart and does not block. A worker that supports the
queue says so in HELLO (`ahead`: 1, and `cpu`: the processor seconds that it has used). Then:

    slot, in the queue: LABEL, then the call, or @ + name
            LABEL: PACKED, or ON_LINE if the call is too large for a packet and follows on the
                   line; and a number that the slot chose
    worker: VALUE, FILE or ERROR, then HEAD, then its bytes or name as above
            HEAD: the number of the call, its duration in seconds, the processor time used so far,
                  and whether the worker waits for GO
    slot, on the line:  GO             go on

A worker that does not support the queue gets all calls on the line, one by one. The same is true if
the slot offers no queue: a worker comes with its bag and may be older or newer than the pilot.

The rules:
- A worker does one call at a time, in order, and answers each exactly once before it takes the
  next. If a worker ends, by itself or by a signal, the call that it was doing has failed, with the
  worker's exit code or signal, as for any task. A call that it had not taken goes to another
  worker. (But a worker that ends before its first answer fails the first call: otherwise workers
  would be started for ever.)
- A call in the queue has not begun. The slot has the worker's end of the queue too and can take
  calls back from it: the kernel gives each packet to one of the two. (Both take from the front. So
  the worker may take a call from behind some that the slot takes at that moment; the numbers tell.)
  So up to MOST_AHEAD calls wait there, however long the present call takes, and can still be
  cancelled or moved to an idle slot. Before a slot ends a call that is cancelled or over a limit,
  it empties the queue and reads all answers. Then that call is the running one or is over, and no
  other call is hit.
- The queue is not used for a bag whose tasks must not be repeated (`Body.ahead` is false): if the
  slot is killed, nobody can say which of the queued calls had begun. For other bags those count as
  never started, except the last that the slot knew to be done (see `shared_page`).
- Large calls, and calls that need another worker, wait until the queue is empty.
- A slot keeps its worker as long as calls of its bag come. The worker ends when another bag comes,
  or other limits of memory or cores, or when the slot ends: its line is closed, and some time later
  it is killed. A call that is cancelled or over its time ends the worker too.
- A call's time counts from the moment when the slot got the answer before it, or HELLO. A worker
  must send HELLO within START_SECONDS.
- What a worker prints during a call is that call's output. A worker with a queue checks after each
  call whether its output has grown. If it has, or if there is a FILE to take away, the worker says
  that it waits, and takes no other call before GO. Otherwise the slot does not read the output.
- Tags that a call publishes are sent with its end, or with the end of a call soon after it.
- VALUE and ERROR become the result of the task: a JSON object with `value` or `error`, base64, of
  up to MOST_INLINE bytes (an ERROR with more keeps only its message). FILE is a returned file
  called `value`. An ERROR is a failed task (exit code 1). Its message is the text before the first
  NUL.
- If a worker refuses, its calls fail with its message and the exit code REFUSED. A worker that ends
  before HELLO counts as one that refused: the message is NOT_STARTED, how it ended, and its last
  line on standard error.

A large call, of up to MOST_FILE bytes, is uploaded first, as a file. Then `call` is `@DIGEST:SIZE`:
the file's SHA-256, and nine digits. The server accepts the call only if it has the file. It keeps
the file until the call is done (after a failure until the bag is purged, because the call may be
tried again), gives it only to pilots that have an attempt of this call, and adds it to that task's
`inputs` as CALL_FILE: so the file is on the host before the call gets a slot. The slot places the
file into its worker's directory as any input (a link; a copy inside a sandbox), sends its name,
and removes it when the call is over. A call itself must not begin with `@`; pickles begin with
0x80.
"""

import struct

CALLS = "COVEY_CALLS"  # the environment variable with the line's descriptor
QUEUE = "COVEY_CALLS_AHEAD"  # the environment variable with the queue's descriptor
CALL = "call"  # the parameter
HELLO, REFUSE, VALUE, FILE, ERROR = b"h", b"x", b"v", b"f", b"e"
REFUSED = 126  # the exit code of a call whose worker refused
NOT_STARTED = "the worker did not start: "
VALUE_FILE = "value"  # the name under which a large value is returned
MOST_INLINE = 40000  # bytes of a value inside the result; a larger value is returned as a file
MOST_CALL = 1 << 20  # bytes of a call inside its task
MOST_FILE = 100 << 20  # bytes of a call in a file
PACKED, ON_LINE, GO = b"c", b"l", b"g"
MOST_AHEAD = 64  # calls
MOST_PACKET = 60000  # bytes of a call in the queue
BY_FILE = "@"
CALL_FILE = ".covey-call"
START_SECONDS = 300.0
LENGTH = struct.Struct(">I")
HEAD = struct.Struct(">Qdd?")
LABEL = struct.Struct(">cQ")


def frame(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data
