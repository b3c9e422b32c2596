"""Page: rows of one place from a cursor, with ties, rows that vanished, and jumps."""

from collections.abc import Iterator
from typing import Any

import pytest

from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.store.queries.lookup import JobPage
from tests.shard_apis import HOUR, LARGE_TEXT, SECOND, START, ShardApis, settlement


def walk(apis: ShardApis, state: State = State.SCHEDULED, *, count: int, before: bool = False) -> Iterator[JobPage]:
    """Follow the cursor from the first page to the last, or back from the last one."""
    cursor = None
    for _ in range(50):
        page = apis.inspection.page(state, queues=["default"], cursor=cursor, before=before, count=count)
        if not page.rows:
            return
        yield page
        row = page.rows[0 if before else -1]
        cursor = (row.score, row.member)
    raise AssertionError("the pages do not end")


def seen(page: JobPage) -> list[bytes]:
    """Return the ids of a page's rows."""
    return [row.member[:12] for row in page.rows]


@pytest.fixture
def tied(apis: ShardApis) -> list[bytes]:
    """Twenty scheduled jobs; ten in the middle are due at the same time."""
    dues = [1, 2, 3, 4, 5, *[10] * 10, 11, 12, 13, 14, 15]
    drafts = [apis.draft(number, delay=due * SECOND) for number, due in enumerate(dues)]
    apis.enqueue(*drafts)
    return [draft.job.raw_id for draft in drafts]


@pytest.mark.parametrize("count", [1, 3, 7, 20, 50])
def test_pages_forward_show_every_row_once_in_order(apis: ShardApis, tied: list[bytes], count: int) -> None:
    pages = list(walk(apis, count=count))
    assert [raw_id for page in pages for raw_id in seen(page)] == tied
    assert [page.rank for page in pages] == list(range(0, 20, count))
    assert {page.total for page in pages} == {20}


@pytest.mark.parametrize("count", [1, 3, 7, 20, 50])
def test_pages_backward_show_every_row_once_in_order(apis: ShardApis, tied: list[bytes], count: int) -> None:
    pages = list(walk(apis, count=count, before=True))
    assert [raw_id for page in reversed(pages) for raw_id in seen(page)] == tied
    assert pages[-1].rank == 0


def test_manually_edited_scores_are_paged_through_too(apis: ShardApis) -> None:
    written = [float("-inf"), -1e308, 0.25, 0.5, 0.75, 1.0, 1e16, 1e16 + 2, 1e308, float("inf"), float("inf")]
    rows = {bytes([number]) * 14: score for number, score in enumerate(written)}
    apis.client.zadd(apis.keys.scheduled("default"), rows)
    for before in (False, True):
        pages = list(walk(apis, count=1, before=before))
        found = [row for page in (reversed(pages) if before else pages) for row in page.rows]
        assert [(row.member, row.score) for row in found] == list(rows.items())
        assert all(abs(row.moment_us) <= 2**53 for row in found)


def test_a_row_has_the_job_its_due_time_and_its_attempts(apis: ShardApis) -> None:
    raw_id = apis.add("argument")
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.RETRY, delay=HOUR, error="no luck")
    (row,) = apis.inspection.page(State.SCHEDULED, queues=["default"]).rows
    assert (row.member[:12], row.score, row.queue) == (raw_id, START + HOUR, "default")
    assert row.task == "tests.sample_app.tasks.noop"
    assert row.job is not None
    assert (row.job.args, row.attempts.last_error) == (["argument"], "no luck")


def test_jump_to_a_time_starts_at_the_first_row_not_before_it(apis: ShardApis, tied: list[bytes]) -> None:
    at_ties = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=(START + 10 * SECOND, b""), count=3)
    assert (seen(at_ties), at_ties.rank) == (tied[5:8], 5)
    between = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=(START + 10 * SECOND + 1, b""), count=3)
    assert (seen(between), between.rank) == (tied[15:18], 15)
    after_all = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=(START + HOUR, b""))
    assert (seen(after_all), after_all.rank) == ([], 20)


def test_jump_back_ends_before_the_time(apis: ShardApis, tied: list[bytes]) -> None:
    page = apis.inspection.page(
        State.SCHEDULED, queues=["default"], cursor=(START + 10 * SECOND, b""), before=True, count=3
    )
    assert (seen(page), page.rank) == (tied[2:5], 2)


def test_cursor_survives_that_its_row_vanished(apis: ShardApis, tied: list[bytes]) -> None:
    first = apis.inspection.page(State.SCHEDULED, queues=["default"], count=3)
    cursor = (first.rows[-1].score, first.rows[-1].member)
    apis.operations.cancel(tied[2])
    after = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=cursor, count=3)
    assert (seen(after), after.rank) == (tied[3:6], 2)
    before = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=cursor, before=True)
    assert seen(before) == tied[:2]


def test_rows_that_vanish_before_the_cursor_do_not_shift_it(apis: ShardApis, tied: list[bytes]) -> None:
    first = apis.inspection.page(State.SCHEDULED, queues=["default"], count=8)
    for raw_id in tied[:4]:
        apis.operations.cancel(raw_id)
    cursor = (first.rows[-1].score, first.rows[-1].member)
    after = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=cursor, count=3)
    assert (seen(after), after.rank) == (tied[8:11], 4)


def test_vanished_row_among_ties_never_skips_one_ahead(apis: ShardApis, tied: list[bytes]) -> None:
    first = apis.inspection.page(State.SCHEDULED, queues=["default"], count=8)
    apis.operations.cancel(tied[7])
    cursor = (first.rows[-1].score, first.rows[-1].member)
    after = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=cursor, count=50)
    assert [raw_id for raw_id in tied[8:] if raw_id not in seen(after)] == []


def test_row_that_got_another_time_is_no_cursor_any_more(apis: ShardApis, tied: list[bytes]) -> None:
    first = apis.inspection.page(State.SCHEDULED, queues=["default"], count=3)
    apis.operations.reschedule(tied[2], delay_us=HOUR)
    cursor = (first.rows[-1].score, first.rows[-1].member)
    after = apis.inspection.page(State.SCHEDULED, queues=["default"], cursor=cursor, count=3)
    assert seen(after) == tied[3:6]


def test_rows_are_at_most_250_and_at_least_one(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(number, delay=HOUR) for number in range(300)])
    for count, rows in ((10_000, 250), (0, 1), (-5, 1)):
        assert len(apis.inspection.page(State.SCHEDULED, queues=["default"], count=count).rows) == rows


def test_ready_jobs_are_shown_in_the_order_they_will_be_taken(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(number, priority=number % 5) for number in range(50)])
    shown = [raw_id for page in walk(apis, State.READY, count=7) for raw_id in seen(page)]
    assert shown == [claim.raw_id for claim in apis.worker().take(64).claims]


def test_claimed_jobs_are_shown_by_the_end_of_their_lease(apis: ShardApis) -> None:
    first = apis.add("argument")
    apis.worker().take()
    apis.clock.advance(SECOND)
    second = apis.add(queue="other")
    apis.worker().take(1, "other")
    page = apis.inspection.page(State.CLAIMED)
    assert seen(page) == [first, second]
    assert [row.score for row in page.rows] == [START + 30 * SECOND, START + 31 * SECOND]
    assert [row.queue for row in page.rows] == ["default", "other"]


def test_dead_letters_are_shown_with_their_history_and_ties(apis: ShardApis) -> None:
    drafts = [apis.draft(number, key=f"{number}") for number in range(9)]
    apis.enqueue(*drafts)
    worker = apis.worker()
    claims = worker.take(9).claims
    worker.take(0, settle=[settlement(claim, Action.DEAD_LETTER, error=claim.id) for claim in claims])
    shown = [row for page in walk(apis, State.DEAD, count=4) for row in page.rows]
    assert [row.member for row in shown] == [draft.job.raw_id for draft in drafts]
    assert [row.attempts.last_error for row in shown] == [draft.job.id for draft in drafts]
    assert [row.job.args for row in shown if row.job] == [[number] for number in range(9)]
    assert {row.score for row in shown} == {START}


@pytest.mark.parametrize("dead", [False, True])
def test_a_row_with_a_large_body_shows_its_task_and_queue(apis: ShardApis, dead: bool) -> None:
    raw_id = apis.add(LARGE_TEXT, queue="mail", key="k")
    if dead:
        apis.kill(raw_id, queue="mail")
    (row,) = apis.inspection.page(State.DEAD if dead else State.READY, queues=["mail"]).rows
    assert (row.job, row.task, row.queue) == (None, "tests.sample_app.tasks.noop", "mail")


@pytest.mark.parametrize("body", [None, b"", b"\xff" * 40])
def test_row_with_a_damaged_body_is_shown(apis: ShardApis, body: bytes | None) -> None:
    raw_id = apis.add()
    apis.client.hdel(apis.keys("jobs"), raw_id)
    if body is not None:
        apis.client.hset(apis.keys("jobs"), raw_id, body)
    (row,) = apis.inspection.page(State.READY, queues=["default"]).rows
    assert (row.member[:12], row.job, row.task, row.queue) == (raw_id, None, "", "default")


def test_empty_place_has_an_empty_page(apis: ShardApis) -> None:
    for state in (State.SCHEDULED, State.READY, State.CLAIMED, State.DEAD):
        for before in (False, True):
            page = apis.inspection.page(state, queues=["nobody"], before=before)
            assert (page.rows, page.total, page.rank) == ([], 0, 0)


def test_looking_changes_nothing(apis: ShardApis, tied: list[bytes]) -> None:
    before = {key: apis.client.dump(key) for key in apis.client.keys("*")}
    list(walk(apis, count=3))
    assert {key: apis.client.dump(key) for key in apis.client.keys("*")} == before


def test_full_memory_does_not_stop_pages(own_apis: ShardApis) -> None:
    raw_id = own_apis.add()
    own_apis.fill_memory()
    assert seen(own_apis.inspection.page(State.READY, queues=["default"])) == [raw_id]


def test_flushed_scripts_are_loaded_again(apis: ShardApis, tied: list[bytes]) -> None:
    pages = walk(apis, count=10)
    next(pages)
    apis.client.script_flush()
    assert seen(next(pages)) == tied[10:]


def test_several_queues_are_one_list_in_order_of_score_then_member(apis: ShardApis) -> None:
    drafts = [apis.draft(queue=f"q{number % 3}", delay=(number // 4) * SECOND + 1) for number in range(40)]
    apis.enqueue(*drafts)
    expected = [draft.job.raw_id for draft in drafts]
    queues = ["q0", "q1", "q2"]
    for count in (1, 3, 7, 250):
        cursor, seen_ids, ranks = None, [], []
        for _ in range(50):
            page = apis.inspection.page(State.SCHEDULED, queues=queues, cursor=cursor, count=count)
            seen_ids += seen(page)
            ranks.append(page.rank)
            cursor = page.end
            if cursor is None:
                break
        assert seen_ids == expected
        assert ranks == list(range(0, 40, count))
        cursor, seen_ids = None, []
        for _ in range(50):
            page = apis.inspection.page(State.SCHEDULED, queues=queues, cursor=cursor, before=True, count=count)
            seen_ids = seen(page) + seen_ids
            assert page.rank == 40 - len(seen_ids)
            cursor = page.end
            if cursor is None:
                break
        assert seen_ids == expected


def test_a_cursor_whose_row_vanished_among_ties_skips_and_repeats_nothing(apis: ShardApis) -> None:
    drafts = [apis.draft(queue=f"q{number % 2}", delay=SECOND) for number in range(30)]
    apis.enqueue(*drafts)
    expected, queues = [draft.job.raw_id for draft in drafts], ["q0", "q1"]
    first = apis.inspection.page(State.SCHEDULED, queues=queues, count=10)
    assert seen(first) == expected[:10]
    assert apis.operations.cancel(expected[9])
    after = apis.inspection.page(State.SCHEDULED, queues=queues, cursor=first.end, count=50)
    assert (seen(after), after.rank, after.total) == (expected[10:], 9, 29)
    before = apis.inspection.page(State.SCHEDULED, queues=queues, cursor=first.end, before=True, count=50)
    assert seen(before) == expected[:9]


def test_bounds_of_time_move_the_start_and_the_stop(apis: ShardApis, tied: list[bytes]) -> None:
    def page(**options: Any) -> JobPage:
        return apis.inspection.page(State.SCHEDULED, queues=["default"], **options)

    inside = page(from_us=START + 3 * SECOND, to_us=START + 10 * SECOND)
    assert (seen(inside), inside.rank, inside.total, inside.end) == (tied[2:5], 0, 3, None)
    first = page(from_us=START + 3 * SECOND, to_us=START + 10 * SECOND, count=2)
    rest = page(from_us=START + 3 * SECOND, to_us=START + 10 * SECOND, count=2, cursor=first.end)
    assert (seen(rest), rest.rank, rest.end) == (tied[4:5], 2, None)
    last = page(from_us=START + 3 * SECOND, to_us=START + 10 * SECOND, count=2, before=True)
    assert (seen(last), last.rank) == (tied[3:5], 1)
    outside = page(from_us=START + 3 * SECOND, cursor=(START, b""), count=1)
    assert (seen(outside), outside.rank) == (tied[2:3], 0)
    assert seen(page(from_us=START + HOUR)) == []


def test_the_search_for_matching_rows_has_a_limit(apis: ShardApis) -> None:
    drafts = [apis.draft(number, queue="many", delay=number * SECOND + 1) for number in range(2_300)]
    for at in range(0, len(drafts), 500):
        apis.enqueue(*drafts[at : at + 500])
    ids_of = {draft.job.raw_id: number for number, draft in enumerate(drafts)}

    def page(match: Any, **options: Any) -> JobPage:
        return apis.inspection.page(State.SCHEDULED, queues=["many"], match=match, **options)

    few = page(lambda row: ids_of[row.raw_id] % 10 == 9, count=3)
    assert ([ids_of[raw_id] for raw_id in seen(few)], few.scanned, few.total) == ([9, 19, 29], 30, 2_300)
    more = page(lambda row: ids_of[row.raw_id] % 10 == 9, count=3, cursor=few.end)
    assert ([ids_of[raw_id] for raw_id in seen(more)], more.rank) == ([39, 49, 59], 30)
    back = page(lambda row: ids_of[row.raw_id] % 10 == 9, count=2, before=True)
    assert ([ids_of[raw_id] for raw_id in seen(back)], back.scanned) == ([2289, 2299], 11)
    scanned, cursor = 0, None
    for _ in range(100):
        none = page(lambda row: False, cursor=cursor)
        assert none.rows == []
        assert 0 < none.scanned <= 2_000
        scanned, cursor = scanned + none.scanned, none.end
        if cursor is None:
            break
    assert scanned == 2_300


def test_large_bodies_end_a_page_early_and_lose_no_row(apis: ShardApis) -> None:
    drafts = [apis.draft(LARGE_TEXT, queue="large", delay=number * SECOND + 1) for number in range(70)]
    for draft in drafts:
        apis.enqueue(draft)
    cursor, found = None, []
    for _ in range(20):
        page = apis.inspection.page(State.SCHEDULED, queues=["large"], cursor=cursor, count=100)
        assert len(page.rows) < 70
        found += seen(page)
        cursor = page.end
        if cursor is None:
            break
    assert found == [draft.job.raw_id for draft in drafts]
    assert all(row.is_cut and row.job is None and "too long" in row.fault and row.queue == "large" for row in page.rows)


def test_a_claimed_row_shows_its_worker_its_start_and_its_due_time(apis: ShardApis) -> None:
    apis.add(delay=SECOND)
    apis.clock.advance(2 * SECOND)
    apis.promote()
    apis.worker().take(1, description="web1:4411")
    (row,) = apis.inspection.page(State.CLAIMED).rows
    assert (row.worker, row.claim_record.claimed_us, row.score) == (
        *("web1:4411", apis.clock.now_us, apis.clock.now_us + apis.config.worker.lease_us),
    )
    assert row.due_us == (START + SECOND) // 1_000 * 1_000
    found = apis.inspection.find(row.raw_id, with_lease=True)
    assert (found.worker, found.lease_end_us) == ("web1:4411", row.score)
    assert apis.inspection.find(row.raw_id).lease_end_us is None
