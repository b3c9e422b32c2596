"""One action on its way through the pages: what to do, to which jobs, and how far it is.

All of it travels in the forms, signed, so that any process can continue. The session keeps the number of its next step,
and the last form of an action that has not ended: see session.py.
"""

import re
from dataclasses import asdict, dataclass, field, replace
from secrets import token_hex
from typing import Any, Self

from django.core import signing
from django.http import HttpRequest, QueryDict

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, BulkAction, Target
from django_delayq.admin.lists.filters import Cursor, Filter, read_cursor, write_cursor
from django_delayq.admin.lists.job_lists import FAILED, JOB_LISTS, READY, JobList
from django_delayq.job.ids import from_text

_SALT = "django_delayq.admin.action_request"
#: Seconds after which a form is refused.
_MAX_AGE = 3_600
#: Rows of the largest page.
_MAX_ROWS = 250
#: The counts of a job's attempts.
_COUNTS = re.compile(r"(?:[0-9a-f]{2}){0,3}")


@dataclass(slots=True, kw_only=True)
class ActionRequest:
    """One action that a person started in the admin. Every field is a JSON value, so that forms can carry it."""

    action_name: str
    list_name: str
    #: Query strings: the filter, with absolute times, and the page to return to.
    filter_query: str
    page_query: str
    #: Redis's time when the person saw the list, in µs. Jobs that came later are not included.
    seen_us: int
    #: Tokens of the selected rows; empty: all jobs that match the filter, or those of the tenant.
    rows: list[str] = field(default_factory=list)
    #: Jobs counted so far. Nothing changes before all are counted, and never more jobs than these.
    count: int = 0
    counted: bool = False
    #: Tokens of the first counted jobs, unless rows were selected.
    sample: list[str] = field(default_factory=list)
    confirmed: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    #: Distinguishes equal requests in the session.
    nonce: str = field(default_factory=lambda: token_hex(8))
    #: The job and its task, if the action was started on the page of one job.
    job_id: str = ""
    task: str = ""
    #: The tenant of whose jobs in the filter's queue the action is about, scheduled and ready ones; empty: of any.
    tenant: str = ""
    #: HTTP requests that changed jobs so far.
    steps: int = 0
    #: How far counting, and then the action, went through the matching jobs.
    shard: int = 0
    cursor_text: str = ""
    #: Shard -> jobs counted there; empty if Redis counted them without a scan.
    shard_counts: dict[str, int] = field(default_factory=dict)
    #: Rows read while counting.
    scanned: int = 0
    #: ActionResult -> number of jobs.
    results: dict[str, int] = field(default_factory=dict)
    finished: bool = False
    #: The audit log's row about the whole action.
    log_entry: int | None = None

    @classmethod
    def read(cls, post: QueryDict) -> Self | None:
        """Read the form of a list or of a job's page; None if nothing is selected or a field makes no sense."""
        job_list = JOB_LISTS.get(post.get("list", ""))
        # The button of a row names the row alone; its list says what it does.
        name = job_list.row_action if job_list and "one" in post else post.get("action", "")
        action = BULK_ACTIONS.get(name)
        if (
            action is None
            or job_list is None
            or job_list.name not in action.job_lists
            or action.name == "cancel_tenant"
        ):
            return None
        left_us, left_counts = post.get("left_us", ""), post.get("left_counts", "")
        if action.is_undo and not (left_us.isdecimal() and len(left_us) <= 16 and _COUNTS.fullmatch(left_counts)):
            return None
        tokens = post.getlist("one") or post.getlist("row")
        # A job counts once, whichever moments its tokens have.
        rows = list({target[:2]: token for token in tokens if (target := Target.read(token))}.values())[:_MAX_ROWS]
        if action.name == "cancel_all" or ("all" in post and action.in_menu and "one" not in post):
            rows = []
        elif not rows or (action.is_undo and len(rows) > 1):
            return None
        requested, seen_us = Filter.read(QueryDict(post.get("filter", ""))), post.get("seen_us", "")
        # Without its faulty part a filter would match more jobs.
        if requested.errors or not seen_us.isdecimal() or len(seen_us) > 16:
            return None
        job_id = post.get("job", "") if from_text(post.get("job")) else ""
        # A list of ready jobs belongs to one queue.
        if job_list is READY and not requested.queue and not (rows and job_id):
            return None
        return cls(
            action_name=action.name,
            list_name=job_list.name,
            filter_query=requested.with_absolute_times(int(seen_us), ahead=job_list.ahead).page(),
            page_query=Filter.read(QueryDict(post.get("page", ""))).query(),
            seen_us=int(seen_us),
            rows=rows,
            count=len(rows),
            counted=bool(rows),
            parameters={"left_us": int(left_us), "left_counts": left_counts} if action.is_undo else {},
            job_id=job_id,
        )

    @classmethod
    def of_tenant(cls, queue: str, tenant: str, *, now_us: int) -> Self:
        """Return the request to cancel the waiting jobs of a tenant of a queue that are there now."""
        return cls(
            action_name="cancel_tenant",
            list_name=READY.name,
            filter_query=Filter(queue=queue).page(),
            page_query="",
            seen_us=now_us,
            tenant=tenant,
        )

    @property
    def has_address(self) -> bool:
        """Whether a GET may show its confirm page: its jobs are counted, and nothing is revealed or has happened."""
        return self.counted and not self.confirmed and self.action.name != "edit"

    @property
    def action(self) -> BulkAction:
        """What to do."""
        return BULK_ACTIONS[self.action_name]

    @property
    def job_list(self) -> JobList:
        """The list that shows the jobs."""
        return JOB_LISTS[self.list_name]

    @property
    def current_filter(self) -> Filter:
        """The filter as it matches now, including jobs that came since the person saw the list."""
        return Filter.read(QueryDict(self.filter_query))

    @property
    def filter(self) -> Filter:
        """The filter without jobs that failed since the person saw the list."""
        current = self.current_filter
        if self.job_list is not FAILED:
            return current
        end_us = self.seen_us + 1
        return replace(current, to_us=end_us if current.to_us is None else min(current.to_us, end_us))

    @property
    def is_non_idempotent(self) -> bool:
        """Whether each step may run only once.

        A repeated step of an action on all matching jobs would change more jobs than the person confirmed: the same
        jobs again, if it shifts them, or others that match by now. Selected rows are a bound of their own.
        """
        return not self.rows

    @property
    def moves_later(self) -> bool:
        """Whether jobs move to a later place of the same list; read from its end, none of them is met twice."""
        return self.job_list.ahead and (self.parameters.get("shift_us", 0) > 0 or "due_us" in self.parameters)

    @property
    def handled(self) -> int:
        """Jobs that the action changed or could not change."""
        return sum(self.results.values())

    @property
    def cursor(self) -> Cursor | None:
        """The last row handled in the current shard; None: none yet."""
        return read_cursor(self.cursor_text) if self.cursor_text else None

    def advance(self, shard: int, cursor: Cursor | None) -> None:
        """Record the last row handled in a shard; None: the whole shard is handled."""
        self.shard, self.cursor_text = (shard, write_cursor(cursor)) if cursor else (shard + 1, "")

    def sign(self, request: HttpRequest) -> str:
        """Return the value of a form field, which this person alone can send back."""
        fields = asdict(self)
        if not self.tenant:
            # A process of an earlier release, which may read the form during a deploy, refuses unknown fields.
            del fields["tenant"]
        return signing.dumps([_account(request), fields], salt=_SALT, compress=True)

    @classmethod
    def unsign(cls, request: HttpRequest, text: str) -> Self | None:
        """Read a signed value; None if it is forged, another person's, or more than an hour old."""
        try:
            account, fields = signing.loads(text, salt=_SALT, max_age=_MAX_AGE)
        except signing.BadSignature:
            return None
        return cls(**fields) if account == _account(request) else None


def _account(request: HttpRequest) -> str:
    return f"{request.user.pk} {request.user.get_username()}"
