"""Site jobs in the record: those that are there, and of each site the latest ones that ended.

What is known of a site comes from its jobs (`core.sites.site_measures`), so these are kept when
they are over. Of each site the `MOST_ENDED` that were submitted last are kept; older ones are
forgotten at the end of the transaction in which another one ended.
"""

import sqlite3
from collections.abc import Iterable

from msgspec import to_builtins

from covey.core.record.actions import EndJob
from covey.core.record.model import JobRecord, JobStatus
from covey.store.sqlite import rows
from covey.wire import SiteJobView

MOST_ENDED = 1000  # of one site
MOST_MEASURED = 200  # of one site, that a server starts with

_CHANGING = (
    "handle",
    "status",
    "requeued",
    "requeues",
    "cancelled",
    "started",
    "enrolled",
    "goodbye",
    "pilot",
    "outcome",
)
_SAVE = rows.saving("jobs", JobRecord.__struct_fields__, _CHANGING)
_END = "UPDATE jobs SET status = ?, ended = ?, reason = ?, outcome = ? WHERE id = ? RETURNING site"
_ENDED = "FROM jobs INDEXED BY jobs_ended WHERE status = 'ended' AND site = ?"
_FORGET = f"""
    DELETE FROM jobs WHERE row IN (SELECT row {_ENDED} ORDER BY row DESC LIMIT -1 OFFSET ?)"""


def save(connection: sqlite3.Connection, job: JobRecord) -> None:
    connection.execute(_SAVE, to_builtins(job))


def end(connection: sqlite3.Connection, change: EndJob) -> str:
    """The name of the job's site; empty if there is no such job."""
    values = (JobStatus.ENDED.value, change.at, change.reason, change.outcome.value, change.job)
    row = connection.execute(_END, values).fetchone()
    return row[0] if row is not None else ""


def forget_old(connection: sqlite3.Connection, sites: Iterable[str]) -> None:
    for site in sites:
        connection.execute(_FORGET, (site, MOST_ENDED))


def forget_all(connection: sqlite3.Connection, site: str) -> None:
    """The site is gone, and so are its jobs."""
    connection.execute("DELETE FROM jobs WHERE status = 'ended' AND site = ?", (site,))
    connection.execute("DELETE FROM site_histories WHERE name = ?", (site,))


def alive(connection: sqlite3.Connection) -> tuple[JobRecord, ...]:
    """In the order in which they were submitted."""
    query = f"SELECT {rows.JOB_COLUMNS} FROM jobs WHERE status <> 'ended' ORDER BY row"
    return tuple(map(rows.job_from, connection.execute(query)))


def views(
    connection: sqlite3.Connection, site: str, owner: str | None, limit: int
) -> list[SiteJobView]:
    """The latest first, with the hosts of their pilots."""
    query = f"""
        SELECT {rows.JOB_COLUMNS}, (SELECT host FROM pilots WHERE pilots.id = jobs.pilot)
        FROM jobs WHERE site = ?1 AND (?2 IS NULL OR wanted_by = ?2) ORDER BY row DESC LIMIT ?3"""
    found = connection.execute(query, (site, owner, limit))
    return [job_view(rows.job_from(row), host or "") for *row, host in found]


def job_view(job: JobRecord, host: str) -> SiteJobView:
    runs = job.started or job.enrolled
    alive = "running" if runs else "waiting"
    return SiteJobView(
        id=job.id,
        site=job.site,
        handle=job.handle,
        owner=job.wanted_by,
        slots=job.slots,
        trial=job.trial,
        state=(job.outcome.value or "ended") if job.status is JobStatus.ENDED else alive,
        submitted=job.submitted,
        requeued=job.requeued,
        requeues=job.requeues,
        started=job.started,
        enrolled=job.enrolled,
        goodbye=job.goodbye,
        cancelled=job.cancelled,
        ended=job.ended,
        reason=job.reason,
        pilot=job.pilot,
        host=host,
    )


def ended(connection: sqlite3.Connection) -> tuple[JobRecord, ...]:
    """The latest of each site. Of those that an older version recorded nobody knows how they
    ended."""
    query = f"""
        SELECT {rows.JOB_COLUMNS} FROM (
            SELECT *, row_number() OVER (PARTITION BY site ORDER BY row DESC) AS place
            FROM jobs WHERE status = 'ended' AND outcome <> '')
        WHERE place <= ? ORDER BY row"""
    return tuple(map(rows.job_from, connection.execute(query, (MOST_MEASURED,))))
