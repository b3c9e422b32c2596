"""The pages: what each player sees, and what each action does."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.urls import path, reverse

from market import sales
from market.models import Notice, Sale, State
from market.tasks import close_bids, open_sale
from market.views.item import admin_link

SELL = {
    "name": "Silver compass", "kind": "gem", "description": "Hums.", "starting_price": "40",
    "opens_in_0": "15", "opens_in_1": "60", "open_for_0": "2", "open_for_1": "3600",
}  # fmt: skip


def versions(page):
    return dict(re.findall(r'data-region="(\w+)" data-version="([^"]*)"', page.content.decode()))


@pytest.mark.django_db
def test_an_empty_market_explains_what_to_do(client):
    page = client.get("/").content.decode()
    assert "Put the first item up" in page
    assert "No sale has closed yet" in page
    assert "Nothing has run yet" in client.get("/runs/").content.decode()


def test_the_market_shows_sales_on_their_shelves_in_a_few_queries(
    client, put_up, put_up_open, django_assert_max_num_queries
):
    for number in range(12):
        put_up(name=f"Later {number}")
    put_up_open(name="Open one")
    close_bids(put_up_open(name="Closed one").pk)
    with django_assert_max_num_queries(8):
        page = client.get("/").content.decode()
    assert "Open one" in page and "Closed one" in page
    assert page.count("Later ") == 9
    assert "See all 12" in page
    assert "Later 11" in client.get("/sales/upcoming/").content.decode()


def test_the_versions_of_the_shelves_change_when_a_sale_opens(client, put_up):
    before = versions(client.get("/live/"))
    sale = put_up(opens_in=timedelta(0))
    upcoming = versions(client.get("/live/"))
    open_sale(sale.pk)
    after = versions(client.get("/live/"))
    assert before["closed"] == upcoming["closed"] == after["closed"]
    assert len({before["upcoming"], upcoming["upcoming"]}) == 2
    assert after["upcoming"] == before["upcoming"] and after["open"] != before["open"]


def test_an_unknown_shelf_is_not_found_and_your_sales_need_a_player(client, db):
    assert client.get("/sales/nonsense/").status_code == 404
    assert client.get("/sales/mine/").status_code == 404


def test_selling_needs_a_player(client, db):
    assert client.get("/sell/").headers["Location"].startswith("/sign-in/")


def test_the_sell_form_puts_an_item_up_with_its_jobs(client, ann, transactional_db):
    client.force_login(ann)
    answer = client.post("/sell/", SELL, follow=True)
    sale = Sale.objects.get()
    assert (sale.seller, sale.name, sale.starting_price) == (ann, "Silver compass", 40)
    assert sale.closes_at - sale.opens_at == timedelta(hours=2)
    assert {name for name, _ in sales.jobs(sale)} == {"open_sale", "send_reminder"}
    assert "Your item is up for sale." in answer.content.decode()
    assert answer.redirect_chain[-1][0] == sale.get_absolute_url()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"name": ""}, "This field is required"),
        ({"opens_in_0": "61", "opens_in_1": "86400"}, "Choose between 1 s and 60 d"),
        ({"opens_in_0": "0"}, "greater than or equal to 1"),
        ({"open_for_0": "1", "open_for_1": "1"}, "Choose between 5 s and 14 d"),
        ({"starting_price": "0"}, "Ask for 1 to 1,000,000 gold"),
        ({"kind": "dragon"}, "not one of the available choices"),
    ],
)
def test_an_invalid_sell_form_shows_the_errors_and_stores_nothing(client, ann, change, message):
    client.force_login(ann)
    assert message in client.post("/sell/", SELL | change).content.decode()
    assert not Sale.objects.exists()


def test_the_page_of_a_sale_shows_its_state(client, put_up, ann, ben):
    sale = put_up(opens_in=timedelta(hours=2), starting_price=30)
    url = sale.get_absolute_url()

    def text(player=None):
        client.logout()
        if player:
            client.force_login(player)
        return client.get(url).content.decode()

    assert "Sign in to be reminded" in text()
    assert "Remind me" in text(ben)
    assert "Move the opening" in text(ann) and "Call it off" in text(ann)
    assert "open_sale" in text() and "send_reminder" in text() and "scheduled" in text()

    Sale.objects.update(opens_at=sale.opens_at - timedelta(hours=2))
    open_sale(sale.pk)
    assert "Sign in to bid" in text()
    assert "least bid is 30 gold" in text(ben)
    assert "can no longer be moved" in text(ann) and "Move the opening" not in text(ann)
    assert "after its time" in text() and "close_bids" in text()

    sales.bid(sale, bidder=ben, amount=30)
    close_bids(sale.pk)
    assert "Sold for" in text() and "to ben, after 1 bid<" in text()


def test_the_regions_of_a_sale_change_when_it_opens(client, put_up):
    sale = put_up(opens_in=timedelta(0))
    before = versions(client.get(f"/sale/{sale.pk}/live/"))
    assert versions(client.get(f"/sale/{sale.pk}/")) == before
    open_sale(sale.pk)
    after = versions(client.get(f"/sale/{sale.pk}/live/"))
    assert set(before) == {"status", "actions", "bids", "jobs"}
    assert not set(before.items()) & set(after.items())


def test_the_regions_stay_as_they_are_while_nothing_happens(client, put_up):
    sale = put_up()
    assert versions(client.get(f"/sale/{sale.pk}/live/")) == versions(client.get(f"/sale/{sale.pk}/live/"))


def test_a_player_bids_on_the_page(client, put_up_open, ben):
    sale = put_up_open(starting_price=10)
    client.force_login(ben)
    url = reverse("bid", args=[sale.pk])
    assert "You bid 12 gold." in client.post(url, {"amount": "12"}, follow=True).content.decode()
    assert "least bid is 13 gold now" in client.post(url, {"amount": "12"}, follow=True).content.decode()
    wrong = client.post(url, {"amount": "much"})
    assert wrong.status_code == 422 and "Enter a whole number" in wrong.content.decode()
    assert [bid.amount for bid in sale.bids.all()] == [12]


def test_a_seller_moves_and_calls_off_on_the_page(client, put_up, ann):
    sale = put_up()
    client.force_login(ann)
    move = reverse("move", args=[sale.pk])
    assert "Moved." in client.post(move, {"opens_in_0": "3", "opens_in_1": "86400"}, follow=True).content.decode()
    assert Sale.objects.get().opens_at - sale.opens_at > timedelta(days=2)
    assert client.post(move, {"opens_in_0": "", "opens_in_1": "1"}).status_code == 422
    client.post(reverse("call_off", args=[sale.pk]))
    assert Sale.objects.get().state == State.CALLED_OFF
    assert "has begun" in client.post(move, {"opens_in_0": "3", "opens_in_1": "60"}, follow=True).content.decode()


@pytest.mark.parametrize("action", ["move", "call_off", "schedule_again"])
def test_players_cannot_change_the_sale_of_another(client, put_up, ben, action):
    sale = put_up()
    client.force_login(ben)
    assert client.post(reverse(action, args=[sale.pk]), {"opens_in_0": "3", "opens_in_1": "60"}).status_code == 404
    assert Sale.objects.get().opens_at == sale.opens_at


@pytest.mark.parametrize("action", ["bid", "watch", "move", "call_off", "schedule_again"])
def test_actions_need_a_post_of_a_player(client, put_up, ann, action):
    url = reverse(action, args=[put_up().pk])
    assert client.post(url).headers["Location"].startswith("/sign-in/")
    client.force_login(ann)
    assert client.get(url).status_code == 405


def test_a_player_subscribes_to_the_reminder_and_unsubscribes(client, put_up, ben):
    sale = put_up()
    client.force_login(ben)
    url = reverse("watch", args=[sale.pk])
    assert "Do not remind me" in client.post(url, {"watch": "on"}, follow=True).content.decode()
    assert list(sale.watchers.all()) == [ben]
    client.post(url, {"watch": "off"})
    assert not sale.watchers.exists()


def test_unread_letters_are_counted_until_they_are_shown(client, put_up_open, ann, ben):
    sale = put_up_open(starting_price=5)
    sales.bid(sale, bidder=ben, amount=7)
    close_bids(sale.pk)
    client.force_login(ben)
    assert "1<span" in client.get("/").content.decode()
    page = client.get("/letters/").content.decode()
    assert "You won" in page and ">new<" in page
    assert ">new<" not in client.get("/letters/").content.decode()
    assert Notice.objects.get(player=ann).read is False


def test_a_lost_job_is_shown_and_scheduled_again(client, put_up, ann):
    sale = put_up()
    open_sale.get_job(key=sale.key).cancel()
    client.force_login(ann)
    assert "Schedule it again" in client.get(sale.get_absolute_url()).content.decode()
    page = client.post(reverse("schedule_again", args=[sale.pk]), follow=True).content.decode()
    assert "has its jobs again" in page and "Schedule it again" not in page


def test_without_redis_the_pages_work_and_show_the_error(client, put_up, ann, delayq):
    sale = put_up()
    client.force_login(ann)
    with delayq.unavailable():
        assert client.get("/").status_code == 200
        page = client.get(sale.get_absolute_url())
        assert page.status_code == 200 and "Redis does not answer" in page.content.decode()
        answer = client.post("/sell/", SELL, follow=True).content.decode()
        assert "redis.sock" in answer or "Redis" in answer
        assert Sale.objects.count() == (2 if "Saved, but" in answer else 1)
        assert "Saved, but" in client.post(reverse("call_off", args=[sale.pk]), follow=True).content.decode()
    assert Sale.objects.get(pk=sale.pk).state == State.CALLED_OFF


def test_demo_players_sign_in_without_a_password_only_in_the_demo(client, settings, ann):
    settings.MARKET_DEMO_PLAYERS = []
    assert client.post("/sign-in/play-as/", {"player": "ann"}).status_code == 404
    settings.MARKET_DEMO_PLAYERS = ["ann"]
    assert "Play as ann" in client.get("/sign-in/").content.decode()
    assert client.post("/sign-in/play-as/", {"player": "ben"}).status_code == 404
    answer = client.post("/sign-in/play-as/", {"player": "ann", "next": "//evil.example/"})
    assert answer.headers["Location"] == "/"
    assert client.post("/sign-in/play-as/", {"player": "ann", "next": "/sell/"}).headers["Location"] == "/sell/"


def test_text_of_players_is_escaped(client, put_up):
    hostile = '<script>alert("1")</script>'
    sale = put_up(name=hostile, description=hostile)
    for url in ("/", sale.get_absolute_url(), "/sales/upcoming/"):
        assert "<script>alert" not in client.get(url).content.decode()


def test_the_admin_shows_the_market(client, put_up_open, db):
    put_up_open()
    client.force_login(get_user_model().objects.create_superuser("root", password="root"))
    for model in ("sale", "notice", "taskrun"):
        assert client.get(reverse(f"admin:market_{model}_changelist")).status_code == 200
    assert client.get(reverse("admin:market_taskrun_add")).status_code == 403


def test_jobs_are_linked_to_the_admin():
    assert admin_link("01ab-0").endswith("/01ab-0/")


def test_without_the_admin_jobs_have_no_link(settings):
    class Urls:
        urlpatterns = [path("admin/", ([], "admin", "admin"))]

    settings.ROOT_URLCONF = Urls
    assert admin_link("01ab-0") is None


@pytest.mark.django_db(transaction=True)
def test_the_clerk_counts_a_players_gold_by_djangos_own_task(client, ann, ben, put_up_open, delayq):
    sale = put_up_open(starting_price=10)
    sales.bid(sale, bidder=ben, amount=30)
    close_bids(sale.pk)
    client.force_login(ben)
    assert "Have my gold counted" in client.get("/letters/").content.decode()
    page = client.post("/letters/count/", follow=True).content.decode()
    assert "The clerk is counting your gold" in page
    delayq.drain()
    page = client.get("/letters/").content.decode()
    assert "won 1 for" in page
    assert '<span class="gold">30</span>' in page
