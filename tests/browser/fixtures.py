"""A shop's jobs in every state, the reports of its processes for the last hour, and its failed jobs."""

import math
from dataclasses import replace
from itertools import count
from random import Random
from time import time_ns
from typing import Any

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ending import EndingRow
from django_delayq.job.ids import to_text
from django_delayq.job.job import Job
from django_delayq.job.outcome import Action, Decision
from django_delayq.metrics import MetricsBuffer
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.claims import Settlement
from django_delayq.store.enqueue import BATCH
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.schedules.stored_schedule import DECLARED, PAUSED
from django_delayq.testing.fake_clock import FakeClock
from tests.admin.schedule_records import add_schedule, rewrite
from tests.browser.sample_tasks import build_report, close_auction, send_invoice, sync_customer
from tests.factories import unsent
from tests.shard_apis import DAY, HOUR, SECOND, ShardApis, uncounted

MINUTE = 60 * SECOND
TASKS = (send_invoice, sync_customer, close_auction, build_report)
DISPATCHERS, WORKERS = (b"DISPATC1", b"DISPATC2"), (b"WORKER-1", b"WORKER-2", b"WORKER-3")
_FRAMES = 'Traceback (most recent call last):\n  File "/srv/shop/{place}\n{line}\n{error}\n'
TIMED_OUT = _FRAMES.format(
    place='billing/tasks.py", line 31, in send_invoice',
    line='    smtp.send_message(letter)\n  File "/usr/lib/python3.12/smtplib.py", line 405, in getreply',
    error="smtplib.SMTPServerDisconnected: Connection closed: timed out after 10 s",
)
NO_ID = _FRAMES.format(
    place='crm/tasks.py", line 18, in sync_customer', line='    known = answer["id"]', error="KeyError: 'id'"
)
FULL = _FRAMES.format(
    place='stats/tasks.py", line 77, in build_report',
    line="    sheet.save(path)",
    error="OSError: [Errno 28] No space left on device: '/var/reports/2026-11-20.xlsx'",
)


class Fixtures:
    """The contents of the store; `ids` has some job ids by name."""

    def __init__(self, url: str) -> None:
        self._random, self._serial = Random(4), count(1)
        self._ended: list[EndingRow] = []
        self.now_us = time_ns() // 1_000
        self.clock = FakeClock(self.now_us)
        self.apis = ShardApis(url, clock=self.clock)
        self.ids: dict[str, str] = {}
        self._workers = [self.apis.worker(code) for code in WORKERS]

    def fill(self, scheduled: int = 400) -> "Fixtures":
        """Store everything, the oldest first."""
        self._history()
        self._failed()
        self._running()
        self._waiting(scheduled)
        self._recurring()
        self.present()
        self.apis.operations.pause("reports", by="ann")
        return self

    def add(self, *, key: str = "c-1") -> str:
        """Schedule one more job in an hour; return its id."""
        job = self.job(sync_customer, key)
        self.send((job, self.now_us + HOUR))
        return job.id

    def close(self) -> None:
        """Close the connections."""
        self.apis.close()

    def present(self) -> None:
        """Report the status of the processes as of now."""
        for number, code in enumerate(DISPATCHERS):
            self._report(
                code, "dispatcher", name=f"web{number + 1}:4410", promoted=9_105 * (1 - number), lag_p95_us=38_000
            )
        queues = (["email", "default"], ["default", "reports"], [])
        for number, code in enumerate(WORKERS):
            lost = number == 2
            self.clock.now_us = self.now_us - (95 * SECOND if lost else 0)
            held = {"default": 1} if lost else {queues[number][0]: 2 - number}
            oldest_us = self.now_us - (2 * MINUTE if lost else 12 * SECOND)
            self._report(
                code,
                "worker",
                name=f"web{number + 1}:4411",
                queues=queues[number],
                slots=4,
                running=held,
                oldest_us=oldest_us,
            )
        self.clock.now_us = self.now_us

    def job(self, task: Any, *args: Any, ago_us: int = 0, queue: str = "", **kwargs: Any) -> Job:
        """Return a job that was created some time before now."""
        raw_id = ((self.clock.now_us - ago_us) // 1_000 << 48 | 0x5EED_0000_0000 + next(self._serial) * 7919).to_bytes(
            12
        )
        retry = task.retry or self.apis.config.tasks.retry
        return Job(
            raw_id=raw_id,
            shard=0,
            task=task.name,
            queue=queue or task.queue,
            priority=task.priority,
            args=list(args),
            kwargs=kwargs,
            retry=retry,
        )

    def send(self, *jobs: tuple[Job, int | None]) -> None:
        """Enqueue jobs, each with its due time in µs since the epoch, or None: now."""
        drafts = [
            unsent(job, max_payload=4_000_000).rescheduled(delay_us=None, due_us=due_us, called_at=0.0)
            for job, due_us in jobs
        ]
        for start in range(0, len(drafts), BATCH):
            self.apis.enqueue(*drafts[start : start + BATCH])

    def fail(self, job: Job, error: str, *, times: int, how: Action, delay_us: int = 0) -> str:
        """Let a job fail so many times until now, and then wait or die."""
        self.send((job, None))
        worker = self._workers[0]
        (claim,) = worker.take(1, job.queue).claims
        attempts = AttemptHistory()
        for number in range(times, 0, -1):
            ended_us = self.clock.now_us - (2**number - 2) * 10 * SECOND
            attempts = attempts.add(
                worker="web1:4411",
                started_us=ended_us - 10 * SECOND - number * 1_234,
                ended_us=ended_us,
                ending="failed",
                error=error,
            )
        decision = Decision(action=how, delay_us=delay_us, crash_suspected=False)
        assert not worker.take(0, settle=[Settlement(claim=claim, decision=decision, attempts=attempts)]).lost
        return job.id

    def wait_for_code(self, job: Job) -> str:
        """Let a job that was snoozed and cut short before meet no worker that knows it."""
        self.send((job, None))
        worker = self._workers[0]
        (claim,) = worker.take(1, job.queue).claims
        attempts = claim.attempts.snoozed().cut_short().cut_short()
        attempts = attempts.waited("unknown task", now_us=self.clock.now_us - 5 * MINUTE)
        assert not worker.take(0, settle=[uncounted(claim, attempts, delay=30 * SECOND)]).lost
        return job.id

    def _report(self, code: bytes, kind: str, *, tally: MetricsBuffer | None = None, **said: Any) -> None:
        said |= {"version": "1.0.0", "started_us": self.now_us - 2 * DAY, "rss": 84 << 20}
        rows, endings = tally.take() if tally else {}, self._ended
        self._ended = []
        ProcessReports(self.apis.shard).report(code, kind, said, rows, endings)

    def _history(self) -> None:
        draw = self._random
        for back in range(59, -1, -1):
            self.clock.now_us = self.now_us - back * MINUTE
            tally = MetricsBuffer()
            load = int(60 + 40 * math.sin(back / 9) + draw.randrange(15))
            for _ in range(load):
                task = draw.choices(TASKS, [5, 8, 3, 1])[0]
                outcome = draw.choices(["done", "retried", "dead"], [96, 3.7, 0.3])[0]
                lag_us, run_us = int(draw.lognormvariate(9.5, 0.7)), int(draw.lognormvariate(12, 1.1))
                tally.count_attempt(outcome, queue=task.queue, task=task.name, lag_us=lag_us, run_us=run_us)
                if outcome != "retried":
                    raw_id = self.job(task, ago_us=3 * MINUTE).raw_id
                    due_us = self.clock.now_us - MINUTE
                    self._ended.append(
                        (raw_id, task.name, task.queue, 0, outcome, due_us, lag_us, run_us, load % 2, "")
                    )
                    self.ids["ended"] = to_text(raw_id, 0)
            for _ in range(back % 3):
                tally.count_attempt("snoozed", queue="email", task=send_invoice.name, lag_us=10_000, run_us=200_000)
            self._report(WORKERS[0], "worker", tally=tally, name="web1:4411")
        self.clock.now_us = self.now_us

    def _failed(self) -> None:
        for number, back in enumerate((40_000, 9_000, 9_000, 8_990, 3_100, 3_000, 1_200, 900, 600, 540, 320, 61, 5)):
            self.clock.now_us = self.now_us - back * SECOND
            task, error, times = (
                (send_invoice, TIMED_OUT, 5),
                (sync_customer, NO_ID, 8),
                (send_invoice, TIMED_OUT, 5),
                (build_report, FULL, 3),
            )[number % 4]
            job = self.job(task, *self._arguments(task, number)[0], ago_us=HOUR, **self._arguments(task, number)[1])
            self.ids["failed"] = self.fail(job, error, times=times, how=Action.DEAD_LETTER)
        job = replace(self.job(sync_customer, 17), task="old.tasks.removed")
        self.ids["unknown"] = self.fail(
            job,
            "django_delayq.exceptions.UnknownTask: No task is registered as 'old.tasks.removed'",
            times=1,
            how=Action.DEAD_LETTER,
        )
        self.clock.now_us = self.now_us

    def _waiting(self, scheduled: int) -> None:
        draw = self._random
        retried = self.job(send_invoice, 1999, lang="fr", token="t", ago_us=HOUR)
        self.ids["retried"] = self.fail(retried, TIMED_OUT, times=2, how=Action.RETRY, delay_us=150 * SECOND)
        self.ids["waits"] = self.wait_for_code(self.job(build_report, "2026-11", ago_us=HOUR))
        jobs: list[tuple[Job, int | None]] = []
        for number in range(scheduled):
            task = draw.choices(TASKS, [5, 8, 3, 1])[0]
            args, kwargs = self._arguments(task, number)
            delay = draw.choice((draw.uniform(20, 3_600), abs(draw.gauss(30_000, 9_000)), draw.uniform(60, 86_400)))
            job = self.job(task, *args, ago_us=draw.randrange(2 * HOUR), **kwargs)
            jobs.append((job, self.now_us + int((90 + delay) * SECOND)))
        first = self.job(send_invoice, 2001, lang="de", token="secret", ago_us=3 * MINUTE)
        self.send(*jobs, (first, self.now_us + 80 * SECOND))
        self.ids["scheduled"] = first.id
        for number in range(37):
            task = draw.choice(TASKS)
            args, kwargs = self._arguments(task, number)
            self.ids[f"ready {task.queue}"] = self.ids["ready"] = (job := self.job(task, *args, **kwargs)).id
            self.send((job, None))

    def _running(self) -> None:
        for number, (worker, queue) in enumerate(zip(self._workers, ("email", "default", "default"), strict=True)):
            lost = number == 2
            self.clock.now_us = self.now_us - (2 * MINUTE if lost else 12 * SECOND)
            task = send_invoice if queue == "email" else close_auction
            self.send(*((self.job(task, 5_000 + number + other), None) for other in range(1 if number else 2)))
            claims = worker.take(2, queue, description=f"web{number + 1}:4411").claims
            self.ids["lost" if lost else "claimed"] = to_text(claims[0].raw_id, 0)
        self.clock.now_us = self.now_us

    def _recurring(self) -> None:
        """Store recurring schedules in each state."""
        draw, ago = self._random, self.now_us
        took = [(RunOutcome.DONE, draw.randrange(200, 90_000)) for _ in range(20)]
        failed = [(RunOutcome.FAILED, 10_400)] * 5
        berlin = {"tz": "Europe/Berlin"}

        def add(name: str, task: Any, *args: Any, record: dict[str, Any] | None = None, **options: Any) -> str:
            return add_schedule(self.apis, name, task=task.name, queue=task.queue, args=args, record=record, **options)

        for number in range(12):
            add(
                f"customer {4_700 + number}",
                sync_customer,
                f"c-{number}",
                "s3cr3t",
                cron=f"{draw.randrange(60)} {draw.randrange(5, 20)} * * mon-fri",
                record={"outcomes": took[number:], "last_end_us": ago - draw.randrange(DAY)},
                **berlin,
            )
        self.ids["schedule"] = add(
            "nightly",
            build_report,
            "sales",
            "today",
            cron="0 3 * * *",
            jitter=300,
            overlap="wait",
            pause_after=5,
            record={"outcomes": [(RunOutcome.SKIPPED, 0), *took[:12]], "last_end_us": ago - HOUR},
            **berlin,
        )
        self.ids["schedule, paused"] = add(
            "rates",
            close_auction,
            1,
            every=300,
            pause_after=5,
            record={"flags": PAUSED, "failures": 5, "outcomes": failed + took[:3], "last_end_us": ago - HOUR},
        )
        running = {"running": bytes.fromhex(self.ids["claimed"][:24]), "outcomes": took, "last_end_us": ago - MINUTE}
        add("sweep", close_auction, 2, every=60, record={"flags": DECLARED, **running})
        add("campaign", send_invoice, 3, every=3_600, record={"flags": DECLARED})
        self.ids["schedule, unreadable"] = add("daily", send_invoice, 4, every=86_400)
        rewrite(self.apis, self.ids["schedule, unreadable"], b"every 86400", b"daily 86400")

    def _arguments(self, task: Any, number: int) -> tuple[list[Any], dict[str, Any]]:
        if task is send_invoice:
            return [1_000 + number], {"lang": ("de", "en", "fr")[number % 3], "token": "s3cr3t"}
        if task is sync_customer:
            return [f"c-{number:05}"], {"password": "s3cr3t"}
        if task is close_auction:
            return [77_000 + number], {}
        return [("sales", "stock")[number % 2], f"2026-11-{number % 28 + 1:02}"], {}
