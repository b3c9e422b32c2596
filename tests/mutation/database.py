"""Planned bugs of the database connections, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import Mutation

at = Mutation.at
USER_CODE, EMITTER = "tests/integration/worker/test_user_code.py", "tests/unit/processes/test_emitter.py"
ASYNCIO = "tests/databases/test_asyncio.py"
SCHEDULES = "tests/integration/task/schedules"
CONNECTIONS = "tests/databases/test_connections.py"
AUTOCOMMIT = "tests/databases/test_autocommit.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a change of a schedule that fails after the commit is forgotten",
        "task/outbox.py",
        "                self.changes[0]()\n                self.changes.pop(0)\n",
        "                self.changes.pop(0)()\n",
    ): (f"{SCHEDULES}/test_transactions.py",),
    at(
        "a schedule is deleted before the commit",
        "task/recurring/schedules.py",
        "        if waits := self._waits():\n            outbox.after_commit(waits, partial(self._delete",
        "        if waits := ():\n            outbox.after_commit(waits, partial(self._delete",
    ): (f"{SCHEDULES}/test_transactions.py",),
    at(
        "an iterator of schedules stores them inside its own transaction",
        "task/recurring/schedules.py",
        "check=self._check_no_transaction)",
        "check=None)",
    ): (f"{SCHEDULES}/test_set_many.py",),
    at(
        "a retry_delay queries in the transaction that the task left open",
        "worker/execution.py",
        "    await caller.clean()\n    delay_us",
        "    delay_us",
    ): ("tests/integration/worker/execution/test_connections.py",),
    at(
        "the transaction state of the driver is ignored",
        "processes/database.py",
        "    return driver_state(driver, connection.autocommit)\n",
        "    return ConnectionState(False, False)\n",
    ): (CONNECTIONS,),
    at(
        "the next job gets a connection with autocommit off",
        "processes/database.py",
        "        if unfinished or unusable or close:\n",
        "        if unfinished or close:\n",
    ): (AUTOCOMMIT,),
    at(
        "unfinished work is not reported if the driver cannot report its state",
        "processes/database.py",
        "        return ConnectionState(unfinished=not connection.autocommit, unusable=True)\n",
        "        return ConnectionState(unfinished=False, unusable=True)\n",
    ): (AUTOCOMMIT,),
    at(
        "unfinished work on a lost PostgreSQL connection is not reported",
        "processes/database.py",
        "        return ConnectionState(not (autocommit and driver.autocommit), unusable=True)\n",
        "        return ConnectionState(False, unusable=True)\n",
    ): (AUTOCOMMIT,),
    at(
        "unfinished work is not reported if the PostgreSQL driver's autocommit is off",
        "processes/database.py",
        "    return ConnectionState(status in _PG_IN_TRANSACTION, driver",
        "    return ConnectionState(autocommit is driver.autocommit and status in _PG_IN_TRANSACTION, driver",
    ): (AUTOCOMMIT,),
    at(
        "a manual transaction that was committed fails on MySQL",
        "processes/database.py",
        "inside = not on if status is None else bool(status & 1)",
        "inside = not on or bool(status & 1)",
    ): (AUTOCOMMIT,),
    at(
        "a time limit leaves database connections open",
        "worker/execution.py",
        "            if limit.expired:\n                database.invalidate()\n",
        "            pass\n",
    ): (CONNECTIONS,),
    at(
        "a success may leave a transaction open",
        "worker/execution.py",
        "        outcome = await _with_delay(failed(left_open, job), task, claim, job, caller)\n",
        "",
    ): (CONNECTIONS,),
    at(
        "closing a connection leaves its atomic block marked as open",
        "processes/database.py",
        "    connection.in_atomic_block = connection.needs_rollback = connection.closed_in_transaction = False\n",
        "",
    ): (CONNECTIONS,),
    at(
        "on_commit hooks of another job's transaction are kept",
        "processes/database.py",
        "connection.in_atomic_block or connection.savepoint_ids or connection.run_on_commit",
        "connection.in_atomic_block or connection.savepoint_ids",
    ): (CONNECTIONS,),
    at(
        "a forwarder's function keeps a dead connection",
        "worker/execution.py",
        "        left_open = database.clean()\n",
        "        left_open = None\n",
    ): (CONNECTIONS,),
    at(
        "coroutines keep their connections while they sleep",
        "processes/database.py",
        "            connection.close()\n    return connection.connection is None\n",
        "            pass\n    return connection.connection is None\n",
    ): (ASYNCIO,),
    at(
        "a coroutine that queries steadily reconnects all the time",
        "processes/idle_connections.py",
        "            self._cursors.add(made)\n            self._used_at[alias] = monotonic()\n",
        "            self._cursors.add(made)\n",
    ): (ASYNCIO,),
    at(
        "each opening of a connection schedules another check",
        "processes/idle_connections.py",
        "        if self._check_scheduled:\n            return\n",
        "",
    ): (ASYNCIO,),
    at(
        "a coroutine's transaction ends when it sleeps",
        "processes/database.py",
        "        if connection.get_autocommit() and not any(state_of(connection)):\n",
        "        if True:\n",
    ): (ASYNCIO,),
    at(
        "a coroutine's cursor is closed while it sleeps",
        "processes/idle_connections.py",
        "elif self._cursors or not close_if_idle(connection):",
        "elif not close_if_idle(connection):",
    ): (ASYNCIO,),
    at(
        "signal receivers keep a dead connection",
        "processes/emitter.py",
        "from django_delayq.processes import database\n",
        "from unittest.mock import Mock\n\ndatabase = Mock(clean=lambda: None)\n",
    ): (USER_CODE,),
    at(
        "a receiver that exits ends the attempt",
        "signals.py",
        "        if threading.current_thread() is threading.main_thread():\n            raise\n",
        "        raise\n",
    ): ("tests/integration/worker/execution/test_context.py",),
    at(
        "an exception of a receiver is not logged",
        "processes/emitter.py",
        "    except BaseException:\n",
        "    except ZeroDivisionError:\n",
    ): (EMITTER,),
    at(
        "an open transaction of a receiver is logged as one of a task",
        "processes/emitter.py",
        'it was rolled back", names)',
        'it was rolled back", left_open)',
    ): (EMITTER,),
    at(
        "an exception ends the emitter's thread",
        "processes/emitter.py",
        "            with suppress(BaseException):\n",
        "            with suppress(ValueError):\n",
    ): (EMITTER,),
    at(
        "a worker that waits for signal receivers ignores stop signals",
        "management/starting.py",
        "        emitter.lift_limit()\n",
        "",
    ): ("tests/integration/processes/test_shutdown.py",),
    at(
        "a process whose service failed waits for its job threads",
        "management/commands/run_worker.py",
        "            shutdown.end_process(code=1)\n",
        "            raise\n",
    ): ("tests/integration/processes/test_shutdown.py",),
    at(
        "the emitter's queue is unbounded",
        "processes/emitter.py",
        "            self._changed.wait_for(lambda: self._left < self._limit)\n",
        "",
    ): (EMITTER,),
    at(
        "pending signals are lost when the process ends",
        "processes/shutdown.py",
        "        emitter.flush(_INTERRUPTED_TIMEOUT if self.has_deadline else _END_TIMEOUT)\n",
        "",
    ): (USER_CODE,),
    at(
        "an exception of a log handler propagates",
        "logs.py",
        "        except BaseException as error:\n",
        "        except ZeroDivisionError as error:\n",
    ): ("tests/unit/test_log.py", USER_CODE),
}
