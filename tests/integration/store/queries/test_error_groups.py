"""Error groups: their numbers are those of the dead letters after each change; their jobs are read without a scan."""

from collections.abc import Callable, Iterator

import pytest

from django_delayq.job.errors.error_group import ErrorGroup
from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.job.security.error_group_record import OTHER_GROUPS
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.queries.error_groups import ErrorGroupCount, ErrorGroupQueries
from tests.integration.store.promotion.test_reclaim import claimed, decided, expired_leases
from tests.shard_apis import HOUR, SECOND, START, ShardApis

DAY = 24 * HOUR
TASK = "tests.sample_app.tasks.noop"


def die(apis: ShardApis, *errors: str) -> list[bytes]:
    """Let a job die of each error, a second after the last; return their ids."""
    worker, ids = apis.worker(), []
    for error in errors:
        apis.clock.advance(SECOND)
        ids.append(apis.add())
        [claim] = worker.take(1).claims
        worker.settle(claim, Action.DEAD_LETTER, error=f"Traceback …\nValueError: {error}")
    return ids


def groups(apis: ShardApis) -> dict[str, ErrorGroupCount]:
    """Return the groups by their messages."""
    found = ErrorGroupQueries(apis.shard).find_error_groups()
    assert sum(each.count for each in found) == apis.client.zcard(apis.keys("dead_letters"))
    return {each.group.message if each.group else "": each for each in found}


def counts(apis: ShardApis) -> dict[str, int]:
    return {message: each.count for message, each in groups(apis).items()}


@pytest.fixture(autouse=True)
def consistent(apis: ShardApis) -> Iterator[None]:
    """After each test the index of the groups agrees with the dead letters."""
    yield
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_dead_letters_that_failed_alike_are_counted_together(apis: ShardApis) -> None:
    die(apis, "no order 1", "no money", "no order 22", "no order 333")
    found = groups(apis)
    assert counts(apis) == {"no order #": 3, "no money": 1}
    orders = found["no order #"]
    assert orders.group == ErrorGroup(TASK, "ValueError", "no order #")
    assert (orders.first_us, orders.last_us) == (START + SECOND, START + 4 * SECOND)


def test_each_way_in_which_dead_letters_go_is_counted(apis: ShardApis, make_apis: Callable[..., ShardApis]) -> None:
    discarded, requeued, *_ = die(apis, *["no money"] * 5)
    apis.operations.discard(discarded, died_us=apis.inspection.dead_letter(discarded).moment_us)
    assert counts(apis) == {"no money": 4}
    apis.operations.requeue(requeued, died_us=apis.inspection.dead_letter(requeued).moment_us)
    assert counts(apis) == {"no money": 3}
    small = make_apis(DEAD_MAX_COUNT=1)
    small.clock.advance(HOUR)
    assert small.promote().trimmed == 2
    assert counts(apis) == {"no money": 1}


def test_a_lost_worker_is_a_group(apis: ShardApis) -> None:
    _, claim = claimed(apis)
    [item] = expired_leases(apis, claim.lease)
    assert apis.promotion.reclaim([decided(item, dead=True)]) == [True]
    assert sum(counts(apis).values()) == 1


def test_a_group_without_dead_letters_is_not_shown_and_remembers_when_it_came_first(apis: ShardApis) -> None:
    [letter] = die(apis, "no money")
    died = apis.inspection.dead_letter(letter).moment_us
    apis.operations.discard(letter, died_us=died)
    assert counts(apis) == {}
    apis.clock.advance(6 * DAY)
    die(apis, "no money")
    assert groups(apis)["no money"].first_us == died


def test_a_group_without_dead_letters_is_forgotten_after_a_week_when_others_come(apis: ShardApis) -> None:
    [letter] = die(apis, "no money")
    apis.operations.discard(letter, died_us=apis.inspection.dead_letter(letter).moment_us)
    apis.clock.advance(8 * DAY)
    die(apis, *(f"no {word}" for word in ("card", "cart", "user", "shop", "item", "page", "mail", "post")))
    assert len(groups(apis)) == 8
    assert apis.client.hlen(apis.keys("error_groups")) == 8


def test_beyond_a_thousand_groups_messages_count_no_more_and_then_classes(apis: ShardApis) -> None:
    records = {b"m%011d" % number: bytes(16) for number in range(1000)}
    apis.client.hset(apis.keys("error_groups"), mapping=records)  # type: ignore[arg-type]
    apis.clock.advance(-START + SECOND)
    die(apis, "no money", "no card")
    [found] = ErrorGroupQueries(apis.shard).find_error_groups()
    assert (found.count, found.group) == (2, ErrorGroup(TASK, "ValueError", ""))
    records = {b"c%011d" % number: bytes(16) for number in range(249)}
    apis.client.hset(apis.keys("error_groups"), mapping=records)  # type: ignore[arg-type]
    worker = apis.worker()
    apis.add()
    worker.settle(worker.take(1).claims[0], Action.DEAD_LETTER, error="another kind")
    others = {each.digest: each for each in ErrorGroupQueries(apis.shard).find_error_groups()}
    assert (others[OTHER_GROUPS].count, others[OTHER_GROUPS].group) == (1, None)
    assert others[found.digest].count == 2


def test_the_times_of_named_groups_are_those_of_the_dead_letters_that_are_there(apis: ShardApis) -> None:
    first, *_, last = die(apis, "no money", "no money", "no card", "no money")
    for letter in (first, last):
        apis.operations.discard(letter, died_us=apis.inspection.dead_letter(letter).moment_us)
    queries, found = ErrorGroupQueries(apis.shard), groups(apis)
    digests = [found["no money"].digest, found["no card"].digest, b"unknown     "]
    money, card, unknown = queries.times(digests, start_us=START, width_us=2 * SECOND, bars=3)
    assert (money.count, money.oldest_us, money.newest_us) == (1, START + 2 * SECOND, START + 2 * SECOND)
    assert (money.bars, card.bars, unknown.bars) == ([0, 1, 0], [0, 1, 0], [0, 0, 0])
    assert (unknown.count, unknown.oldest_us, unknown.newest_us) == (0, None, None)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_pages_of_groups_show_their_dead_letters_in_order(apis: ShardApis, count: int, before: bool) -> None:
    ids = die(apis, *["no money", "no card", "no user"] * 4)
    wanted = [groups(apis)[message].digest for message in ("no money", "no user")]
    expected, seen, cursor, ranks = [raw_id for at, raw_id in enumerate(ids) if at % 3 != 1], [], None, []
    for _ in range(20):
        page = apis.inspection.page(State.DEAD, groups=wanted, cursor=cursor, before=before, count=count)
        assert page.total == 8
        seen = [*(row.raw_id for row in page.rows), *seen] if before else [*seen, *(row.raw_id for row in page.rows)]
        ranks.append(page.rank)
        if page.end is None:
            break
        cursor = page.rows[0 if before else -1].cursor
    assert seen == expected
    assert ranks == sorted(ranks, reverse=before)


def test_a_page_of_groups_has_bounds_and_jumps(apis: ShardApis) -> None:
    ids = die(apis, *["no money", "no card"] * 4)
    money = [groups(apis)["no money"].digest]

    def found(**options: object) -> tuple[list[bytes], int, int]:
        page = apis.inspection.page(State.DEAD, groups=money, **options)
        return [row.raw_id for row in page.rows], page.rank, page.total

    # Those of money died in the seconds 1, 3, 5 and 7.
    assert found(from_us=START + 2 * SECOND, to_us=START + 6 * SECOND) == (ids[2:6:2], 0, 2)
    assert found(cursor=(START + 4 * SECOND, b"")) == (ids[4::2], 2, 4)
    assert found(cursor=(START + 5 * SECOND, b""), before=True) == (ids[0:4:2], 0, 4)
    # The row of the cursor has gone.
    assert found(cursor=(START + 3 * SECOND, ids[1])) in ((ids[2::2], 1, 4), (ids[4::2], 2, 4))


def test_a_repair_makes_the_index_of_the_groups_again(apis: ShardApis) -> None:
    ids = die(apis, *["no money"] * 4)
    client, keys, check = apis.client, apis.keys, ConsistencyCheck(apis.shard)
    entries = client.zrange(keys("dead_by_group"), 0, -1)
    client.zrem(keys("dead_by_group"), entries[0])
    client.hdel(keys("groups_of_dead"), ids[1])
    client.zadd(keys("dead_by_group"), {entries[2][:12] + b"\0" * 8 + ids[2]: 0, b"short": 0, b"x" * 32: 0})
    client.hset(keys("groups_of_dead"), mapping={b"no such job.": b"123456789012", ids[3]: b"short"})  # type: ignore[arg-type]
    client.hset(keys("error_groups"), b"a group     ", b"short")
    assert {each.code for each in check.walk()} == {"NOT_GROUPED", "MISSING", "MALFORMED"}
    assert list(check.walk(repair=True))
    assert list(check.walk(repair=True)) == []
    assert sum(counts(apis).values()) == 4
    assert client.zcard(keys("dead_by_group")) == client.hlen(keys("groups_of_dead")) == 4
