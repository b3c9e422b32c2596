"""Planned bugs of the admin and of the commands on jobs, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import Mutation

at = Mutation.at

RAW, SCHEDULES = "tests/admin/content/test_raw_characters.py", "tests/admin/schedules"
BOUNDS = "tests/admin/actions/test_bounds.py"
RUN = "tests/integration/commands/operating/test_run_process.py"
STATS = "tests/integration/commands/operating/test_stats.py"
SHOWN = "tests/integration/commands/operating/test_shown_jobs.py"
TENANTS, TENANT_TOGGLES = "tests/admin/tenants/test_page.py", "tests/admin/tenants/test_toggles.py"
CANCELS, PAUSES = "tests/admin/tenants/test_cancel.py", "tests/integration/store/tenants/test_pauses.py"

GROWTH = "tests/admin/servers/test_growth.py"
ENDINGS, REPORT = "tests/integration/store/test_endings.py", "tests/integration/store/test_report.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "the bytes of the last endings are not bounded",
        "store/lua/report.lua",
        " and bytes - its_bytes + #oldest <= most_bytes",
        "",
    ): (ENDINGS,),
    at(
        "endings that could not be sent are lost",
        "processes/reporter.py",
        "            source.endings.restore(endings)\n",
    ): ("tests/integration/processes/test_reporter.py",),
    at(
        "a minute is added to its hour again with each report",
        "store/lua/report.lua",
        "local newest, line, rest = string.match(series, '^(%d+) ([^\\n]*)\\n()')\n",
        "local newest, line, rest = string.match(series, '^(%d+) ([^\\n]*)\\n()')\n  add_to_hour(dimension, series)\n",
    ): (REPORT,),
    at(
        "the hours of a series that is removed are lost",
        "store/lua/report.lua",
        "  end_minute(random, oldest)\n",
    ): (REPORT,),
    at(
        "a page of a task shows jobs of tasks whose names end alike",
        "admin/views/task.py",
        'Filter(task=f"={name}", count=_SHOWN)',
        "Filter(task=name, count=_SHOWN)",
    ): ("tests/admin/history/test_task.py",),
    at(
        "a continued action changes the job at which Redis failed once more",
        "admin/actions/run.py",
        """        action_request.advance(next_shard, cursor)
        changes = _apply(page, action_request, shard, targets, parameters)
""",
        """        changes = _apply(page, action_request, shard, targets, parameters)
        action_request.advance(next_shard, cursor)
""",
    ): ("tests/admin/actions/test_long_actions.py",),
    at(
        "a stopped action can be continued",
        "admin/actions/session.py",
        "        _save(session, action_request, next_step=_NO_STEP)\n",
    ): ("tests/admin/actions/test_long_actions.py",),
    at(
        "an action that has ended is offered again",
        "admin/actions/session.py",
        "if action_request.finished or action_request.steps <",
        "if action_request.steps <",
    ): ("tests/admin/actions/test_long_actions.py",),
    at(
        "an action continues past the number of rows that was confirmed",
        "admin/actions/run.py",
        "        if action_request.handled >= action_request.count:\n            break\n",
        "",
    ): (BOUNDS,),
    at(
        "a page cursor truncates a fractional score",
        "store/queries/job_pages.py",
        "        score=_exact(score),\n",
        "        score=whole(score),\n",
    ): ("tests/integration/store/queries/test_page.py",),
    at(
        "an incomplete count is treated as complete",
        "admin/actions/selection.py",
        "shard) and monotonic() > until:\n            return\n",
        "shard) and monotonic() > until:\n            break\n",
    ): (BOUNDS,),
    at(
        "an action runs before all rows are counted",
        "admin/actions/view.py",
        "return _run(page, action_request) if action_request.counted else _prepare(page, action_request)",
        "return _run(page, action_request)",
    ): (BOUNDS,),
    at(
        "submitting the same form twice runs an action on all matches twice",
        "admin/actions/action_request.py",
        "        return not self.rows\n",
        '        return "shift_us" in self.parameters and not self.rows\n',
    ): (BOUNDS,),
    at(
        "rows that appear after the count are not reported",
        "admin/actions/selection.py",
        "            return True\n",
        "            return False\n",
    ): (BOUNDS,),
    at(
        "the worker name of a running job is shown unescaped",
        "admin/lists/job_rows.py",
        "return printable(self.row.worker)",
        "return self.row.worker",
    ): (RAW,),
    at(
        "the name of the person who paused a queue is shown unescaped",
        "admin/views/lists.py",
        'printable(state.paused.by) if state.paused else ""',
        'state.paused.by if state.paused else ""',
    ): (RAW,),
    at(
        "a page contains raw control characters",
        "admin/page.py",
        "_RAW.sub(lambda found: escaped(found[0]), super().rendered_content)",
        'super().rendered_content.encode("utf-8", "backslashreplace").decode()',
    ): (RAW,),
    at(
        "a joiner character is shown raw between ASCII characters",
        "display/text.py",
        'in _JOINERS and max(around) > "\\x7f"',
        "in _JOINERS",
    ): (RAW,),
    at(
        "a joiner character is escaped inside scripts that need it",
        "display/text.py",
        '_JOINERS = "\\u200c\\u200d"',
        '_JOINERS = ""',
    ): (RAW,),
    at(
        "read-only mode reveals redacted arguments",
        "admin/page.py",
        "may_reveal=not config.read_only and allowed(",
        "may_reveal=allowed(",
    ): ("tests/admin/site/test_permissions.py",),
    at(
        "the pages do not list the aliases of other stores",
        "admin/page.py",
        "    others = other_stores()\n",
        "    others = other_stores()[:0]\n",
    ): ("tests/admin/site/test_elsewhere.py",),
    at(
        "an alias with invalid settings breaks every page",
        "admin/page.py",
        "        except ImproperlyConfigured as error:\n",
        "        except LookupError as error:\n",
    ): ("tests/admin/site/test_elsewhere.py",),
    at(
        "jobs can be rescheduled to a time in the past",
        "admin/actions/forms.py",
        "if (due_us := moment_us(moment)) < self.now_us - _TOLERANCE_US:",
        "if (due_us := moment_us(moment)) < 0:",
    ): ("tests/admin/actions/test_waiting_jobs.py",),
    at(
        "a run in the foreground that SIGTERM ends counts as a failed attempt",
        "worker/foreground.py",
        "by_person or (termination.ended_code and outcome.kind is not OutcomeKind.SUCCEEDED)",
        "by_person",
    ): (RUN,),
    at(
        "a run in the foreground that ends well in spite of SIGTERM is repeated",
        "worker/foreground.py",
        "(termination.ended_code and outcome.kind is not OutcomeKind.SUCCEEDED)",
        "termination.ended_code",
    ): (RUN,),
    at(
        "an interrupted coroutine runs on in the foreground",
        "management/commands/delayq_run.py",
        "            Shutdown().end_process(code)\n",
        "            pass\n",
    ): (RUN,),
    at(
        "what a task prints is among the JSON of its run",
        "management/commands/delayq_run.py",
        'with _to_stderr() if options["json"] else nullcontext():',
        "with nullcontext():",
    ): (RUN,),
    at(
        "lost workers count as workers of a queue",
        "management/commands/delayq_stats.py",
        "sum(process.serves(name) for process in alive)",
        "sum(process.serves(name) for process in snapshot.processes)",
    ): (SHOWN,),
    at(
        "a lost process is not marked",
        "management/commands/delayq_stats.py",
        '"lost": each.is_lost(snapshot.now_us, lease_us=lease_us),',
        '"lost": False,',
    ): (STATS,),
    at(
        "the running jobs of a queue are as old as the reports of workers",
        "management/commands/delayq_stats.py",
        "exact[name] if is_whole else ",
        "",
    ): (STATS,),
    at(
        "of very many running jobs those that were read count",
        "management/commands/delayq_stats.py",
        "all(has_all for _, has_all in found)",
        "True",
    ): (STATS,),
    at(
        "the running jobs of lost workers count",
        "store/queries/snapshot.py",
        "for process in self.alive(lease_us=lease_us))",
        "for process in self.processes)",
    ): (STATS,),
    at(
        "a command whose output nobody reads ends with a traceback",
        "management/operating.py",
        "            if self.changes:\n                raise\n",
        "            raise\n",
    ): ("tests/integration/commands/operating/test_terminal.py",),
    at(
        "the interpreter complains about output that nobody reads",
        "management/operating.py",
        "            _discard_output()\n",
        "",
    ): ("tests/integration/commands/operating/test_terminal.py",),
    at(
        "quiet workers count as workers of a queue",
        "store/queries/snapshot.py",
        'self.kind == "worker" and not self.quiet',
        'self.kind == "worker"',
    ): (SHOWN,),
    at(
        "the unique key of hidden arguments is shown",
        "display/arguments.py",
        "return DOTS if hidden else printable(job.key)",
        "return printable(job.key)",
    ): (SHOWN,),
    at(
        "the words of a retry policy name delays that no attempt waits for",
        "display/retry.py",
        "range(1, min(number - 1, len(policy.delays) or _LONGEST) + 1)",
        "range(1, (len(policy.delays) or _LONGEST) + 1)",
    ): ("tests/unit/display/test_retry.py",),
    at(
        "the page of tasks shows the retry policy of DELAYQ for tasks of Django",
        "backend/django_task.py",
        "retry = get_config(self.alias or sharing_alias()).tasks.retry",
        "retry = get_config().tasks.retry",
    ): ("tests/admin/views/test_tasks.py",),
    at(
        "a running job is overdue",
        "store/queries/job_pages.py",
        "return self.waits and self.expires_us is not None and",
        "return self.expires_us is not None and",
    ): ("tests/admin/views/test_expiry.py",),
    at(
        "a tenant is paused in the first shard alone",
        "admin/actions/toggles.py",
        "for shard in page.answering if shard not in untouched",
        "for shard in page.answering[:1] if shard not in untouched",
    ): (TENANT_TOGGLES,),
    at(
        "the admin pauses tenants of a queue that is not fair",
        "admin/actions/toggles.py",
        "if not page.store.config.tasks.options_of(queue).fair:",
        "if not queue:",
    ): (TENANT_TOGGLES,),
    at(
        "a form without a tenant pauses the jobs that have none",
        "admin/actions/toggles.py",
        "    if not (queue and tenant):\n",
        "    if not queue:\n",
    ): (TENANT_TOGGLES,),
    at(
        "the page of tenants shows any hundred of them",
        "admin/views/queues/tenants.py",
        'key=lambda each: (-each.waiting, each.name or "", each.digest)',
        "key=lambda each: each.digest",
    ): (TENANTS,),
    at(
        "the page of tenants shows the jobs of one shard",
        "admin/views/queues/tenants.py",
        "_sum(known, state) if known else state",
        "state",
    ): (TENANTS,),
    at(
        "the page of tenants takes the name from a body that somebody changed",
        "admin/views/queues/tenants.py",
        "bool(state.name) and tenant_digest(state.name) == state.digest",
        "bool(state.name)",
    ): (TENANTS,),
    at(
        "the page of tenants does not say that it did not read all",
        "store/queries/tenants.py",
        "and len(found) <= most and",
        "and",
    ): (TENANTS,),
    at(
        "the page of tenants does not say that it did not read all pauses",
        "store/queries/tenants.py",
        "len(found) <= most and cursor is None",
        "len(found) <= most",
    ): (TENANTS,),
    at(
        "a paused tenant that has few jobs is not among the hundred tenants of the page",
        "admin/views/queues/tenants.py",
        "for each in (*found[:_SHOWN], *paused)",
        "for each in found[:_SHOWN]",
    ): (TENANTS,),
    at(
        "the page of tenants shows a paused tenant without jobs that it did not read",
        "admin/views/queues/tenants.py",
        "        paused = [_find(page, queue, each) for each in paused]\n",
        "        pass\n",
    ): (TENANTS,),
    at(
        "the name of a paused tenant is that of the person who paused it",
        "store/queries/tenants.py",
        'return Pause.read(record.partition(b"\\xff")[0]) if record else None',
        "return Pause.read(record) if record else None",
    ): (PAUSES,),
    at(
        "a queue whose hash has a byte with a meaning in patterns has no paused tenants",
        "store/queries/tenants.py",
        'b"".join(b"\\\\" + bytes((byte,)) for byte in prefix)',
        "prefix",
    ): (PAUSES,),
    at(
        "a paused tenant with jobs is listed twice",
        "control/tenants.py",
        "                paused.pop(state.name, None)\n",
        "",
    ): ("tests/integration/control/test_tenants.py",),
    at(
        "the jobs of a tenant are cancelled in the first shard alone",
        "admin/actions/run.py",
        "for shard in page.answering:\n        if shard",
        "for shard in page.answering[:1]:\n        if shard",
    ): (CANCELS,),
    at(
        "more jobs of a tenant are cancelled than were confirmed",
        "admin/actions/run.py",
        "for raw_id in known[: action_request.count - action_request.handled]]",
        "for raw_id in known]",
    ): (CANCELS,),
    at(
        "jobs of a tenant that came after the count are cancelled",
        "admin/actions/run.py",
        "[raw_id for raw_id in ids if created_us(raw_id) <= action_request.seen_us]",
        "ids",
    ): (CANCELS,),
    at(
        "a continued cancellation of a tenant's jobs begins again",
        "admin/actions/run.py",
        '_score, after = action_request.cursor or (0, b"")',
        '_score, after = 0, b""',
    ): (CANCELS,),
    at(
        "a form without a tenant cancels the jobs that have none",
        "admin/actions/view.py",
        '!= "cancel_tenant" or not (queue and tenant):',
        '!= "cancel_tenant" or not queue:',
    ): (CANCELS,),
    at(
        "processes of an earlier release refuse every form of an action",
        "admin/actions/action_request.py",
        '            del fields["tenant"]\n',
        "            pass\n",
    ): (CANCELS,),
    at(
        "the form of a schedule overwrites a change of somebody else",
        "admin/actions/schedule_form.py",
        'if cleaned["version"] != self._version:',
        "if False:",
    ): (f"{SCHEDULES}/test_edit.py",),
    at(
        "a pause of a schedule that redis interrupts is not recorded",
        "admin/actions/schedules.py",
        '    yield planted is not None\n    schedules.cancel_planted([planted or b""])\n\n\ndef _resume',
        '    schedules.cancel_planted([planted or b""])\n    yield planted is not None\n\n\ndef _resume',
    ): (f"{SCHEDULES}/test_actions.py",),
    at(
        "a page of schedules leaves out the rest of its batch",
        "admin/lists/schedule_list.py",
        "next_position = start._replace(skipped=start.skipped + wanted.count)",
        "next_position = None if at_end else Position(shard, cursor)",
    ): (f"{SCHEDULES}/test_list.py",),
    at(
        "the calendar counts what has passed",
        "admin/views/schedules/load.py",
        "start_us = max(schedule.start_us or 0, now_us)",
        "start_us = schedule.start_us",
    ): (f"{SCHEDULES}/test_calendar.py",),
    at(
        "the calendar takes a sample for all schedules",
        "admin/views/schedules/load.py",
        "times=week.total / max(1, week.looked_at)",
        "times=1.0",
    ): (f"{SCHEDULES}/test_calendar.py",),
    at(
        "an hour of another zone counts in one hour here",
        "recurring/forecast.py",
        "for number in (at, at + 1):",
        "for number in (at,):",
    ): ("tests/unit/recurring/test_forecast.py",),
    at(
        "a cell of a download is a formula",
        "admin/views/export.py",
        "if text.startswith(_FORMULA)",
        "if False",
    ): ("tests/admin/views/test_export.py",),
    at(
        "the box for one new queue confirms another one",
        "admin/actions/forms.py",
        'self.data.get("new_queue") == url_name(queue)',
        'self.data.get("new_queue")',
    ): ("tests/admin/actions/test_waiting_jobs.py",),
    at(
        "the page of a job asks the shard of its id alone",
        "admin/views/job.py",
        "page.store.find(raw_id, shard, queue",
        "page.store.lookup(shard).find(raw_id, queue",
    ): (GROWTH,),
    at(
        "a process that only looks jobs up does not learn that there are more shards",
        "store/store.py",
        """            # A process that only looks jobs up learns it nowhere else.
            self.layouts.learn()
""",
        "            pass\n",
    ): (GROWTH,),
    at(
        "nothing is left in a shard that was not counted",
        "admin/views/processes/servers.py",
        "left.counted_for < max(",
        "left.counted_for > max(",
    ): (GROWTH,),
    at(
        "rows without a value are not last",
        "admin/lists/sorting.py",
        "return [row for _, row in known] + [row for value, row in valued if value is None]",
        "return [row for value, row in valued if value is None] + [row for _, row in known]",
    ): ("tests/admin/sorting/test_tables.py",),
    at(
        "a search for an outcome leads to a list that does not know it",
        "admin/views/search.py",
        """    if "ended" in terms.named or "outcome" in terms.named:
        return FINISHED
""",
    ): ("tests/admin/history/test_finished.py",),
}
