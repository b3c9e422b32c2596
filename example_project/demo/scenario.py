"""Scenario: the demo's evening at the market. Sales are put up, moved and called off, and tasks fail.

Times are in units, and the evening lasts eight of them.
"""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Max, Q
from django.utils import timezone

from demo.checker import Finding, check, match
from demo.console import Console, name_of
from demo.plan import ExpectedOutcome, PlannedJob
from demo.processes import Processes
from django_delayq import JobHandle
from market import failing_tasks, sales, tasks
from market.models import Notice, Sale, State
from market.run_log import RunOutcome, TaskRun
from market.templatetags.moments import span

#: Seconds after the last due time that recoveries, retries and a slow machine may take.
SLACK = 30.0
#: Seconds between two reads of the run log.
POLL_INTERVAL = 0.02


class Scenario:
    """Performs the evening, plans every job, and follows the run log that the workers write."""

    def __init__(self, unit: float, processes: Processes, console: Console) -> None:
        self.unit, self.processes, self.console = unit, processes, console
        self.plans: list[PlannedJob] = []
        self.handles: list[tuple[PlannedJob, JobHandle]] = []
        self.sales: dict[str, Sale] = {}
        #: Results of Django's own task, which counts the players' gold at the end.
        self.counts: list[Any] = []
        #: By sale: the amounts that players bid as soon as it is open.
        self.bids: dict[int, list[int]] = {}
        self._timed_actions: list[tuple[float, Callable[[], None]]] = []
        #: Primary key of the last run that was read, and the keys of those that had not ended then.
        self._last = TaskRun.objects.aggregate(last=Max("pk"))["last"] or 0
        self._running: set[int] = set()
        self._killed_at: datetime | None = None
        players = get_user_model().objects
        self.demo, self.mira = players.get(username="demo"), players.get(username="mira")

    # --- The evening -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Put the sales up, schedule the failing tasks, and plan the later actions."""
        self.console.began = time.monotonic()
        self.put_up(self.demo, "Silver compass", "gem", opens=1.2, lasts=1.8, bids=[40, 44, 60])
        self.put_up(self.mira, "Dragonbone dirk", "blade", opens=2.0, lasts=2.4, bids=[120])
        self.put_up(self.demo, "Map of a town not yet built", "scroll", opens=3.0, lasts=1.4, bids=[30, 35])
        self.put_up(self.mira, "Second-hand halo", "gem", opens=3.6, lasts=1.0)
        self.put_up(self.demo, "Lamp that remembers", "lantern", opens=4.0, lasts=2.2)
        self.put_up(self.mira, "Shield that has seen worse", "shield", opens=5.4, lasts=1.8, bids=[70, 75])
        self.schedule_failing(failing_tasks.fail_once, "the courier", after=0.8, expected=ExpectedOutcome.RETRIED)
        attempts = failing_tasks.RETRY.max_attempts
        self.schedule_failing(
            failing_tasks.fail_always, "a wrong address", after=1.6, expected=ExpectedOutcome.DEAD, attempts=attempts
        )
        self.schedule_failing(failing_tasks.run_long, "a riddle", 1.0, after=2.6, expected=ExpectedOutcome.KILLED)
        evening = timezone.now() + timedelta(seconds=7.6 * self.unit)
        self.counts = [
            tasks.count_gold.using(run_after=evening).enqueue(player.pk) for player in (self.demo, self.mira)
        ]
        self._timed_actions = [
            (1.0, lambda: self.move("Map of a town not yet built", opens=4.8)),
            (1.5, lambda: self.call_off("Second-hand halo")),
        ]

    def put_up(
        self, seller: Any, name: str, kind: str, *, opens: float, lasts: float, bids: list[int] | None = None
    ) -> None:
        """Put an item up for sale, by the same call as the sell page."""
        opens_in, open_for = timedelta(seconds=opens * self.unit), timedelta(seconds=lasts * self.unit)
        price = bids[0] if bids else 25
        sale = sales.put_up(
            seller=seller, name=name, kind=kind, starting_price=price, opens_in=opens_in, open_for=open_for
        )
        self.sales[name], self.bids[sale.pk] = sale, bids or []
        for task, due in (
            (tasks.send_reminder, sale.remind_at),
            (tasks.open_sale, sale.opens_at),
            (tasks.close_bids, sale.closes_at),
        ):
            plan = PlannedJob(task.__name__, name, due, sale_id=sale.pk)
            self.plans.append(plan)
            # The worker that opens the sale makes the job of the closing, so it does not exist yet.
            if job := task.get_job(key=sale.key):
                self.handles.append((plan, job))
        self.console.log("put up", name, f"opens in {span(opens_in)}")

    def schedule_failing(
        self, task: Any, subject: str, *arguments: Any, after: float, expected: ExpectedOutcome, attempts: int = 1
    ) -> None:
        """Schedule a task that fails or loses its worker."""
        job = task.after(after * self.unit).enqueue(subject, *arguments)
        plan = PlannedJob(task.__name__, subject, job.due, expected, attempts=attempts)
        self.plans.append(plan)
        self.handles.append((plan, job))

    def move(self, name: str, *, opens: float) -> None:
        """Move the opening of a sale; `opens` is counted from the beginning of the evening."""
        opens_in = opens * self.unit - (time.monotonic() - self.console.began)
        sale = self.sales[name] = sales.move(self.sales[name], opens_in=timedelta(seconds=opens_in))
        moments = {"send_reminder": sale.remind_at, "open_sale": sale.opens_at, "close_bids": sale.closes_at}
        for plan in self.planned_for(sale):
            plan.due = moments[plan.task]
            plan.expected = ExpectedOutcome.MOVED if plan.task != "close_bids" else ExpectedOutcome.DONE
        self.console.log("moved", name, f"opens in {span(timedelta(seconds=opens_in))} now", "warm")

    def call_off(self, name: str) -> None:
        """Call a sale off; from then on none of its jobs may run."""
        self.sales[name] = sales.call_off(self.sales[name])
        for plan in self.planned_for(self.sales[name]):
            plan.expected = ExpectedOutcome.CALLED_OFF
        self.console.log("called off", name, colour="warm")

    def _opened_before_reminder(self, sale: Sale) -> bool:
        runs = {run.task: run for run in self.task_runs() if run.sale_id == sale.pk}
        reminder, opening = runs.get("send_reminder"), runs.get("open_sale")
        return bool(reminder and opening and opening.ended and reminder.ended and reminder.ended > opening.started)

    def planned_for(self, sale: Sale) -> Iterator[PlannedJob]:
        return (plan for plan in self.plans if plan.sale_id == sale.pk)

    # --- Following ---------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Perform the actions that are due, and print the runs that ended since the last call."""
        self.processes.check()
        passed = (time.monotonic() - self.console.began) / self.unit
        while self._timed_actions and self._timed_actions[0][0] <= passed:
            self._timed_actions.pop(0)[1]()
        for run in (
            TaskRun.objects.filter(Q(pk__gt=self._last) | Q(pk__in=self._running)).order_by("pk").select_related("sale")
        ):
            self._last = max(self._last, run.pk)
            if run.ended is None:
                self._running.add(run.pk)
                if run.task == "run_long" and self._killed_at is None:
                    self.kill_worker()
                continue
            self._running.discard(run.pk)
            self.console.log_run(run)
            if run.recovered and self._killed_at:
                after = span(run.started - self._killed_at)
                self.console.log("recovered", name_of(run), f"began again {after} after the kill", "warm")
            if run.task == "open_sale" and run.outcome == RunOutcome.DONE:
                self.place_bids(run.sale_id)

    def place_bids(self, sale_id: int | None) -> None:
        """Place the planned bids for a sale that is open."""
        for amount in self.bids.pop(sale_id, []) if sale_id else []:
            sale = Sale.objects.get(pk=sale_id)
            bidder = self.mira if sale.seller_id == self.demo.pk else self.demo
            try:
                sales.bid(sale, bidder=bidder, amount=amount)
            except sales.NotNow as refusal:
                # A slow machine may open a sale after its closing time.
                self.console.log("bid refused", sale.name, str(refusal), "warm")
            else:
                self.console.log("bid", sale.name, f"{amount} gold by {bidder}")

    def kill_worker(self) -> None:
        """Kill the worker by SIGKILL while it runs a job, and start another."""
        self.processes.kill("worker")
        self._killed_at = timezone.now()
        self.console.log("killed", "the worker", "kill -9, in the middle of a job", "bad")
        pid = self.processes.start("worker", "run_worker")
        self.console.log("started", "another worker", f"pid {pid}")

    def play(self) -> list[Finding]:
        """Follow the evening until every job is settled, or until `SLACK` has passed. Returns the findings."""
        ends = max(plan.due for plan in self.plans).timestamp() + SLACK
        while True:
            self.poll()
            settled = not self._timed_actions and all(
                finding.settled for finding in match(self.plans, self.task_runs())
            )
            # Wait for the due times of called-off jobs too: they must not run.
            if settled and time.time() > max(plan.due for plan in self.plans).timestamp() and not self.unsettled_jobs():
                break
            if time.time() > ends:
                break
            time.sleep(POLL_INTERVAL)
        return check(self.plans, self.task_runs())

    def task_runs(self) -> list[TaskRun]:
        return list(TaskRun.objects.all())

    def unsettled_jobs(self) -> list[str]:
        """Return the jobs that are not in their final state; a run is settled shortly after its end."""
        expected = {ExpectedOutcome.DEAD: "dead"}
        for count in self.counts:
            count.refresh()
        waiting = [
            f"the gold of player {count.args[0]} is not counted" for count in self.counts if not count.is_finished
        ]
        return waiting + [
            f"{plan.task} for {plan.subject}: its job is {job.state}"
            for plan, job in self.handles
            if job.refresh().state != expected.get(plan.expected, "gone")
        ]

    def problems(self) -> list[str]:
        """Return what is wrong in the market and in Redis, apart from the runs."""
        found = self.unsettled_jobs()
        for name, sale in self.sales.items():
            sale.refresh_from_db()
            called_off = any(plan.expected is ExpectedOutcome.CALLED_OFF for plan in self.planned_for(sale))
            expected = State.CALLED_OFF if called_off else State.CLOSED
            if sale.state != expected:
                found.append(f"{name} is {sale.get_state_display().lower()}")
            best = sale.best_bid
            if sale.winning_bid != best:
                found.append(f"{name} went to {sale.winning_bid}, but the best bid was {best}")
            letters = sale.notices.filter(kind=Notice.Kind.REMINDER, player=sale.seller).count()
            # On a busy machine a reminder may begin after the opening; then nobody is reminded.
            is_late = letters == 0 and self._opened_before_reminder(sale)
            if letters != (not called_off) and not is_late:
                found.append(f"{name} has {letters} reminders")
        if all(count.is_finished for count in self.counts):
            earned = sum(count.return_value["earned"] for count in self.counts)
            if earned != sum(sale.winning_bid.amount for sale in self.sales.values() if sale.winning_bid):
                found.append(f"the clerk counted {earned} gold")
        return found
