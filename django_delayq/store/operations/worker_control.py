"""Worker control: what people ask of workers: no more jobs of a queue or a tenant, or at all, the end of a job."""

from datetime import timedelta

from django_delayq.clock import DAY_US, duration_us
from django_delayq.exceptions import DelayValueError
from django_delayq.store.client.script import Script
from django_delayq.store.digests import tenant_digest
from django_delayq.store.nodes.resp import Part
from django_delayq.store.shard import Shard

_PAUSE, _RESUME, _QUIET, _STOP = Script("pause"), Script("resume"), Script("quiet"), Script("stop")
_PAUSE_TENANT, _RESUME_TENANT = Script("pause_tenant"), Script("resume_tenant")
#: Longest time that the code of a stopped job may still take.
LONGEST_GRACE_US = DAY_US
#: Longest name of a person, in bytes.
_LONGEST_NAME = 200


def grace_us_of(grace: float | timedelta) -> int:
    """Return the µs of the `grace` of a stop. Raises `InvalidDelay` if it is negative or longer than a day."""
    grace_us = duration_us(grace, name="grace")
    if grace_us > LONGEST_GRACE_US:
        raise DelayValueError("grace must be at most one day (86,400 s); a job that may take longer needs no stop()")
    return grace_us


class WorkerControl:
    """API of one shard for what workers obey. Each call of a script is atomic."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def pause(self, queue: str, *, by: str, until_us: int | None = None) -> bool:
        """Stop claims of a queue's jobs until it is resumed, or until an end; jobs still become ready. O(log n).

        The end is in µs since the epoch; promote ends the pause then. A paused queue gets the new end, or none.
        Returns False if it was paused until then already.
        """
        args: list[Part] = [short_name(by), b"" if until_us is None else until_us]
        return bool(self._shard.run(_PAUSE, args, queue=queue))

    def resume(self, queue: str) -> bool:
        """Allow claims of a queue's jobs again. Returns False if it was not paused. O(log n)."""
        return bool(self._shard.run(_RESUME, [], queue=queue))

    def pause_tenant(self, queue: str, tenant: str, *, by: str) -> bool:
        """Stop claims of a tenant's jobs of a fair queue until it is resumed. Returns False if it was paused so."""
        args = [tenant_digest(tenant), short_name(by), tenant.encode("utf-8", "surrogatepass")]
        return bool(self._shard.run(_PAUSE_TENANT, args, queue=queue))

    def resume_tenant(self, queue: str, tenant: str) -> bool:
        """Allow claims of a tenant's jobs again. Returns False if it was not paused."""
        return bool(self._shard.run(_RESUME_TENANT, [tenant_digest(tenant)], queue=queue))

    def quiet(self, worker_id: bytes, *, by: str) -> bool:
        """Make a worker quiet at once: it claims no more jobs. Returns False if it is unknown or already quiet."""
        return self._quiet(worker_id, short_name(by) or b"?")

    def unquiet(self, worker_id: bytes) -> bool:
        """Make a worker claim jobs again at once. Returns False if it was not quiet."""
        return self._quiet(worker_id, b"")

    def _quiet(self, worker_id: bytes, by: bytes) -> bool:
        own_notification = self._shard.keys.notify_worker(worker_id)
        return bool(self._shard.run(_QUIET, [worker_id, by], worker_notify=own_notification))

    def stop(self, raw_id: bytes, *, grace_us: int) -> bool:
        """Ask a running job to stop: its worker is notified, and it is not run again. Returns False if it does not run.

        Its code may run on for `grace_us`, at most a day. The last call decides. Two round trips, O(1).
        """
        keys = self._shard.keys
        for _ in range(3):
            record = self._shard.execute("HGET", keys("claim_records"), raw_id)
            if not record:
                return False
            token = record[:16]
            if self._shard.run(_STOP, [raw_id, token, grace_us], worker_notify=keys.notify_worker(token[:8])):
                return True
            # It was claimed again meanwhile.
        return False


def short_name(by: str) -> bytes:
    """Return the name of a person as it is stored."""
    return by.encode("utf-8", "replace")[:_LONGEST_NAME]
