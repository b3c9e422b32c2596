"""Stats: the figures as one JSON object, for scripts and dashboards that do not speak Prometheus."""

from typing import Any

from django_delayq.metrics import ALL_JOBS
from django_delayq.monitoring.figures import Figures, label


def stats(figures: Figures) -> dict[str, Any]:
    """Return the figures as JSON values; times are seconds, moments µs since the epoch."""
    snapshot, hour = figures.snapshot, figures.snapshot.hour(ALL_JOBS)
    total = snapshot.total
    return {
        "now_us": snapshot.now_us,
        "scheduled": total.scheduled - total.overdue,
        "overdue": total.overdue,
        "ready": total.ready - total.parked,
        "parked": total.parked,
        "running": snapshot.claimed,
        "failed": snapshot.dead,
        "oldest_ready_us": total.oldest_ready_us,
        "next_due_us": total.next_due_us,
        "due_within": {str(seconds): number for seconds, number in figures.due_within.items()},
        "last_hour": {
            "done": hour.done,
            "retried": hour.retried,
            "failed": hour.dead,
            "start_delay_p95_us": hour.lag_us(0.95),
            "run_time_p95_us": hour.run_us(0.95),
        },
        "workers": len(figures.workers),
        "slots": figures.forecast.slots,
        "delayq_workers_needed": figures.workers_needed,
        "forecast_off_seconds": figures.forecast_off_seconds,
        "servers_missing": [each.server for each in figures.reads.missing],
        "queues": {
            label(name): {
                "scheduled": state.scheduled - state.overdue,
                "overdue": state.overdue,
                "ready": state.ready - state.parked,
                "parked": state.parked,
                "oldest_ready_us": state.oldest_ready_us,
                "is_paused": state.paused is not None,
                "slots_needed": figures.queue_slots_needed.get(name, 0),
            }
            for name, state in snapshot.queues.items()
        },
    }
