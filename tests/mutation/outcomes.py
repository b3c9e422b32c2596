"""Planned bugs of outcomes and retries, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import Mutation

at = Mutation.at

OUTCOME, ATTEMPTS, RETRY = "job/outcome.py", "job/attempts.py", "job/retry.py"
EXECUTION, SETTLEMENT = "worker/execution.py", "worker/settlement.py"
DECIDE = "tests/unit/job/test_outcome.py"
RECORDS = "tests/unit/job/test_attempts.py"
ERROR_TEXT, TEXTS = "job/errors/error_text.py", "tests/unit/job/errors/test_error_text.py"
RULES = "tests/unit/job/test_retry.py"
RUNS = "tests/integration/worker/execution/test_outcomes.py"
RAISED = "tests/integration/worker/execution/test_raised.py"
REQUESTS = "tests/integration/worker/execution/test_requests.py"
STORED_SCHEDULES = "tests/integration/task/schedules/test_stored_form.py"
SCHEDULE_OUTCOMES = "tests/integration/store/schedules/test_outcomes.py"
CONTEXT = "tests/integration/worker/execution/test_context.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a schedule whose job cannot be made stops its dispatcher",
        "dispatcher/planter.py",
        "        except DelayQError as error:\n",
        "        except ZeroDivisionError as error:\n",
    ): (STORED_SCHEDULES,),
    at(
        "the size of arguments counts again when their job is planted",
        "store/schedules/planting.py",
        "max_payload=sys.maxsize",
        "max_payload=1_024",
    ): (STORED_SCHEDULES,),
    at(
        "the window of a schedule replaces an earlier expiry",
        "store/schedules/planting.py",
        "is_first = expiry is None or",
        "is_first = True or",
    ): ("tests/integration/task/schedules/test_job_options.py",),
    at(
        "the body of a job is a definition of a schedule",
        "store/schedules/definition.py",
        "    if zero != _START:\n",
        "    if False:\n",
    ): (STORED_SCHEDULES,),
    at(
        "missed occurrences are counted to the end",
        "task/context.py",
        "islice(passed, _MOST_MISSED)",
        "passed",
    ): ("tests/integration/task/schedules/test_occurrence.py",),
    at(
        "drain() waits for the next jobs of schedules",
        "testing/simulator.py",
        "job_views.next_due_us(stores(), planted=False) is None",
        "job_views.next_due_us(stores()) is None",
    ): ("tests/testing_helpers/test_schedules.py",),
    at(
        "error reports show the arguments of a schedule that async code sets",
        "task/recurring/schedules.py",
        "sync_to_async(sensitive_variables()(call))",
        "sync_to_async(call)",
    ): ("tests/integration/task/schedules/test_sensitive.py",),
    at(
        "a snooze of 0 s runs in a loop",
        OUTCOME,
        "max(SHORTEST_SNOOZE_US, outcome.delay_us or 0)",
        "outcome.delay_us or 0",
    ): (DECIDE,),
    at("an interruption is an attempt", OUTCOME, "interruptions < FREE_INTERRUPTIONS", "interruptions < 0"): (DECIDE,),
    at(
        "a job that never ends within GRACE is given back forever",
        OUTCOME,
        "ending is OutcomeKind.INTERRUPTED and interruptions < FREE_INTERRUPTIONS",
        "ending is OutcomeKind.INTERRUPTED",
    ): (DECIDE,),
    at("a job waits for code forever", OUTCOME, "if not waits or waited_us >= longest_wait_us:", "if not waits:"): (
        DECIDE,
    ),
    at(
        "each wait for code is as short as the first",
        OUTCOME,
        "min(waited_us + SHORTEST_WAIT_US, LONGEST_WAIT_US)",
        "SHORTEST_WAIT_US",
    ): (DECIDE,),
    at(
        "a wait for code begins anew each time",
        ATTEMPTS,
        "waiting_since_us=self.waiting_since_us or now_us",
        "waiting_since_us=now_us",
    ): (RECORDS,),
    at(
        "a wait for code forgets the crash before it",
        ATTEMPTS,
        "return replace(self, waiting_since_us",
        "return replace(self._run_ended(), waiting_since_us",
    ): (RECORDS,),
    at(
        "a long message loses its beginning",
        ERROR_TEXT,
        "if found is None or found[0] > len(error) - len(cut) + 1:",
        "if True:",
    ): (TEXTS,),
    at(
        "an error that is cut within its class loses it",
        ERROR_TEXT,
        "len(error) - len(cut) + 1:",
        "len(error) - len(cut):",
    ): (TEXTS,),
    at(
        "a group that is cut has its last errors in its message",
        ERROR_TEXT,
        '        head += "  +-…\\n"\n',
        "        pass\n",
    ): (TEXTS,),
    at(
        "an interrupted job is not recovered",
        ATTEMPTS,
        "self.crash_suspected or self.interrupted",
        "self.crash_suspected",
    ): (
        RECORDS,
        CONTEXT,
    ),
    at(
        "an interrupted job is taken for a crashed one",
        ATTEMPTS,
        '4: "interrupted"}',
        '5: "interrupted"}',
    ): (RECORDS,),
    at("a run that is no attempt adds one", SETTLEMENT, "    if not decision.counted:\n", "    if False:\n"): (
        "tests/integration/worker/execution/test_outcomes.py",
        "tests/testing_helpers/test_time.py",
    ),
    at(
        "a snooze counts as a failed attempt in the charts",
        SETTLEMENT,
        'return "snoozed" if',
        'return "retried" if',
    ): ("tests/unit/worker/test_settlement.py",),
    at(
        "a base class decides before the class itself",
        RETRY,
        "for level in lineage:",
        "for level in reversed(lineage):",
    ): (RULES,),
    at(
        "a base class is as specific as its subclass",
        RETRY,
        "max(distances.get(base, 0), ",
        "min(distances.get(base, 99), ",
    ): (RULES,),
    at(
        "the first of two equally specific classes decides",
        RETRY,
        "if any(path in dead_on for path in level)",
        "if any(path in dead_on for path in level[:1])",
    ): (RULES,),
    at("with retry_on other errors are tried again", RETRY, "and not (lineage and retry_on)", ""): (RULES,),
    at("delays are drawn at random", RETRY, "len(self.delays)) - 1])\n", "len(self.delays)) - 1]) * jitter\n"): (
        RULES,
    ),
    at(
        "a stored policy with longer delays than may be declared is unreadable",
        "job/body/options.py",
        "min(timedelta(microseconds=us), LONGEST_DELAY)",
        "timedelta(microseconds=us)",
    ): ("tests/unit/job/codec/test_exact.py",),
    at(
        "a policy without end ends in older processes' numbers",
        "job/body/options.py",
        'return fields | {"max_attempts": None} if',
        "return fields if",
    ): ("tests/unit/job/codec/test_exact.py",),
    at(
        "an outcome has no lineage",
        "worker/outcomes.py",
        "_lineage(error) if job is not None and job.retry.has_rules else ()",
        "()",
    ): (RUNS,),
    at("a computed delay is ignored", EXECUTION, "return replace(outcome, delay_us=delay_us)\n", "return outcome\n"): (
        RUNS,
    ),
    at(
        "retry_delay runs in the event loop",
        EXECUTION,
        "await caller.call(_computed_us,",
        "await _call_here(_computed_us,",
    ): (RAISED,),
    at(
        "the variables of a task with sensitive arguments reach the log through its retry_delay",
        EXECUTION,
        "            if task.sensitive:\n                clear_variables(wrong)\n",
        "",
    ): (RAISED,),
    at(
        "a StopIteration in the thread of a job lets its coroutine wait forever",
        "middleware/job_thread.py",
        "        except StopIteration as error:\n",
        "        except StopAsyncIteration as error:\n",
    ): (RAISED,),
    at(
        "already_done runs in the event loop",
        EXECUTION,
        "if check is not None and await _await(check, job):",
        "if check is not None and check(*job.args, **job.kwargs):",
    ): (CONTEXT,),
    at(
        "the dispatcher never counts a lapsed lease of a newer body",
        "dispatcher/dispatcher.py",
        "    if kind in (OutcomeKind.NEWER, OutcomeKind.UNKNOWN_KEY):\n",
        "    if False:\n",
    ): ("tests/integration/store/promotion/test_reclaim.py",),
    at(
        "the record of a lapsed lease has no exception",
        "dispatcher/dispatcher.py",
        "exc_info=error if decision.action is Action.RETRY else None,",
        "exc_info=None,",
    ): ("tests/integration/store/promotion/test_reclaim.py",),
    at(
        "a dead letter of the dispatcher has two exceptions",
        "dispatcher/dispatcher.py",
        "exc_info=error if decision.action is Action.RETRY else None,",
        "exc_info=error,",
    ): ("tests/integration/store/promotion/test_reclaim.py",),
    at(
        "the exception behind a RetryLater is lost",
        "worker/outcomes.py",
        "shown, text = _behind(error), text_of(error)",
        "shown, text = None, text_of(error)",
    ): (REQUESTS,),
    at(
        "an exception that a request hides is shown",
        "worker/outcomes.py",
        "if cause is None and not found.__suppress_context__:",
        "if cause is None:",
    ): (REQUESTS,),
    at(
        "the reason of a request looks like the error",
        "worker/outcomes.py",
        "indent(_traceback(error, chain=False), '    ')",
        "_traceback(error, chain=False)",
    ): (REQUESTS,),
    at(
        "the reason of DeadLetterNow is lost",
        "worker/outcomes.py",
        "if kind is OutcomeKind.REJECTED and text != _NO_REASON:",
        "if False:",
    ): (REQUESTS,),
    at(
        "an attempt that is tried again is an error of its monitor",
        "middleware/sentry_crons.py",
        "if not job.will_retry(error):",
        "if True:",
    ): ("tests/integration/middleware/test_sentry_crons.py",),
    at(
        "a stopped job leaves its monitor in progress",
        "worker/execution.py",
        "    if running is not None and running.should_stop:\n        return False\n",
        "",
    ): ("tests/integration/middleware/test_sentry_crons.py",),
    at(
        "the end of a job that has expired plans no other",
        "store/lua/_places.lua",
        "  if outcome == RUN_EXPIRED and schedule.flags % 2 == 0 then plan(schedule, now) end\n",
    ): (SCHEDULE_OUTCOMES,),
    at(
        "the end of a job that has expired plans a paused schedule",
        "store/lua/_places.lua",
        "  if outcome == RUN_EXPIRED and schedule.flags % 2 == 0 then",
        "  if outcome == RUN_EXPIRED then",
    ): (SCHEDULE_OUTCOMES,),
    at(
        "a dispatcher goes on to wait for a job that has ended",
        "store/lua/plant.lua",
        "elseif not occurrence and next_time ~= '' and flags",
        "elseif false and flags",
    ): (SCHEDULE_OUTCOMES,),
}
