"""The tables, and how an older record becomes a current one.

`PRAGMA user_version` is the version of a file: `OLDEST` after the first of `MIGRATIONS`, and one
more after each of the others. Those that a file lacks run in order, in one transaction: a crash
leaves the old file or the new one. A published migration is never changed; a new one is added at
the end. A file that is not ours, is older than `OLDEST`, or was written by a newer covey, is left
alone.

How the tables are read (see `snapshots` and `reading`): a bag's results are found through partial
indexes, so that only what is open or went wrong is ever scanned. `counted` holds one entry per
task that has a result, which makes a result count once; `failures` and `uncounted` are small
where all goes well. Codes: outcome 0 is success (`rows.OUTCOMES`). `bags.first_row` and
`last_row` enclose a bag's rows in `ends`. The files of a row have ids from row * 2**24 on, so that
they lie together, in the order of rows, in one tree without an index. `server.last_bag` is the
highest number of a bag that was purged: numbers are not used again. `reopenings.tasks` is the set
of tasks that started afresh, whether or not they were `named`.
`input_versions.number` is 2 for the first files that were sent after a bag.
`bags.policy` is null as long as the one in the spec holds; `hosts.history` is empty where nothing
is remembered.
"""

import sqlite3
from pathlib import Path
from typing import TypeAlias

from covey.core.errors import StoreError, StoreNewer

APPLICATION_ID = 0x636F7679  # "covy"

Migration: TypeAlias = tuple[str, ...]

# The tables of version 6, which is the oldest that can be read.
_TABLES: Migration = (
    """CREATE TABLE server (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        epoch INTEGER NOT NULL,
        last_bag INTEGER NOT NULL DEFAULT 0)""",
    "INSERT INTO server VALUES (1, 0, 0)",
    """CREATE TABLE bags (
        id INTEGER PRIMARY KEY,
        spec TEXT NOT NULL,
        key TEXT,
        total INTEGER NOT NULL,
        open INTEGER NOT NULL,
        status TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        done INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        first_row INTEGER NOT NULL,
        last_row INTEGER,
        policy TEXT,
        outputs TEXT NOT NULL DEFAULT '')""",
    "CREATE UNIQUE INDEX bags_key ON bags (key) WHERE key IS NOT NULL",
    "CREATE INDEX bags_unfinished ON bags (id) WHERE status IN ('running', 'paused')",
    """CREATE TABLE segments (
        bag INTEGER NOT NULL,
        number INTEGER NOT NULL,
        segment TEXT NOT NULL,
        key TEXT,
        PRIMARY KEY (bag, number)) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX segments_key ON segments (bag, key) WHERE key IS NOT NULL",
    """CREATE TABLE chunks (
        bag INTEGER NOT NULL,
        first INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        closed INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (bag, first)) WITHOUT ROWID""",
    """CREATE TABLE reopenings (
        bag INTEGER NOT NULL,
        number INTEGER NOT NULL,
        row INTEGER NOT NULL,
        named INTEGER NOT NULL,
        tasks BLOB NOT NULL,
        memory REAL NOT NULL,
        time REAL NOT NULL,
        memory_mb INTEGER NOT NULL DEFAULT 0,
        limit_seconds REAL NOT NULL DEFAULT 0,
        PRIMARY KEY (bag, number)) WITHOUT ROWID""",
    """CREATE TABLE ends (
        row INTEGER PRIMARY KEY,
        bag INTEGER NOT NULL,
        task INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        pilot INTEGER NOT NULL,
        host INTEGER NOT NULL,
        outcome INTEGER NOT NULL,
        counted INTEGER NOT NULL,
        exit_code INTEGER NOT NULL,
        signal INTEGER NOT NULL,
        sent REAL NOT NULL,
        fetched REAL NOT NULL,
        started REAL NOT NULL,
        ended REAL NOT NULL,
        delivered REAL NOT NULL,
        cpu_seconds REAL NOT NULL,
        memory_kb INTEGER NOT NULL,
        stdout_bytes INTEGER NOT NULL,
        stderr_bytes INTEGER NOT NULL,
        message TEXT,
        last_line TEXT,
        cause INTEGER,
        result TEXT,
        files INTEGER NOT NULL DEFAULT 0)""",
    "CREATE UNIQUE INDEX counted ON ends (bag, task) WHERE counted = 1",
    "CREATE INDEX failures ON ends (bag, task) WHERE counted = 1 AND outcome <> 0",
    "CREATE INDEX uncounted ON ends (bag, task, outcome) WHERE counted = 0",
    "CREATE INDEX lost ON ends (epoch, sequence) WHERE outcome = 6",
    """CREATE INDEX failures_by_cause ON ends (bag, cause, outcome, task, host)
        WHERE counted = 1 AND outcome <> 0""",
    "CREATE INDEX returned ON ends (bag) WHERE counted = 1 AND files > 0",
    """CREATE TABLE causes (
        id INTEGER PRIMARY KEY,
        bag INTEGER NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (bag, text))""",
    "CREATE TABLE outputs (row INTEGER PRIMARY KEY, stdout, stderr)",
    """CREATE TABLE result_names (
        bag INTEGER NOT NULL,
        place INTEGER NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (bag, place)) WITHOUT ROWID""",
    """CREATE TABLE files (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL,
        size INTEGER NOT NULL,
        digest TEXT,
        data BLOB,
        packed INTEGER NOT NULL,
        executable INTEGER NOT NULL)""",
    "CREATE INDEX files_digest ON files (digest) WHERE digest IS NOT NULL",
    """CREATE TABLE hosts (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        first REAL NOT NULL DEFAULT 0,
        heard REAL NOT NULL DEFAULT 0,
        done INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        site TEXT NOT NULL DEFAULT '',
        slots INTEGER NOT NULL DEFAULT 0,
        tags TEXT NOT NULL DEFAULT '{}',
        machine TEXT NOT NULL DEFAULT '',
        history TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE pilots (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        credential TEXT NOT NULL,
        host TEXT NOT NULL,
        slots INTEGER NOT NULL,
        site TEXT NOT NULL,
        job TEXT NOT NULL,
        tags TEXT NOT NULL,
        version TEXT NOT NULL,
        enrolled REAL NOT NULL,
        status TEXT NOT NULL,
        changed REAL NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '',
        memory_mb INTEGER NOT NULL DEFAULT 0,
        disk_mb INTEGER NOT NULL DEFAULT 0,
        gpus INTEGER NOT NULL DEFAULT 0,
        machine TEXT NOT NULL DEFAULT '',
        boot TEXT NOT NULL DEFAULT '',
        owner TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX pilots_not_left ON pilots (id) WHERE status <> 'left'",
    "CREATE TABLE synced (pilot INTEGER PRIMARY KEY, number INTEGER NOT NULL)",
    """CREATE TABLE sites (
        name TEXT PRIMARY KEY,
        record TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE jobs (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        site TEXT NOT NULL,
        slots INTEGER NOT NULL,
        submitted REAL NOT NULL,
        status TEXT NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '',
        wall_seconds REAL NOT NULL DEFAULT 0,
        memory_mb INTEGER NOT NULL DEFAULT 0,
        disk_mb INTEGER NOT NULL DEFAULT 0,
        gpus INTEGER NOT NULL DEFAULT 0,
        handle TEXT NOT NULL DEFAULT '',
        trial INTEGER NOT NULL DEFAULT 0,
        wanted_by TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX jobs_not_ended ON jobs (row) WHERE status <> 'ended'",
    """CREATE TABLE tokens (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        owner TEXT NOT NULL,
        digest TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL NOT NULL,
        revoked REAL NOT NULL)""",
    "CREATE INDEX tokens_not_revoked ON tokens (id) WHERE revoked = 0",
)

# Input files that were sent after the bag, and the first attempt that got them.
_SEVENTH: Migration = (
    """CREATE TABLE input_versions (
        bag INTEGER NOT NULL,
        number INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        at REAL NOT NULL,
        files INTEGER NOT NULL,
        names TEXT NOT NULL,
        changes TEXT NOT NULL,
        PRIMARY KEY (bag, number)) WITHOUT ROWID""",
)

# What became of site jobs, and what is remembered of sites.
_EIGHTH: Migration = (
    *(
        f"ALTER TABLE jobs ADD COLUMN {column} NOT NULL DEFAULT {default}"
        for column, default in (
            ("requeued REAL", "0"),
            ("requeues INTEGER", "0"),
            ("cancelled REAL", "0"),
            ("started REAL", "0"),
            ("enrolled REAL", "0"),
            ("goodbye REAL", "0"),
            ("pilot INTEGER", "0"),
            ("outcome TEXT", "''"),
        )
    ),
    "CREATE INDEX jobs_ended ON jobs (site, row) WHERE status = 'ended'",
    """CREATE TABLE site_histories (
        name TEXT PRIMARY KEY,
        history TEXT NOT NULL) WITHOUT ROWID""",
)

OLDEST = 6
MIGRATIONS: tuple[Migration, ...] = (_TABLES, _SEVENTH, _EIGHTH)


def newest(migrations: tuple[Migration, ...] = MIGRATIONS) -> int:
    """The version of a file that has had all of these."""
    return OLDEST + len(migrations) - 1


def version(
    connection: sqlite3.Connection, path: Path, migrations: tuple[Migration, ...] = MIGRATIONS
) -> int:
    """The schema version of this file, 0 if it is empty. Raises StoreNewer, and StoreError for
    a file that is not a record of covey, or is too old."""
    try:
        found = _pragma(connection, "user_version")
        ours = _pragma(connection, "application_id") == APPLICATION_ID
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise _foreign(path) from error
        raise
    if not ours and (found or not empty):
        raise _foreign(path)
    if found > newest(migrations):
        raise StoreNewer(str(path), found, newest(migrations))
    if 0 < found < OLDEST:
        raise StoreError(
            f"{path} has version {found}; the oldest that this covey can read is {OLDEST}. "
            "Move it away, or use another directory."
        )
    return found


def migrate(
    connection: sqlite3.Connection, path: Path, migrations: tuple[Migration, ...] = MIGRATIONS
) -> None:
    """Bring the file up to date: all of what it lacks, or nothing."""
    found = version(connection, path, migrations)
    if found == newest(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in migrations[found and found - OLDEST + 1 :]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {newest(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _foreign(path: Path) -> StoreError:
    return StoreError(f"{path} is not a record of covey. Move it away, or use another directory.")
