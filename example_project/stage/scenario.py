"""Scenario: the demo's evening at the market. Sales are put up, moved, called off, and things go wrong.

Everything happens in this many units, and a unit is an eighth of the seconds asked for: ten minutes of a real
market take less than one.
"""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Max, Q
from django.utils import timezone

from django_delayq import JobHandle
from market import rehearsals, sales, tasks
from market.ledger import Ending, LedgerEntry
from market.models import Notice, Sale, State
from market.templatetags.moments import span
from stage.console import Console, name_of
from stage.judge import Finding, judge, match
from stage.plan import Fate, Plan
from stage.processes import Processes

#: Seconds beyond the last due time that recoveries, retries and a slow machine may take.
SLACK = 30.0
#: Seconds between two looks at the ledger.
GLANCE = 0.02


class Scenario:
    """Acts the evening out, keeps a plan for every job, and watches the ledger for what the workers did."""

    def __init__(self, unit: float, processes: Processes, console: Console) -> None:
        self.unit, self.processes, self.console = unit, processes, console
        self.plans: list[Plan] = []
        self.handles: list[tuple[Plan, JobHandle]] = []
        self.sales: dict[str, Sale] = {}
        #: Results of Django's own task, which counts the players' gold when all is over.
        self.counts: list[Any] = []
        #: What players offer as soon as a sale is open.
        self.bids: dict[int, list[int]] = {}
        self._cues: list[tuple[float, Callable[[], None]]] = []
        #: The ledger as far as it was read, and the runs in it that had not ended then.
        self._last = LedgerEntry.objects.aggregate(last=Max("pk"))["last"] or 0
        self._open: set[int] = set()
        self._killed_at: datetime | None = None
        players = get_user_model().objects
        self.demo, self.mira = players.get(username="demo"), players.get(username="mira")

    # --- The evening -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Put everything up, and take down what is to happen later."""
        self.console.began = time.monotonic()
        self.put_up(self.demo, "Silver compass", "gem", opens=1.2, lasts=1.8, bids=[40, 44, 60])
        self.put_up(self.mira, "Dragonbone dirk", "blade", opens=2.0, lasts=2.4, bids=[120])
        self.put_up(self.demo, "Map of a town not yet built", "scroll", opens=3.0, lasts=1.4, bids=[30, 35])
        self.put_up(self.mira, "Second-hand halo", "gem", opens=3.6, lasts=1.0)
        self.put_up(self.demo, "Lamp that remembers", "lantern", opens=4.0, lasts=2.2)
        self.put_up(self.mira, "Shield that has seen worse", "shield", opens=5.4, lasts=1.8, bids=[70, 75])
        self.rehearse(rehearsals.stumble, "the courier", after=0.8, fate=Fate.RETRIED)
        attempts = rehearsals.PATIENCE.max_attempts
        self.rehearse(rehearsals.despair, "a wrong address", after=1.6, fate=Fate.DEAD, attempts=attempts)
        self.rehearse(rehearsals.ponder, "a riddle", 1.0, after=2.6, fate=Fate.KILLED)
        evening = timezone.now() + timedelta(seconds=7.6 * self.unit)
        self.counts = [
            tasks.count_gold.using(run_after=evening).enqueue(player.pk) for player in (self.demo, self.mira)
        ]
        self._cues = [
            (1.0, lambda: self.move("Map of a town not yet built", opens=4.8)),
            (1.5, lambda: self.call_off("Second-hand halo")),
        ]

    def put_up(
        self, seller: Any, name: str, kind: str, *, opens: float, lasts: float, bids: list[int] | None = None
    ) -> None:
        """Put an item up for sale, by the very call that the sell page makes."""
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
            plan = Plan(task.__name__, name, due, sale_id=sale.pk)
            self.plans.append(plan)
            # The job of the closing is made by the worker that opens the sale.
            if job := task.get_job(key=sale.key):
                self.handles.append((plan, job))
        self.console.event("put up", name, f"opens in {span(opens_in)}")

    def rehearse(self, task: Any, subject: str, *arguments: Any, after: float, fate: Fate, attempts: int = 1) -> None:
        """Schedule a task that goes wrong."""
        job = task.after(after * self.unit).enqueue(subject, *arguments)
        plan = Plan(task.__name__, subject, job.due, fate, attempts=attempts)
        self.plans.append(plan)
        self.handles.append((plan, job))

    def move(self, name: str, *, opens: float) -> None:
        """Move a sale to another time, counted from the beginning of the evening."""
        opens_in = opens * self.unit - (time.monotonic() - self.console.began)
        sale = self.sales[name] = sales.move(self.sales[name], opens_in=timedelta(seconds=opens_in))
        moments = {"send_reminder": sale.remind_at, "open_sale": sale.opens_at, "close_bids": sale.closes_at}
        for plan in self.about(sale):
            plan.due, plan.fate = moments[plan.task], Fate.MOVED if plan.task != "close_bids" else Fate.DONE
        self.console.event("moved", name, f"opens in {span(timedelta(seconds=opens_in))} now", "warm")

    def call_off(self, name: str) -> None:
        """Call a sale off; none of its jobs may run."""
        self.sales[name] = sales.call_off(self.sales[name])
        for plan in self.about(self.sales[name]):
            plan.fate = Fate.CALLED_OFF
        self.console.event("called off", name, colour="warm")

    def about(self, sale: Sale) -> Iterator[Plan]:
        return (plan for plan in self.plans if plan.sale_id == sale.pk)

    # --- Watching ----------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Act what is to be acted now, and report the runs that ended since the last look."""
        self.processes.check()
        passed = (time.monotonic() - self.console.began) / self.unit
        while self._cues and self._cues[0][0] <= passed:
            self._cues.pop(0)[1]()
        for entry in (
            LedgerEntry.objects.filter(Q(pk__gt=self._last) | Q(pk__in=self._open))
            .order_by("pk")
            .select_related("sale")
        ):
            self._last = max(self._last, entry.pk)
            if entry.ended is None:
                self._open.add(entry.pk)
                if entry.task == "ponder" and self._killed_at is None:
                    self.kill_worker()
                continue
            self._open.discard(entry.pk)
            self.console.run(entry)
            if entry.recovered and self._killed_at:
                after = span(entry.started - self._killed_at)
                self.console.event("recovered", name_of(entry), f"began again {after} after the kill", "warm")
            if entry.task == "open_sale" and entry.ending == Ending.DONE:
                self.offer(entry.sale_id)

    def offer(self, sale_id: int | None) -> None:
        """Let the players bid for a sale that is open."""
        for amount in self.bids.pop(sale_id, []) if sale_id else []:
            sale = Sale.objects.get(pk=sale_id)
            bidder = self.mira if sale.seller_id == self.demo.pk else self.demo
            sales.bid(sale, bidder=bidder, amount=amount)
            self.console.event("bid", sale.name, f"{amount} gold by {bidder}")

    def kill_worker(self) -> None:
        """End the worker by SIGKILL while it runs a job, and start another."""
        self.processes.kill("worker")
        self._killed_at = timezone.now()
        self.console.event("killed", "the worker", "kill -9, in the middle of a job", "bad")
        pid = self.processes.start("worker", "run_worker")
        self.console.event("started", "another worker", f"pid {pid}")

    def play(self) -> list[Finding]:
        """Watch until every plan is settled, or until it is clear that one never will be."""
        ends = max(plan.due for plan in self.plans).timestamp() + SLACK
        while True:
            self.watch()
            settled = not self._cues and all(finding.settled for finding in match(self.plans, self.entries()))
            # Also those that were called off get the chance to run, which they must not take.
            if settled and time.time() > max(plan.due for plan in self.plans).timestamp() and not self.restless():
                break
            if time.time() > ends:
                break
            time.sleep(GLANCE)
        return judge(self.plans, self.entries())

    def entries(self) -> list[LedgerEntry]:
        return list(LedgerEntry.objects.all())

    def restless(self) -> list[str]:
        """The jobs that are not where they should end up; a run that has ended is settled a moment later."""
        expected = {Fate.DEAD: "dead"}
        for count in self.counts:
            count.refresh()
        waiting = [
            f"the gold of player {count.args[0]} is not counted" for count in self.counts if not count.is_finished
        ]
        return waiting + [
            f"{plan.task} for {plan.subject}: its job is {job.state}"
            for plan, job in self.handles
            if job.refresh().state != expected.get(plan.fate, "gone")
        ]

    def problems(self) -> list[str]:
        """What is wrong in the market and in Redis, beside the runs."""
        found = self.restless()
        for name, sale in self.sales.items():
            sale.refresh_from_db()
            called_off = any(plan.fate is Fate.CALLED_OFF for plan in self.about(sale))
            wanted = State.CALLED_OFF if called_off else State.CLOSED
            if sale.state != wanted:
                found.append(f"{name} is {sale.get_state_display().lower()}")
            best = sale.best_bid
            if sale.winning_bid != best:
                found.append(f"{name} went to {sale.winning_bid}, but the best bid was {best}")
            letters = sale.notices.filter(kind=Notice.Kind.REMINDER, player=sale.seller).count()
            if letters != (not called_off):
                found.append(f"{name} has {letters} reminders")
        if all(count.is_finished for count in self.counts):
            earned = sum(count.return_value["earned"] for count in self.counts)
            if earned != sum(sale.winning_bid.amount for sale in self.sales.values() if sale.winning_bid):
                found.append(f"the clerk counted {earned} gold")
        return found
