"""Orders: what a person asked to be done to which jobs, and how far that came; both travel in the forms, signed.

The server keeps of them no more than that a step was done, in the session: any process can go on.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from secrets import token_hex
from typing import Any, NamedTuple, Self

from django.core import signing
from django.http import HttpRequest, QueryDict

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, NOT_IN_MENU, BulkAction
from django_delayq.admin.filters import Cursor, Filter
from django_delayq.admin.job_lists import DEAD, JOB_LISTS, READY, JobList
from django_delayq.job.ids import from_text

_SALT = "django_delayq.admin.order"
#: Seconds after which a form has to be asked for again.
_GOOD_FOR = 3_600
#: Rows of the largest page.
_MAX_SELECTED = 250


class RowToken(NamedTuple):
    """A ticked row."""

    raw_id: bytes
    shard: int
    moment_us: int

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read what a checkbox says; None for anything else."""
        name, _, moment = text.partition(".")
        place = from_text(name)
        if place is None or not moment.removeprefix("-").isdecimal() or len(moment) > 17:
            return None
        return cls(*place, int(moment))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest:
    """What is to be done, as of when, to what."""

    action_name: str
    list_name: str
    #: The filter, with moments in place of "within the last hour"; and the page to go back to.
    filter: str
    page: str
    #: Redis's time when the person saw the page: what came later is not meant.
    seen_us: int
    #: Tokens of ticked rows; empty: all that match.
    selected: tuple[str, ...] = ()
    #: How many that are, as far as they were counted; nothing is done before all are, and never to more than these.
    count: int = 0
    counted: bool = False
    #: The first of them, in words.
    sample: tuple[str, ...] = ()
    #: Set once the person has confirmed.
    confirmed: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    #: Tells it from others like it.
    nonce: str = ""
    #: The job whose own page it was asked for on; and its task.
    job: str = ""
    task: str = ""

    @classmethod
    def read(cls, post: QueryDict) -> Self | None:
        """Read what a list's form, or a job's page, asks for; None where that makes no sense."""
        deed, place = BULK_ACTIONS.get(post.get("deed", "")), JOB_LISTS.get(post.get("place", ""))
        if deed is None or place is None or place.name not in deed.job_lists:
            return None
        ticked = tuple(dict.fromkeys(text for text in post.getlist("row") if RowToken.read(text)))[:_MAX_SELECTED]
        seen = post.get("seen", "")
        if deed.name == "purge" or ("all" in post and deed.name not in NOT_IN_MENU):
            ticked = ()
        elif not ticked:
            return None
        asked = Filter.read(QueryDict(post.get("filter", "")))
        if asked.errors:
            # Without what was not understood it would mean more.
            return None
        job = post.get("job", "") if from_text(post.get("job")) else ""
        # Each ready list is one queue's.
        if not seen.isdecimal() or len(seen) > 16 or (place is READY and not asked.queue and not (ticked and job)):
            return None
        return cls(
            action_name=deed.name,
            list_name=place.name,
            filter=asked.with_absolute_times(int(seen), ahead=place.ahead).page(),
            page=Filter.read(QueryDict(post.get("page", ""))).query(),
            seen_us=int(seen),
            selected=ticked,
            count=len(ticked),
            counted=bool(ticked),
            nonce=token_hex(8),
            job=job,
        )

    @property
    def is_non_idempotent(self) -> bool:
        """Whether a step of it is done once only.

        Done again, an order for all that match would change more jobs than were confirmed: the same ones again, if it
        shifts them, or others, which match by now. Ticked rows bound themselves.
        """
        return not self.selected

    @property
    def moves_up(self) -> bool:
        """Whether rows go to a later place of the same list: from the end on, none is met twice."""
        return self.job_list.ahead and (self.parameters.get("shift_us", 0) > 0 or "due_us" in self.parameters)

    @property
    def action(self) -> BulkAction:
        """What to do."""
        return BULK_ACTIONS[self.action_name]

    @property
    def job_list(self) -> JobList:
        """Where."""
        return JOB_LISTS[self.list_name]

    @property
    def parsed_filter(self) -> Filter:
        """Which rows, where none were ticked: of the dead, none that died since the person looked."""
        asked = self.now
        if self.job_list is not DEAD:
            return asked
        end_us = self.seen_us + 1
        return replace(asked, to_us=end_us if asked.to_us is None else min(asked.to_us, end_us))

    @property
    def now(self) -> Filter:
        """Which rows match by now, those that came since among them."""
        return Filter.read(QueryDict(self.filter))

    @property
    def tokens(self) -> Iterator[RowToken]:
        """The ticked rows."""
        return (token for text in self.selected if (token := RowToken.read(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an order came: first with counting, then with doing it."""

    #: Requests it took so far.
    requests: int = 0
    #: Ticked rows: how many are behind. All: the shard, and the last row there that is behind.
    passed: int = 0
    shard: int = 0
    cursor: Cursor | None = None
    #: Rows looked at while counting.
    scanned: int = 0
    #: Fate -> how many.
    results: dict[str, int] = field(default_factory=dict)
    finished: bool = False
    #: The journal's row about the whole.
    entry: int | None = None

    @property
    def handled(self) -> int:
        """How many jobs it was done to, or could not be."""
        return sum(self.results.values())

    def after(self, shard: int, end: Cursor | None) -> Self:
        """Return it with a page behind that ended at a row of a shard; None: with the whole shard behind."""
        return replace(self, shard=shard if end else shard + 1, cursor=end)


def sign(request: HttpRequest, order: ActionRequest, progress: Progress) -> str:
    """Return both as a form carries them, for this person only."""
    cursor = progress.cursor and [progress.cursor[0], progress.cursor[1].hex()]
    whole = [_who(request), asdict(order), {**asdict(progress), "cursor": cursor}]
    return signing.dumps(whole, salt=_SALT, compress=True)


def unsign(request: HttpRequest, text: str) -> tuple[ActionRequest, Progress] | None:
    """Read them back; None for what we did not sign for this person within the last hour."""
    try:
        who, order, progress = signing.loads(text, salt=_SALT, max_age=_GOOD_FOR)
    except signing.BadSignature:
        return None
    if who != _who(request):
        return None
    cursor = progress["cursor"] and (progress["cursor"][0], bytes.fromhex(progress["cursor"][1]))
    lists = {name: tuple(order[name]) for name in ("selected", "sample")}
    return ActionRequest(**{**order, **lists}), Progress(**{**progress, "cursor": cursor})


def _who(request: HttpRequest) -> str:
    return f"{request.user.pk} {request.user.get_username()}"
