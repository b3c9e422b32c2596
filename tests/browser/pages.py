"""The address of every page, by its name."""

from collections.abc import Callable

from tests.admin.conftest import page

GONE = "0123456789abcdef01234567-0"
#: Name -> address, given the ids of some jobs.
PAGES: dict[str, Callable[[dict[str, str]], str]] = {
    "overview": lambda ids: page("overview"),
    "overview, week": lambda ids: page("overview", span="week"),
    "coming": lambda ids: page("coming", compare=1),
    "scheduled": lambda ids: page("scheduled"),
    "scheduled, filtered": lambda ids: page("scheduled", queue="email", within="24h", q="invoice", n=25),
    "scheduled, nothing found": lambda ids: page("scheduled", q="nothing of the kind", to="never"),
    "queues": lambda ids: page("queues"),
    "queues, sorted": lambda ids: page("queues", sort="-ready"),
    "limits": lambda ids: page("limits"),
    "queue": lambda ids: page("queue_detail", "default"),
    "paused queue": lambda ids: page("queue_detail", "reports"),
    "running": lambda ids: page("running"),
    "finished": lambda ids: page("finished"),
    "finished, nothing found": lambda ids: page("finished", outcome="dropped", q="nothing of the kind"),
    "failed": lambda ids: page("failed"),
    "failed, by error": lambda ids: page("failed", group="error"),
    "failed, by task": lambda ids: page("failed", group="task"),
    "recurring": lambda ids: page("recurring"),
    "recurring, filtered": lambda ids: page("recurring", task="sync_customer", prefix="customer", state="waiting"),
    "calendar": lambda ids: page("recurring_calendar"),
    "calendar, run time": lambda ids: page("recurring_calendar", show="time"),
    "schedule": lambda ids: page("recurring_schedule", ids["schedule"]),
    "schedule, paused": lambda ids: page("recurring_schedule", ids["schedule, paused"]),
    "schedule, unreadable": lambda ids: page("recurring_schedule", ids["schedule, unreadable"]),
    "tasks": lambda ids: page("tasks"),
    "task": lambda ids: page("task_detail", "billing.tasks.send_invoice"),
    "task, week": lambda ids: page("task_detail", "not.registered", span="week"),
    "processes": lambda ids: page("processes"),
    "servers": lambda ids: page("servers"),
    **{
        f"job, {state}": lambda ids, state=state: page("job_detail", ids[state])  # type: ignore[misc]
        for state in ("scheduled", "retried", "ready", "claimed", "lost", "failed", "unknown", "waits", "ended")
    },
}
TABS = (
    *("overview", "scheduled", "queues", "limits", "running", "finished", "failed", "recurring", "tasks", "processes"),
    "servers",
)
