"""A master of a cluster is down: pages show the rest, and name it."""

import json

import pytest
from django.test import Client

from django_delayq import get_store, jobs, queue
from django_delayq.exceptions import StoreUnavailable
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.page_content import PAGES, ids, link, rows, text
from tests.admin.steps import confirm, request_action, result
from tests.servers.lost_master import ThreeMasters

LOST = 1
ADDRESSES = [page(name) for name in PAGES]
ADDRESSES += [page("overview") + f"live/{name}/" for name in PAGES]
ADDRESSES += [page("queue_detail", "default"), page("queue_tenants", "default"), page("recurring_calendar")]


@pytest.fixture(scope="module")
def lost_ids(masters: ThreeMasters) -> dict[int, list[str]]:
    """Lose a master with jobs; return the ids of the jobs of its shards."""
    made = masters.add_jobs()
    masters.lose(LOST)
    return {shard: made[shard] for shard in masters.lost_shards}


@pytest.fixture
def made(masters: ThreeMasters, lost_ids: dict[int, list[str]]) -> dict[int, list[str]]:
    """Ten scheduled jobs in each shard that is left; their ids by shard."""
    return masters.add_jobs()


@pytest.fixture
def sentence(masters: ThreeMasters, made: object) -> str:
    """What pages say."""
    numbers = ", ".join(map(str, masters.lost_shards))
    return f"{masters.lost_address} does not answer: the 2 shards that it has ({numbers}) are missing"


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_names_the_server_and_its_shards(address: str, sentence: str, browser: Client) -> None:
    said = text(browser.get(address))
    assert sentence in said
    assert "Its jobs wait until it is back." in said


def test_lists_and_counts_have_the_rest_and_say_that_they_are_incomplete(
    made: dict[int, list[str]], browser: Client
) -> None:
    shown = browser.get(page("scheduled", n=100))
    assert set(ids(shown)) == {id for ids in made.values() for id in ids}
    assert "Scheduled 40+" in text(shown)
    assert "Rows 1–40 of 40+" in text(shown)
    assert "Scheduled 40+" in text(browser.get(page("overview"))).split("Incomplete:")[1]


def test_servers_has_a_row_of_each_shard_and_why_a_server_does_not_answer(
    masters: ThreeMasters, made: dict[int, list[str]], browser: Client
) -> None:
    shown = rows(browser, "servers")
    assert list(shown) == [str(shard) for shard in range(6)]
    for shard in range(6):
        server, state, *counts = shown[str(shard)]
        if shard in masters.lost_shards:
            assert server == masters.lost_address
            assert state.startswith("down Redis did not answer")
            assert counts == ["–"] * 6
        else:
            assert server.startswith("127.0.0.1:") and masters.lost_address not in server
            assert (state, counts[:5]) == ("active", ["10", "0", "0", "0", "0"])
            assert counts[5].endswith("noeviction")
    assert link(browser.get(page("overview")), "Servers") == page("servers")


def test_the_page_of_a_job_names_its_server(
    masters: ThreeMasters, made: dict[int, list[str]], lost_ids: dict[int, list[str]], browser: Client
) -> None:
    answer = browser.get(page("job_detail", lost_ids[LOST][0]))
    assert answer.status_code == 503
    assert f"shard {LOST} at {masters.lost_address}" in text(answer)
    other = next(iter(made.values()))[0]
    assert browser.get(page("job_detail", other)).status_code == 200


def test_an_export_says_what_is_missing(made: dict[int, list[str]], sentence: str, browser: Client) -> None:
    answer = browser.get(page("export", "scheduled"))
    *rows, last = map(json.loads, b"".join(answer.streaming_content).splitlines())  # type: ignore[arg-type]
    assert {row["id"] for row in rows} == {id for ids in made.values() for id in ids}
    assert sentence in last["incomplete"]


def test_an_action_on_all_matching_jobs_leaves_those_of_the_server_alone(
    masters: ThreeMasters, sentence: str, browser: Client
) -> None:
    asked = request_action(browser, page("scheduled"), "cancel", all="yes")
    assert "Cancel 40 waiting jobs?" in text(asked)
    assert sentence in text(asked)
    said = result(browser, confirm(browser, asked))
    assert "40 jobs cancelled." in said
    assert f"{masters.lost_address} does not answer: jobs of the 2 shards that it has" in said


def test_an_action_on_selected_jobs_says_how_many_it_did_not_reach(
    made: dict[int, list[str]], lost_ids: dict[int, list[str]], browser: Client
) -> None:
    form = form_to(browser.get(page("scheduled", n=100)), "/action/", button="cancel")
    rows = [(name, value) for name, value in form.boxes if name == "row"][:3]
    # Rows of a page that was loaded before.
    rows += [("row", f"{each}.{rows[0][1].split('.')[1]}") for each in lost_ids[LOST][:2]]
    asked = form.post(browser, *rows, action="cancel")
    said = result(browser, confirm(browser, asked))
    assert "3 jobs cancelled. 2 were left alone, because their Redis server does not answer." in said


def test_a_pause_says_to_repeat_it(masters: ThreeMasters, made: object, browser: Client) -> None:
    paused = form_to(browser.get(page("queues")), "/action/", button="pause").post(browser, action="pause")
    said = result(browser, paused)
    assert "Paused queue default." in said
    assert f"{masters.lost_address} does not answer: do this again when it is back" in said


def test_an_api_for_code_raises_and_names_the_server(masters: ThreeMasters, made: object) -> None:
    with pytest.raises(StoreUnavailable, match=masters.lost_address):
        queue("default").counts()
    with pytest.raises(StoreUnavailable, match=masters.lost_address):
        jobs(state="scheduled").count()
    # The time is that of any server.
    assert get_store().now_us() > 0
