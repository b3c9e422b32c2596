"""Planned bugs of the pools, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import Mutation

at = Mutation.at
ENDS = ("tests/integration/worker/pools/each_claim_ends",)
ACTIVE, ACTIVE_THREADS = (
    "worker/pools/active_threads.py",
    (
        "tests/unit/worker/test_active_threads.py",
        "tests/integration/worker/pools/each_claim_ends/test_active_threads.py",
    ),
)
LOOP, THREADS, QUEUE, CHILD = (
    "worker/pools/asyncio.py",
    "worker/pools/threads.py",
    "worker/pools/claim_queue.py",
    "worker/pools/child.py",
)
CHILDREN, RECOVERY = "worker/pools/processes.py", "worker/pools/recovery.py"
EXIT_HANDLERS = ("tests/integration/processes/test_exit_handlers.py",)
RECOVERS = ("tests/integration/worker/pools/test_recovery.py",)
LEASES, HEARTBEATS = "worker/claiming/leases.py", ("tests/unit/worker/test_heartbeats.py",)

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a worker whose slots are all stuck keeps running",
        "worker/claiming/heartbeats.py",
        "        if self._is_stuck(self._lease):\n",
        "        if False:\n",
    ): ("tests/integration/worker/pools/test_hard_timeout.py",),
    at(
        "a worker whose event loop is blocked keeps running",
        "worker/pools/asyncio.py",
        "        return monotonic() > self._logged_at + _SWEEP_INTERVAL and self._queue.overrun(seconds) > 0\n",
        "        return False\n",
    ): ("tests/integration/worker/pools/test_asyncio_pool.py",),
    at(
        "a child that is replaced runs no exit handlers",
        CHILDREN,
        "        if is_usable:\n",
        "        if False:\n",
    ): EXIT_HANDLERS,
    at(
        "a worker runs no exit handlers",
        "processes/shutdown.py",
        "        _run_within(max(until - monotonic(), self.optional_timeout), atexit._run_exitfuncs)\n",
        "",
    ): EXIT_HANDLERS,
    at(
        "a worker with one stuck thread counts as stuck",
        THREADS,
        "self._queue.overrun(seconds) >= self.size",
        "self._queue.overrun(seconds) > 0",
    ): ENDS,
    at(
        "a thread that cannot start ends the worker's step",
        THREADS,
        "            except RuntimeError as error:\n",
        "            except ValueError as error:\n",
    ): ENDS,
    at(
        "an incomplete reply of a child blocks its runner",
        CHILD,
        "                reply = self._read_reply(until)",
        "                reply = self._pipe.recv()",
    ): ("tests/integration/worker/pools/test_process_pool.py",),
    at(
        "an exception's str subclass runs its code in the worker",
        "job/errors/exception_text.py",
        "    return str.__str__(str(error))\n",
        "    return str(error)\n",
    ): ("tests/integration/worker/execution/test_outcomes.py",),
    at(
        "a time limit whose thread could not start fires later",
        "worker/time_limit.py",
        "            self._active = False\n            raise\n",
        "            raise\n",
    ): ("tests/unit/worker/test_time_limit.py",),
    at(
        "a time limit that fired leaves the interpreter slow",
        "worker/time_limit.py",
        "_set_async_exc(threading.get_ident(), _Replacement)",
        "_set_async_exc(threading.get_ident(), ctypes.py_object())",
    ): ("tests/unit/worker/test_time_limit.py",),
    at(
        "a failed attempt leaves the open file limit lowered",
        "worker/outcomes.py",
        "    process_limits.restore_open_files()\n",
        "",
    ): ("tests/unit/processes/test_process_limits.py",),
    at(
        "a failed step leaves the open file limit lowered",
        "processes/service.py",
        "        process_limits.restore_open_files()\n",
        "",
    ): ("tests/unit/processes/test_process_limits.py",),
    at(
        "a service ignores a lowered recursion limit",
        "processes/service.py",
        "                process_limits.check_recursion(self._recursion_limit)\n",
        "",
    ): ("tests/unit/processes/test_process_limits.py",),
    at(
        "a job's coroutine uses a task factory that another job set",
        LOOP,
        "Task(run_async(entry.claim, entry), loop=self._loop, context=Context())",
        "self._loop.create_task(run_async(entry.claim, entry), context=Context())",
    ): ENDS,
    at(
        "a job can shut down the executor that all jobs share",
        LOOP,
        "            loop.shutdown_default_executor = _keep_executor  # type: ignore[method-assign]\n",
        "            pass\n",
    ): ENDS,
    at(
        "a closed event loop is not replaced",
        LOOP,
        "                self._replace_loop(error)\n",
        "                pass\n",
    ): ENDS,
    at(
        "an interrupted thread forgets its claim",
        THREADS,
        "                    self._queue.recover(seat, error)\n",
        "                    seat.entry = None\n",
    ): ENDS,
    at(
        "a thread that an exception strikes counts as active for ever",
        ACTIVE,
        "        self.leave(seat)\n        # After",
        "        # After",
    ): ENDS,
    at(
        "jobs that wait leave the other threads idle",
        ACTIVE,
        "if few_ended or not IDLE <= busy <= PARALLEL:",
        "if few_ended:",
    ): ACTIVE_THREADS,
    at(
        "a job that computes for long holds up the others",
        ACTIVE,
        "if few_ended or not",
        "if not",
    ): ACTIVE_THREADS,
    at(
        "jobs that compute without the interpreter get fewer threads",
        ACTIVE,
        " or not BUSY * elapsed <= cpu <= PARALLEL * elapsed",
        " or not BUSY * elapsed <= cpu",
    ): ACTIVE_THREADS,
    at(
        "long jobs get fewer threads",
        ACTIVE,
        " or elapsed >= SHORT * finished",
        "",
    ): ACTIVE_THREADS,
    at(
        "a thread that leaves does not see a claim that was queued meanwhile",
        ACTIVE,
        "self.leave(seat)\n        # After",
        "self.leave(seat)\n        self._signals.get()\n        # After",
    ): ACTIVE_THREADS,
    at(
        "a thread that a long job holds counts as one that takes claims",
        ACTIVE,
        "held = self._held(since=monotonic() - INTERVAL)",
        "held = 0",
    ): ACTIVE_THREADS,
    at(
        "jobs that compute without the interpreter for milliseconds stay in one thread",
        ACTIVE,
        "self._claims.finished_count - finished < BUSY_LOOK / SHORT",
        "self._claims.finished_count == finished",
    ): ACTIVE_THREADS,
    at(
        "a standby that takes a claim leaves no other",
        ACTIVE,
        "        if wants_another and",
        "        if False and",
    ): ACTIVE_THREADS,
    at(
        "a measurement that has just begun decides on fewer threads",
        ACTIVE,
        "if elapsed < INTERVAL / 2 or not",
        "if not",
    ): ACTIVE_THREADS,
    at(
        "a thread that cannot be replaced stays the standby",
        THREADS,
        "                self._active_threads.leave(seat)\n",
        "                pass\n",
    ): ACTIVE_THREADS,
    at(
        "all threads are wanted after a pause, but not woken",
        ACTIVE,
        "        needed = min(count, self._wanted - len(self._active))\n",
        "        needed = min(count, 1)\n",
    ): ACTIVE_THREADS,
    at(
        "a claim leaves the queue before a thread holds it",
        QUEUE,
        "            entry.seat, seat.entry = seat, entry\n            self._waiting.popleft()\n",
        "            self._waiting.popleft()\n            entry.seat, seat.entry = seat, entry\n",
    ): ENDS,
    at(
        "a queued claim starts after its pool is closed",
        QUEUE,
        "            if self._closed or entry.outcome is not None:\n",
        "            if entry.outcome is not None:\n",
    ): ("tests/unit/worker/test_claim_queue.py",),
    at(
        "an exception whose str() raises SystemExit ends its thread",
        "job/errors/exception_text.py",
        "chain=chain))\n    except BaseException as unprintable:\n",
        "chain=chain))\n    except Exception as unprintable:\n",
    ): ENDS,
    at(
        "a closed pipe is treated as the end of its child process",
        CHILD,
        "            self._wait_exit(until)\n",
        "            self._process.join()\n",
    ): ("tests/integration/worker/pools/test_process_runner.py",),
    at(
        "a child whose reply is unreadable stays in use",
        CHILD,
        "        except Exception as error:\n            # The task",
        "        except ValueError as error:\n            # The task",
    ): ("tests/integration/worker/pools/test_process_runner.py",),
    at(
        "child processes that died idle keep their slots",
        CHILDREN,
        "                self._idle.remove(child)\n                child.kill()\n",
        "                child.kill()\n",
    ): RECOVERS,
    at(
        "the pool waits for a process whose starter thread failed",
        RECOVERY,
        "            self._is_starting = False\n            logger",
        "            logger",
    ): RECOVERS,
    at(
        "a worker whose event loop cannot be replaced keeps running",
        LOOP,
        "                    os._exit(1)\n",
        "                    raise\n",
    ): ENDS,
    at(
        "synchronous jobs of the asyncio pool get their own recovery processes",
        LOOP,
        "ThreadPool(size, recovery=None, ready=False)",
        "ThreadPool(size, recovery=RecoveryRunner(), ready=False)",
    ): ENDS,
    at(
        "the hard timeout counts from the claim",
        LEASES,
        "    if began is None:\n        return now > claim.received_at + _LATEST_BEGIN\n",
        "    began = claim.received_at\n",
    ): HEARTBEATS,
    at(
        "the lease of a claim that never starts is renewed without limit",
        LEASES,
        "        return now > claim.received_at + _LATEST_BEGIN\n",
        "        return False\n",
    ): HEARTBEATS,
    at(
        "code that was asked to stop begins",
        "worker/claiming/leases.py",
        " or lease in self.stopping:\n                return False",
        ":\n                return False",
    ): ("tests/unit/worker/test_held_claims.py",),
    at(
        "a repeated heartbeat stops a job again",
        "worker/claiming/leases.py",
        " or (known is not None and _is_same_end(known, until, seconds))",
        "",
    ): ("tests/unit/worker/test_held_claims.py",),
    at(
        "progress is written at each call",
        "worker/claiming/heartbeats.py",
        "elif self._held.has_progress and now >= self._write_at:",
        "elif self._held.has_progress:",
    ): ("tests/unit/worker/test_held_claims.py",),
    at(
        "progress that could not be written is lost",
        "worker/claiming/leases.py",
        "self._progress = {**progress, **self._progress}",
        "pass",
    ): ("tests/unit/worker/test_held_claims.py",),
    at(
        "a worker reads its own notification and waits on",
        "worker/claiming/heartbeats.py",
        "self._beat_at, self._notified = 0.0, True",
        "pass",
    ): ("tests/integration/worker/test_stopping.py",),
    at(
        "a child that does not look is never killed",
        "worker/pools/child.py",
        "        watch(monotonic() + seconds, limit)\n",
        "",
    ): ("tests/integration/worker/test_stopping.py",),
    at(
        "a child is killed though a later stop gave it more time",
        "worker/pools/child.py",
        "limit.active and self.lease == limit.lease",
        "self.lease == limit.lease",
    ): ("tests/integration/worker/test_stopping.py",),
    at(
        "a stop whose end is over is passed on again",
        "worker/claiming/leases.py",
        " or (seconds <= 0 and known <= until)",
        "",
    ): ("tests/unit/worker/test_held_claims.py",),
    at(
        "a coroutine that refuses to end keeps its job",
        "worker/pools/asyncio.py",
        "            self._stop_timers[entry] = self._loop.call_later(seconds, self._cancel, entry, outcome)\n",
        "",
    ): ("tests/integration/worker/test_stopping.py",),
    at(
        "a stop hits the claim after the one that the caller saw",
        "store/lua/stop.lua",
        "read_claim(record, token)",
        "read_claim(record, string.sub(record or '', 1, 16))",
    ): ("tests/integration/store/operations/test_stop.py",),
    at(
        "a stop is forgotten when its worker is lost",
        "dispatcher/dispatcher.py",
        "OutcomeKind.STOPPED if item.stops else kind",
        "kind",
    ): ("tests/integration/worker/test_stopping.py",),
}
