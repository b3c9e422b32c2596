"""Mutants of database, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at
USER_CODE, EMITTER = "tests/integration/test_user_code.py", "tests/unit/test_emitter.py"
ASYNCIO = "tests/databases/test_asyncio.py"
CONNECTIONS = "tests/databases/test_connections.py"

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "the driver is not asked about transactions",
        "database.py",
        "    return ask is not None and ask(driver, connection.autocommit)\n",
        "    return False\n",
    ): (CONNECTIONS,),
    at(
        "a time limit leaves the connections as they are",
        "execution.py",
        "            if limit.struck:\n                database.distrust()\n",
        "            pass\n",
    ): (CONNECTIONS,),
    at(
        "a success may leave a transaction open",
        "execution.py",
        "return failed(left_open) if left_open and outcome.ending is Ending.SUCCEEDED else outcome",
        "return outcome",
    ): (CONNECTIONS,),
    at(
        "a connection is closed with its block still open",
        "database.py",
        "    connection.in_atomic_block = connection.needs_rollback = connection.closed_in_transaction = False\n",
        "",
    ): (CONNECTIONS,),
    at(
        "commit hooks of another job's transaction stay",
        "database.py",
        "connection.in_atomic_block or connection.savepoint_ids or connection.run_on_commit",
        "connection.in_atomic_block or connection.savepoint_ids",
    ): (CONNECTIONS,),
    at(
        "a forwarder's function keeps a dead connection",
        "execution.py",
        "    return _timed(_unless(database.clean(), outcome), began)\n",
        "    return _timed(outcome, began)\n",
    ): (CONNECTIONS,),
    at(
        "coroutines keep their connections while they sleep",
        "release.py",
        "                connection.close()\n",
        "                kept = True\n",
    ): (ASYNCIO,),
    at(
        "a coroutine's transaction ends when it sleeps",
        "release.py",
        "if self._cursors or not connection.get_autocommit() or is_unfinished(connection):",
        "if self._cursors:",
    ): (ASYNCIO,),
    at(
        "a coroutine's cursor is closed while it sleeps",
        "release.py",
        "if self._cursors or not",
        "if not",
    ): (ASYNCIO,),
    at(
        "receivers keep a dead connection",
        "emitter.py",
        "from django_delayq import database\n",
        "from unittest.mock import Mock\n\ndatabase = Mock(clean=lambda: None)\n",
    ): (USER_CODE,),
    at(
        "a receiver that exits ends the attempt",
        "signals.py",
        "        if threading.current_thread() is threading.main_thread():\n            raise\n",
        "        raise\n",
    ): ("tests/integration/test_execution.py",),
    at(
        "what a receiver raises is not logged",
        "emitter.py",
        "    except BaseException:\n",
        "    except ZeroDivisionError:\n",
    ): (EMITTER,),
    at(
        "an exception that strikes the emitter ends it",
        "emitter.py",
        "            with suppress(BaseException):\n",
        "            with suppress(ValueError):\n",
    ): (EMITTER,),
    at(
        "the emitter takes in all there is",
        "emitter.py",
        "            self._changed.wait_for(lambda: self._left < _LIMIT)\n",
        "",
    ): (EMITTER,),
    at(
        "signals that wait end with the process",
        "management/shutdown.py",
        "        emitter.flush(*[_OTHERS] * self.hurries)\n",
        "",
    ): (USER_CODE,),
    at(
        "what a log handler raises comes out of the logger",
        "log.py",
        "        except BaseException as error:\n",
        "        except ZeroDivisionError as error:\n",
    ): ("tests/unit/test_log.py", USER_CODE),
}
