"""Mutants of pools, each with the tests of which one must fail."""

from tests.stateful.mutations import Mutation

at = Mutation.at
ENDS = ("tests/integration/each_claim_ends",)
LOOP, THREADS, QUEUE, CHILD = (
    "worker/pools/asyncio.py",
    "worker/pools/threads.py",
    "worker/pools/claim_queue.py",
    "worker/pools/child.py",
)
CHILDREN, RECOVERY = "worker/pools/processes.py", "worker/pools/recovery.py"
RECOVERS = ("tests/integration/test_recovery.py",)
LEASES, HEARTBEATS = "worker/leases.py", ("tests/unit/test_heartbeats.py",)

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a worker whose slots can never be free again goes on",
        LEASES,
        "        if self._is_stuck(self._lease):\n",
        "        if False:\n",
    ): ("tests/integration/test_hard_timeout.py",),
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
        "a reply that begins and does not end is waited for",
        CHILD,
        "outcome, self.rss = self._read_reply(until)",
        "outcome, self.rss = self._pipe.recv()",
    ): ("tests/integration/test_process_pool.py",),
    at(
        "a text of a task runs its own code in the worker",
        "worker/execution.py",
        "    return str.__str__(str(error))\n",
        "    return str(error)\n",
    ): ("tests/integration/execution/test_outcomes.py",),
    at(
        "a time limit without a thread strikes once there is one",
        "worker/time_limit.py",
        "            self._armed = False\n            raise\n",
        "            raise\n",
    ): ("tests/unit/test_time_limit.py",),
    at(
        "a time limit that struck slows the interpreter down for good",
        "worker/time_limit.py",
        "_set_async_exc(threading.get_ident(), _Replacement)",
        "_set_async_exc(threading.get_ident(), ctypes.py_object())",
    ): ("tests/unit/test_time_limit.py",),
    at(
        "an attempt that failed leaves the lowered number of open files as it is",
        "worker/execution.py",
        "    process_limits.restore_open_files()\n",
        "",
    ): ("tests/unit/test_process_limits.py",),
    at(
        "a step that failed leaves the lowered number of open files as it is",
        "processes/service.py",
        "        process_limits.restore_open_files()\n",
        "",
    ): ("tests/unit/test_process_limits.py",),
    at(
        "a service goes on beside threads that lack recursion",
        "processes/service.py",
        "                process_limits.check_recursion(self._recursion_limit)\n",
        "",
    ): ("tests/unit/test_process_limits.py",),
    at(
        "jobs of the loop use a task factory that another job has set",
        LOOP,
        "Task(run_async(entry.claim), loop=self._loop, context=Context())",
        "self._loop.create_task(run_async(entry.claim), context=Context())",
    ): ENDS,
    at(
        "a job can shut down the executor of all others",
        LOOP,
        "            loop.shutdown_default_executor = _keep_executor  # type: ignore[method-assign]\n",
        "            pass\n",
    ): ENDS,
    at(
        "a loop that was closed runs on",
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
        "a late exception takes the next claim's signal with it",
        THREADS,
        "                    self._signals.put(None)\n",
        "                    pass\n",
    ): ENDS,
    at(
        "a claim leaves the queue before it is in a seat",
        QUEUE,
        "            entry.seat, seat.entry = seat, entry\n            self._waiting.popleft()\n",
        "            self._waiting.popleft()\n            entry.seat, seat.entry = seat, entry\n",
    ): ENDS,
    at(
        "a claim that waits for its process begins after the pool was closed",
        QUEUE,
        "            if self._closed or entry.outcome is not None:\n",
        "            if entry.outcome is not None:\n",
    ): ("tests/unit/test_claim_queue.py",),
    at(
        "an exception class that raises SystemExit ends its thread",
        "worker/execution.py",
        "    except BaseException as unprintable:\n",
        "    except Exception as unprintable:\n",
    ): ENDS,
    at(
        "the end of a child's pipe counts as the end of the child",
        CHILD,
        "            self._wait_exit(until)\n",
        "            self._process.join()\n",
    ): ("tests/integration/test_process_runner.py",),
    at(
        "a child whose reply cannot be read stays in use",
        CHILD,
        "        except Exception as error:\n            # The task",
        "        except ValueError as error:\n            # The task",
    ): ("tests/integration/test_process_runner.py",),
    at(
        "processes that died idle keep their places",
        CHILDREN,
        "                self._idle.remove(child)\n                child.kill()\n",
        "                child.kill()\n",
    ): RECOVERS,
    at(
        "a process whose thread could not start is waited for",
        RECOVERY,
        "            self._is_starting = False\n            logger",
        "            logger",
    ): RECOVERS,
    at(
        "a worker whose loop cannot be replaced goes on",
        LOOP,
        "                    os._exit(1)\n",
        "                    raise\n",
    ): ENDS,
    at(
        "plain jobs of the loop have recovery processes of their own",
        LOOP,
        "ThreadPool(size, recovery=None, ready=False)",
        "ThreadPool(size, recovery=RecoveryRunner(), ready=False)",
    ): ENDS,
    at(
        "the hard limit counts from the claim",
        LEASES,
        "    if began is None:\n        return now > claim.received_at + _LATEST_BEGIN\n",
        "    began = claim.received_at\n",
    ): HEARTBEATS,
    at(
        "the lease of a claim that never begins is renewed for ever",
        LEASES,
        "        return now > claim.received_at + _LATEST_BEGIN\n",
        "        return False\n",
    ): HEARTBEATS,
}
