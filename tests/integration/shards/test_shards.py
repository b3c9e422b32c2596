"""Shards: an id leads to its job forever, and a change of SHARDS that would lose jobs is refused."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from django_delayq import enqueue_many
from django_delayq.clock import SECOND_US, ServerClock
from django_delayq.dispatcher.declarer import Declarer
from django_delayq.exceptions import KeyHeld, ShardsChanged
from django_delayq.job.ids import from_text, to_text
from django_delayq.job.job import State
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.store import Store, get_store
from django_delayq.task.finding import get_job
from django_delayq.task.handle import JobHandle
from tests.one_by_one import one_by_one
from tests.sample_app.tasks import noop
from tests.shard_apis import ShardApis

HOUR = 3_600


@pytest.fixture(autouse=True)
def _closed_connections() -> Iterator[None]:
    yield
    disconnect(get_store())


def disconnect(store: Store) -> None:
    """Close a store's connections."""
    for shard in (*store.shards, *store._producer_shards):
        shard.client.connection_pool.disconnect()


def use_shards(settings: Any, number: int) -> None:
    """Use `number` shards from now on, as after a restart."""
    disconnect(get_store())
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": number, "ON_COMMIT": False}


def enqueued(number: int, **options: Any) -> list[JobHandle]:
    """Enqueue jobs due in an hour."""
    return [noop.using(delay=HOUR, **options).enqueue(n) for n in range(number)]


def test_an_id_carries_the_shard_of_its_job(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 4)
    handles = enqueued(64)
    assert {handle.id.split("-")[1] for handle in handles} == {"0", "1", "2", "3"}
    for handle in handles:
        place = from_text(handle.id)
        assert place is not None
        raw_id, shard = place
        assert get_store().lookup(shard).find(raw_id).state is State.SCHEDULED
        others = [number for number in range(4) if number != shard]
        assert {get_store().lookup(number).find(raw_id).state for number in others} == {State.GONE}


def test_old_ids_lead_to_their_jobs_after_shards_were_added(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 2)
    old = [handle.id for handle in enqueued(20)]
    use_shards(delayq_settings, 5)
    get_store().check_shards()
    new = [handle.id for handle in enqueued(20)]
    for job_id in old + new:
        found = get_job(job_id)
        assert found is not None
        assert found.state is State.SCHEDULED
        assert found.cancel()
    assert {job_id.split("-")[1] for job_id in old} == {"0", "1"}
    assert len({job_id.split("-")[1] for job_id in new}) > 2


def test_an_id_of_a_removed_shard_leads_nowhere(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 1)
    assert get_job(f"{'0' * 24}-7") is None
    handle = JobHandle(raw_id=bytes(12), shard=7)
    assert handle.state is State.GONE
    assert not handle.cancel()
    assert not handle.reschedule(delay=1)


def test_a_key_leads_to_one_shard_whatever_the_id(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 8)
    for number in range(20):
        first = noop.using(delay=HOUR, key=f"{number}").enqueue()
        second = noop.using(delay=HOUR, key=f"{number}").enqueue()
        assert (second.id, second.created) == (first.id, False)
        found = noop.get_job(key=f"{number}")
        assert found is not None
        assert found.id == first.id


@pytest.mark.parametrize("shards", [2, 4])
def test_a_changed_number_is_refused_while_keyed_jobs_wait(delayq_settings: Any, shards: int) -> None:
    use_shards(delayq_settings, 3)
    keyed = noop.using(delay=HOUR, key="k").enqueue()
    use_shards(delayq_settings, shards)
    with pytest.raises(ImproperlyConfigured, match=rf"changed from 3 to {shards} .* --force-shards"):
        get_store().check_shards()
    # A second try is refused too, and so is a producer, whose key would lead to another shard.
    with pytest.raises(ImproperlyConfigured):
        noop.using(delay=HOUR, key="k").enqueue()
    with pytest.raises(CommandError, match="SHARDS"):
        call_command("run_dispatcher")
    use_shards(delayq_settings, 3)
    get_store().check_shards()
    assert noop.using(delay=HOUR, key="k").enqueue().id == keyed.id


def test_a_changed_number_is_accepted_if_it_is_forced(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 1)
    noop.using(delay=HOUR, key="k").enqueue()
    use_shards(delayq_settings, 3)
    get_store().check_shards(force=True)
    get_store().check_shards()
    use_shards(delayq_settings, 3)
    assert noop.using(delay=HOUR, key="another").enqueue().created


def test_a_changed_number_is_accepted_once_the_keyed_jobs_are_done(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 1)
    keyed = noop.using(delay=HOUR, key="k").enqueue()
    enqueued(5)
    keyed.cancel()
    use_shards(delayq_settings, 3)
    get_store().check_shards()
    assert noop.using(delay=HOUR, key="k").enqueue().created


def test_dropping_a_shard_with_jobs_is_refused(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 3)
    get_store().check_shards()
    handles = enqueued(30)
    use_shards(delayq_settings, 2)
    with pytest.raises(ImproperlyConfigured, match="changed from 3 to 2 while shard 2 holds"):
        get_store().check_shards()
    use_shards(delayq_settings, 3)
    for handle in handles:
        if handle.id.endswith("-2"):
            handle.cancel()
    use_shards(delayq_settings, 2)
    get_store().check_shards()


def test_dropping_a_shard_with_dead_letters_is_refused(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 2)
    get_store().check_shards()
    shard = get_store().shards[1]
    shard.client.hset(shard.keys("dead_bodies"), bytes(12), b"a dead letter")
    use_shards(delayq_settings, 1)
    with pytest.raises(ImproperlyConfigured, match="shard 1 holds 1 jobs"):
        get_store().check_shards()


def test_dropping_a_shard_with_jobs_is_refused_even_if_only_producers_ever_ran(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 2)
    enqueued(20)
    use_shards(delayq_settings, 1)
    with pytest.raises(ImproperlyConfigured, match="SHARDS"):
        get_store().check_shards()


def test_a_dead_letter_takes_its_key_in_the_shard_to_which_that_belongs_now(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 1)
    keys = [f"{number}" for number in range(20)]
    apis = ShardApis(delayq_settings.DELAYQ["REDIS"], clock=ServerClock())
    try:
        letters = {}
        for key in keys:
            raw_id = from_text(noop.using(key=key).enqueue().id)[0]  # type: ignore[index]
            apis.kill(raw_id)
            letters[key] = apis.inspection.dead_letter(raw_id)
        unkeyed = apis.inspection.dead_letter(apis.add_dead())
    finally:
        apis.close()
    use_shards(delayq_settings, 2)
    store = get_store()
    store.check_shards()
    operations = store.operations(0).dead_letters
    for key, letter in letters.items():
        assert letter is not None
        job = BatchJob(raw_id=letter.raw_id, died_us=letter.moment_us, delay_us=HOUR * SECOND_US)
        newer = noop.using(delay=HOUR, key=key).enqueue()
        [held] = operations.requeue([job])
        assert isinstance(held.error, KeyHeld)
        newer.cancel()
        [effect] = operations.requeue([job])
        assert effect.done and noop.using(delay=HOUR, key=key).enqueue().id == to_text(letter.raw_id, effect.shard or 0)
        assert store.find(letter.raw_id, effect.shard or 0).state is State.SCHEDULED
        # A second person finds that it is no dead letter any more.
        assert not operations.requeue([job])[0].done
    assert {newer.shard for newer in store.lookup(1).page(State.SCHEDULED, queues=["default"]).rows} == {1}
    assert unkeyed and one_by_one().requeue(unkeyed.raw_id, died_us=unkeyed.moment_us)


@pytest.mark.parametrize("number", [1, 3])
def test_jobs_refused_because_of_a_changed_number_are_in_the_error(number: int, delayq_settings: Any) -> None:
    use_shards(delayq_settings, 3)
    noop.using(delay=HOUR, key="k").enqueue()
    use_shards(delayq_settings, 2)
    with pytest.raises(ShardsChanged) as caught:
        handles = [noop.using(delay=HOUR, key=f"l {at}").job() for at in range(number)]
        enqueue_many(handles)
    assert list(caught.value.unsent) == handles and not caught.value.maybe_accepted


def test_schedules_that_were_set_at_run_time_keep_the_number(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 2)
    declare(delayq_settings)
    noop.schedules.set("at run time", every=60)
    use_shards(delayq_settings, 3)
    with pytest.raises(ShardsChanged, match="holds 0 jobs, 0 of them keyed, and 1 recurring schedules"):
        get_store().check_shards()
    use_shards(delayq_settings, 2)
    noop.schedules.delete("at run time")
    use_shards(delayq_settings, 3)
    get_store().check_shards()


def test_declared_schedules_move_to_their_shards(delayq_settings: Any) -> None:
    use_shards(delayq_settings, 1)
    names = declare(delayq_settings)
    assert {each.name for each in noop.schedules.iter()} == names
    use_shards(delayq_settings, 3)
    get_store().check_shards()
    assert declare(delayq_settings) == names
    assert sorted(each.name for each in noop.schedules.iter()) == sorted(names)
    assert all(noop.schedules.get(name) for name in names)


def declare(settings: Any) -> set[str]:
    """Declare schedules in each shard, as dispatchers that start now; return their names."""
    names = {f"declared {number}" for number in range(10)}
    recurring = {name: {"task": noop.name, "every": 60} for name in names}
    settings.DELAYQ = {**settings.DELAYQ, "RECURRING": recurring}
    store = get_store()
    for shard in store.shards:
        Declarer(store, shard, process=os.urandom(8)).step()
    return names
