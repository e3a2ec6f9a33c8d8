"""Given-up tasks by cause. They are counted in an index alone; rows are read only for the few
examples.
"""

import sqlite3
from collections.abc import Sequence

from covey.core.errors import InvalidQuery
from covey.store.sqlite import rows
from covey.wire import FailureGroup

FIRST_HOSTS = 5
FIRST_TASKS = 10
_LISTED_CAUSES = 20
MOST_CAUSES = 1000  # in one question

_COUNTED = "FROM ends INDEXED BY failures_by_cause WHERE bag = ? AND counted = 1 AND outcome <> 0"
_GROUPS = f"""
    SELECT cause, outcome, count(*) AS number, min(task) AS first {_COUNTED}
    GROUP BY cause, outcome ORDER BY number DESC, first LIMIT ?"""
_OF_GROUP = f"{_COUNTED} AND cause IS ? AND outcome = ?"
_HOSTS = f"""
    SELECT (SELECT name FROM hosts WHERE id = host) {_OF_GROUP}
    GROUP BY host ORDER BY min(task)"""
_TASKS = f"SELECT task, row {_OF_GROUP} ORDER BY task LIMIT {FIRST_TASKS}"


def groups(connection: sqlite3.Connection, bag: int, limit: int) -> list[FailureGroup]:
    group_rows = connection.execute(_GROUPS, (bag, limit)).fetchall()
    return [_group(connection, bag, *row[:3]) for row in group_rows]


def tasks(connection: sqlite3.Connection, bag: int, wanted: tuple[str, ...]) -> list[int]:
    """Raises InvalidQuery if it is not clear which causes are meant."""
    if len(wanted) > MOST_CAUSES:
        raise InvalidQuery(f"name at most {MOST_CAUSES:,} causes")
    ids = connection.execute(f"SELECT cause {_COUNTED} GROUP BY cause", (bag,)).fetchall()
    causes = {_text(connection, id_): id_ for (id_,) in ids}
    found: list[int] = []
    for text in dict.fromkeys(meant(cause, list(causes), bag) for cause in wanted):
        query = f"SELECT task {_COUNTED} AND cause IS ?"
        found += (task for (task,) in connection.execute(query, (bag, causes[text])))
    return sorted(found)


def meant(wanted: str, causes: Sequence[str], bag: int) -> str:
    """The cause that a person means: the text itself, or the only cause that begins with it, or the
    only one that contains it."""
    if not causes:
        raise InvalidQuery(f"bag {bag} has no failed tasks")
    if wanted in causes:
        return wanted
    beginning = [cause for cause in causes if cause.startswith(wanted)]
    candidates = beginning or [cause for cause in causes if wanted in cause]
    if len(candidates) == 1:
        return candidates[0]
    listed = "\n".join(f"  {cause}" for cause in sorted(candidates or causes)[:_LISTED_CAUSES])
    if candidates:
        raise InvalidQuery(
            f"'{wanted}' matches several causes; write more of the one you mean:\n{listed}"
        )
    raise InvalidQuery(f"no task of bag {bag} failed with '{wanted}'; the causes are:\n{listed}")


def _group(
    connection: sqlite3.Connection, bag: int, cause: int | None, outcome: int, count: int
) -> FailureGroup:
    which = (bag, cause, outcome)
    hosts = [name for (name,) in connection.execute(_HOSTS, which)]
    first = connection.execute(_TASKS, which).fetchall()
    example, row = first[0]
    query = "SELECT stderr, stdout FROM outputs WHERE row = ?"
    stderr, stdout = connection.execute(query, (row,)).fetchone() or (None, None)
    return FailureGroup(
        cause=_text(connection, cause),
        outcome=rows.OUTCOMES[outcome],
        count=count,
        hosts=hosts[:FIRST_HOSTS],
        host_count=len(hosts),
        tasks=[task for task, _ in first],
        example=example,
        log=rows.last_lines(rows.unpack(stderr), rows.unpack(stdout)),
    )


def _text(connection: sqlite3.Connection, cause: int | None) -> str:
    if cause is None:
        return ""
    (text,) = connection.execute("SELECT text FROM causes WHERE id = ?", (cause,)).fetchone()
    return str(text)
