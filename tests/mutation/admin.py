"""Planted bugs of the admin, each with the tests of which one must fail."""

from tests.stateful.mutations import Mutation

at = Mutation.at

RAW = "tests/admin/test_raw_characters.py"
BOUNDS = "tests/admin/actions/test_bounds.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "an action goes on beyond what was counted and confirmed",
        "admin/actions/run.py",
        "        if action_request.handled >= action_request.count:\n            break\n",
        "",
    ): (BOUNDS,),
    at(
        "a score that somebody wrote by hand is cut in a cursor",
        "store/queries/job_pages.py",
        "        score=_exact(score),\n",
        "        score=whole(score),\n",
    ): ("tests/integration/store/test_page.py",),
    at(
        "a count that was cut short is taken for the whole",
        "admin/actions/selection.py",
        "shards and monotonic() > until:\n            return\n",
        "shards and monotonic() > until:\n            break\n",
    ): (BOUNDS,),
    at(
        "an action is carried out before all is counted",
        "admin/views/action.py",
        "return _run(page, action_request) if action_request.counted else _prepare(page, action_request)",
        "return _run(page, action_request)",
    ): (BOUNDS,),
    at(
        "an action for all that match is done once more by the same form",
        "admin/actions/action_request.py",
        "        return not self.rows\n",
        '        return "shift_us" in self.parameters and not self.rows\n',
    ): (BOUNDS,),
    at(
        "what came after the count is not told of",
        "admin/actions/selection.py",
        "            return True\n",
        "            return False\n",
    ): (BOUNDS,),
    at(
        "the worker of a running job is shown as its bytes are",
        "admin/views/job.py",
        "return printable(self.found.worker)",
        "return self.found.worker",
    ): (RAW,),
    at(
        "who paused a queue is shown as the bytes are",
        "admin/views/lists.py",
        'printable(state.paused.by) if state.paused else ""',
        'state.paused.by if state.paused else ""',
    ): (RAW,),
    at(
        "a page is sent with control characters that somebody forgot",
        "admin/page.py",
        "_RAW.sub(lambda found: escaped(found[0]), super().rendered_content)",
        'super().rendered_content.encode("utf-8", "backslashreplace").decode()',
    ): (RAW,),
    at(
        "a joiner is shown wherever it stands",
        "admin/arguments.py",
        'in _JOINERS and min(around) > "\\x7f"',
        "in _JOINERS",
    ): (RAW,),
    at(
        "a joiner of people's writing is written out",
        "admin/arguments.py",
        '_JOINERS = "\\u200c\\u200d"',
        '_JOINERS = ""',
    ): (RAW,),
    at(
        "read-only mode reveals what is hidden",
        "admin/page.py",
        "may_reveal=not config.read_only and allowed(",
        "may_reveal=allowed(",
    ): ("tests/admin/test_permissions.py",),
    at(
        "the pages name no alias whose jobs they do not show",
        "admin/page.py",
        "    others = other_stores()\n",
        "    others = other_stores()[:0]\n",
    ): ("tests/admin/test_elsewhere.py",),
    at(
        "an alias whose settings are wrong breaks every page",
        "admin/page.py",
        "        except ImproperlyConfigured as error:\n",
        "        except LookupError as error:\n",
    ): ("tests/admin/test_elsewhere.py",),
    at(
        "tasks are rescheduled to a moment that is past",
        "admin/actions/forms.py",
        "if (due_us := moment_us(moment)) < self.now_us - _TOLERANCE_US:",
        "if (due_us := moment_us(moment)) < 0:",
    ): ("tests/admin/actions/test_waiting_jobs.py",),
}
