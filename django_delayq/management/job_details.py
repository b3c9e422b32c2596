"""Job details: what `delayq_jobs ID` prints of one job."""

import json
from collections.abc import Iterator
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.display.arguments import displayed_context, displayed_key
from django_delayq.display.retry import retry_facts, retry_text
from django_delayq.display.text import printable, span_text
from django_delayq.job.ids import created_us, from_text
from django_delayq.job.job import Job
from django_delayq.management.operating import iso, job_facts
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.store import Store


def find_job(id: str, store: Store) -> JobRow | None:
    """Return a job by its id, also one that has ended and whose result is kept. One round trip; more if it is gone."""
    place = from_text(id)
    if place is None or not store.has_shard(place[1]):
        return None
    row = store.find(*place, with_lease=True)
    return None if row is None or (row.ended and row.result is None) else row


def detail_facts(row: JobRow, store: Store) -> dict[str, Any]:
    """Return all that is known of a job, as JSON has it. Sensitive arguments are hidden."""
    job, hide = row.job, store.config.admin.redact
    options = {
        "on_expiry": ("dead" if job.expiry.dead else "drop") if job and job.expiry else None,
        "max_attempts": job.retry.max_attempts if job else None,
        "retry": retry_facts(job.retry) if job else None,
        "timeout": job.timeout_us / SECOND_US if job and job.timeout_us else None,
        "hard_timeout": job.hard_limit_us / SECOND_US if job and job.hard_limit_us else None,
        "key": (displayed_key(job, hide) if job else "") or None,
        "context": (displayed_context(job, hide) if job else {}) or None,
    }
    return {
        **job_facts(row, store, now_us=store.now_us()),
        **options,
        "created": iso(created_us(row.raw_id)),
        "progress": row.progress.fraction if row.progress else None,
        "note": row.progress.note if row.progress else "",
        "stopping": row.stops or None,
        "snoozes": row.attempts.snoozes or None,
        "interruptions": row.attempts.interruptions or None,
        "claimed": iso(row.claimed_us),
        "lease_end": iso(row.lease_end_us),
        "fault": row.fault if row.stored is not None else "",
        "size": row.size,
        "history": [_attempt(entry) for entry in row.attempts.history],
    }


def detail_lines(facts: dict[str, Any], job: Job | None) -> Iterator[str]:
    """Yield the same as text; what is so by default is left out."""
    texts = {**facts, "context": facts["context"] and json.dumps(facts["context"], ensure_ascii=False)}
    if job is not None:
        limits = {"timeout": job.timeout_us, "hard_timeout": job.hard_limit_us}
        texts |= {name: span_text(us) if us else None for name, us in limits.items()}
        # The policy names the number of attempts.
        texts |= {"max_attempts": None, "retry": retry_text(job.retry)}
    shown = {name: value for name, value in texts.items() if name != "history" and value not in (None, "", False)}
    for name, value in shown.items():
        yield f"{name:13} {'yes' if value is True else printable(str(value))}"
    for number, entry in enumerate(facts["history"], 1):
        yield (
            f"attempt {number}: {printable(entry.get('ending', '?'))}, {entry.get('started', '')} "
            f"on {printable(entry.get('worker', '?'))}"
        )
        yield from (f"    {line}" for line in printable(entry.get("error", ""), lines=True).splitlines())


def _attempt(entry: dict[str, Any]) -> dict[str, Any]:
    times = {name: iso(entry[f"{name}_us"]) for name in ("started", "ended") if entry.get(f"{name}_us")}
    return {**times, **{name: entry[name] for name in ("worker", "ending", "error") if name in entry}}
