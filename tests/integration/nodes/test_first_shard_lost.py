"""The master of shard 0 is down: a process that has just started enqueues in the others, and commands show them."""

import json
from io import StringIO
from itertools import count
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import State
from django_delayq.store.store import Store, get_store
from tests.integration.growth.several import HOUR, Process
from tests.sample_app.tasks import noop
from tests.servers.lost_master import SHARDS, ThreeMasters


@pytest.fixture(scope="module")
def lost(masters: ThreeMasters) -> ThreeMasters:
    masters.lose(0)
    return masters


@pytest.fixture(autouse=True)
def _layout(lost: ThreeMasters, delayq_settings: Any) -> None:
    """The shards know their layout, as after any start before the loss."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ON_COMMIT": False}
    for index in set(range(SHARDS)) - set(lost.lost_shards):
        get_store().layouts.set_layout(get_store().layout.of(SHARDS, number=1), index)


@pytest.mark.parametrize("option", ["none", "key", "tenant"])
def test_jobs_of_the_other_shards_are_accepted(option: str, lost: ThreeMasters) -> None:
    for shard in set(range(SHARDS)) - set(lost.lost_shards):
        drafts = (noop.using(delay=HOUR, **({} if option == "none" else {option: str(n)})).job() for n in count())
        handle = next(each for each in drafts if each.id.endswith(f"-{shard}"))
        # A process that has just started.
        assert Process().call(enqueue_many, [handle]) == [handle]
        assert handle.created and handle.state is State.SCHEDULED


def test_jobs_without_a_key_go_around_it(lost: ThreeMasters, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ROUTE_AROUND": True}
    process, refused = Process(), 0
    for _ in range(20):
        try:
            process.enqueue()
        except StoreUnavailable:
            refused += 1
    # One for each shard that was not known to be away.
    assert refused <= len(lost.lost_shards)


def test_the_shards_are_shown_and_the_server_is_named(lost: ThreeMasters) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match=f"INCOMPLETE: {lost.lost_address} does not answer"):
        call_command("delayq_shards", "--json", stdout=out)
    facts = json.loads(out.getvalue())
    assert [each["shard"] for each in facts["shards"]] == sorted(set(range(SHARDS)) - set(lost.lost_shards))
    assert facts["missing"][0]["shards"] == lost.lost_shards
    with pytest.raises(CommandError, match="INCOMPLETE"):
        call_command("delayq_shards", stdout=StringIO())
    call_command("delayq_shards", "--plan", stdout=StringIO())


def test_the_check_knows_the_layout(delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 5}
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("delayq_check", "--json", stdout=out)
    assert any("spread over 6 shards" in fault for fault in json.loads(out.getvalue())["faults"])
    assert Store(get_store().config).layouts.read_any() is not None
