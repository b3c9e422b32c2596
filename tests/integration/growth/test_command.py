"""delayq_shards: another number of shards while jobs with keys, tenants, limits and schedules wait."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partialmethod
from io import StringIO
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import enqueue_many, queue
from django_delayq.job.ids import shard_of
from django_delayq.job.layout import Layout
from django_delayq.management import resharding
from django_delayq.management.commands.delayq_shards import even_moves
from django_delayq.store.digests import key_digest, tenant_digest
from django_delayq.store.growth.growth import Growth
from django_delayq.store.store import get_store
from django_delayq.task.finding import get_job
from tests.integration.growth.command import shards
from tests.integration.growth.several import HOUR, Process, holders
from tests.sample_app.tasks import noop

KEYS = [f"key {number}" for number in range(24)]
NAMES = [f"schedule {number}" for number in range(12)]


@pytest.fixture(autouse=True)
def _two_shards(delayq_settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    delayq_settings.DELAYQ = {
        **delayq_settings.DELAYQ,
        "SHARDS": 2,
        "ON_COMMIT": False,
        "LIMITS": {"api": {"max_running": 1}},
    }
    monkeypatch.setattr(resharding, "LEARN_EVERY", 0.0)
    yield
    get_store().disconnect_idle()


def fill() -> list[Any]:
    """Enqueue jobs of all kinds, due in an hour, and set schedules; return the handles."""
    handles = [noop.using(delay=HOUR, key=key).enqueue() for key in KEYS]
    handles += [noop.using(delay=HOUR, tenant=key).enqueue() for key in KEYS]
    handles += [noop.using(delay=HOUR, limit=("api", key)).enqueue() for key in KEYS]
    handles += [noop.using(delay=HOUR).enqueue() for _ in KEYS]
    get_store().store_limits()
    noop.schedules.set_many([{"name": name, "every": HOUR} for name in NAMES])
    return handles


def test_growing_and_finishing() -> None:
    handles = fill()
    assert queue("mail").pause()
    noop.schedules.pause(NAMES[0])
    grown = shards("--grow", "5")
    assert grown["shards"] == 5 and grown["left"]
    store = get_store()
    assert [each.shards for each in store.layout.chain] == [2, 5] and not store.layout.moves_schedules
    for index in range(5):
        shard = store.producer_shard(index)
        assert shard.execute("HLEN", shard.keys("paused")) == shard.execute("HLEN", shard.keys("limit_rules")) == 1
    for name in NAMES:
        found = noop.schedules.get(name)
        assert found is not None and found._stored.shard == store.layout.home(found._stored.id)
        assert found.is_paused is (name == NAMES[0])
    assert len(list(noop.schedules.iter())) == len(NAMES)
    assert queue("mail").resume()
    for handle in handles:
        found_job = get_job(handle.id)
        assert found_job is not None and found_job.cancel()
    done = shards("--finish")
    assert done["left"] == {} and store.layout.is_finished and store.layout.shards == 5
    for key in KEYS:
        assert noop.using(delay=HOUR, key=key).enqueue().id.split("-")[1] == str(store.layout.home(digest(key)))
    assert all(len(found) == 1 for found in holders(store, 5).values())


def digest(key: str) -> bytes:
    """Return the digest of a key of the task."""
    return key_digest(noop.name, key, None)


def _then(growth: Any, first: Any, then: Any, *args: Any) -> None:
    first(growth, *args)
    then()


@pytest.mark.parametrize("step", ["copy_rules", "spread_over", "count", "move_schedules"])
def test_growing_goes_on_after_a_kill_at_each_step(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    for after in (False, True):
        with monkeypatch.context() as patch:
            real = getattr(Growth, step)
            patch.setattr(Growth, step, partialmethod(_then, real, killed) if after else killed)
            with pytest.raises(KeyboardInterrupt):
                shards("--grow", "5" if not after else "6")
        # Meanwhile everybody enqueues.
        for key in KEYS:
            assert not Process().enqueue(key=key).created
        shards("--grow", "5" if not after else "6")
        assert get_store().layout.shards == (6 if after else 5)
        assert not get_store().layout.moves_schedules
        assert sorted(each.name for each in noop.schedules.iter()) == sorted(NAMES)
    assert all(len(found) == 1 for found in holders(get_store(), 6).values())


def test_shrinking_drains_first() -> None:
    shards("--grow", "4")
    handles = [noop.using(delay=HOUR).enqueue() for _ in range(40)]
    keyed = [noop.using(delay=HOUR, key=key).enqueue() for key in KEYS]
    with pytest.raises(CommandError, match="not empty yet"):
        shards("--shrink", "2")
    store = get_store()
    assert {noop.using(delay=HOUR).enqueue().id.split("-")[1] for _ in range(40)} == {"0", "1"}
    with pytest.raises(CommandError, match="not empty yet"):
        shards("--shrink", "2")
    assert store.shard_count == 4
    for handle in (*handles, *keyed):
        assert handle.cancel()
    assert shards("--shrink", "2")["left"] == {}
    assert store.layout.is_finished and store.shard_count == 2


def test_what_is_left_is_counted_by_jobs() -> None:
    tenant = next(each for each in KEYS if shard_of(tenant_digest(each), 2) != shard_of(tenant_digest(each), 5))
    enqueue_many([noop.using(delay=HOUR, tenant=tenant).job() for _ in range(1_100)])
    [left] = shards("--grow", "5")["left"].values()
    assert left == {"job with a tenant": 1_100}


def test_the_table_and_the_plan() -> None:
    fill()
    shards("--grow", "5")
    shown = shards()
    assert [each["shard"] for each in shown["shards"]] == [0, 1, 2, 3, 4]
    assert sum(each["scheduled"] for each in shown["shards"]) == 4 * len(KEYS)
    assert all(each["bytes"] >= 100 * each["scheduled"] for each in shown["shards"])
    assert shown["left"] and shown["nodes"][0]["connections"] > 0
    assert len(shards("--plan", "12")["shards"]) == 12
    call_command("delayq_shards")
    call_command("delayq_shards", "--plan")


def test_a_plan_makes_the_nodes_even() -> None:
    owners = {shard: "a" if shard < 5 else "b" for shard in range(6)}
    moves = list(even_moves(owners, ["a", "b", "c"]))
    assert len(moves) == 3 and {target for _, _, target in moves} == {"b", "c"}
    assert list(even_moves({0: "a"}, ["a"])) == []


def test_a_process_with_the_former_setting_follows_and_another_number_is_refused(delayq_settings: Any) -> None:
    fill()
    shards("--grow", "5")
    get_store().check_shards()
    assert get_store().shard_count == 5
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    with pytest.raises(Exception, match="delayq_shards --shrink 3"):
        get_store().check_shards()


@pytest.mark.parametrize(
    "text", ["5", "1 5", "7 2,5@6", "9 2,5@6,8@9 past=2,5", "3 2 coming=5", "12 5 past=2", "4 2,5@4 past=2 moves"]
)
def test_a_layout_is_read_as_it_was_written(text: str) -> None:
    layout = Layout.read(text)
    assert layout is not None
    assert Layout.read(layout.text) == layout
    assert layout.text == ("5" if text == "1 5" else text)


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "2 x", "2 0", "2 3,x", "2 3 coming=x", "99999999999999999 2"])
def test_a_layout_that_was_edited_manually_is_none(text: str) -> None:
    assert Layout.read(text) is None


def test_the_places_of_a_value_end_at_its_home() -> None:
    layout = Layout.read("9 2,5@6,8@9")
    assert layout is not None
    for number in range(2_000):
        routing = number.to_bytes(8)
        places = layout.places(routing)
        assert all(one.shard != other.shard for one, other in pairwise(places))
        assert [place.is_home for place in places] == [False] * (len(places) - 1) + [True]
        assert places[-1].shard == layout.home(routing)
        since = [place.left_since for place in places[:-1]]
        assert since == sorted(since) and set(since) <= {6, 9}


def check() -> dict[str, Any]:
    """Return the report of `delayq_check`."""
    out = StringIO()
    with suppress(SystemExit):
        call_command("delayq_check", "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_the_check_names_what_is_left_and_the_setting_to_change() -> None:
    fill()
    shards("--grow", "5")
    found = check()
    assert found["faults"] == []
    setting, older = (each for each in found["warnings"] if "shards" in each)
    assert "spread over 5 shards: processes follow; set it to that number with the next deploy" in setting
    assert (
        older.startswith("Something may be left of an older number of shards (2)") and "delayq_shards --finish" in older
    )


@pytest.mark.parametrize("setting", [2, 5])
def test_the_check_looks_at_all_shards_whatever_the_setting(setting: int, delayq_settings: Any) -> None:
    shards("--grow", "5")
    for _ in range(40):
        noop.using(delay=HOUR).enqueue()
    # A process that has just started.
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": setting}
    found = check()
    assert found["waiting"] == 40 and found["servers"][0]["shards"] == [0, 1, 2, 3, 4]


def test_the_check_finds_a_job_that_a_frozen_process_sent_to_a_dropped_shard() -> None:
    shards("--grow", "4")
    shards("--shrink", "2")
    assert check()["faults"] == []
    draft = noop.using(delay=HOUR).job().draft
    assert draft is not None
    get_store().enqueue_api(3).enqueue([draft])
    [fault] = check()["faults"]
    assert fault.startswith("Shard 3 was dropped") and "(jobs: 1)" in fault and "--grow 4" in fault
    shards("--grow", "4")
    assert check()["faults"] == []
