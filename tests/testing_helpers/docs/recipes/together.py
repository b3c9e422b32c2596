"""Tests of docs/recipes/together.md. They run in a project that has the files which the page shows."""

import asyncio
import json

from albums import tasks as albums
from asgiref.sync import async_to_sync
from django.test import RequestFactory
from exports import tasks as exports
from exports import views as export_views
from imports import tasks as imports
from maps import tasks as maps
from newsletter import tasks as newsletter
from quotes import views as quote_views
from renders import tasks as renders
from thumbnails import tasks as thumbnails


def test_an_issue_goes_to_all(delayq, capsys):
    newsletter.send_to_all(range(1000))
    assert len(delayq.enqueued) == 1000
    assert capsys.readouterr().out.split()[-1] == "1000"


def test_pictures_are_awaited(delayq, monkeypatch):
    enqueue_many = thumbnails.resize.enqueue_many

    def enqueue_and_run(*args):
        handles = enqueue_many(*args)
        delayq.run_due()
        return handles

    monkeypatch.setattr(type(thumbnails.resize), "enqueue_many", lambda self, jobs: enqueue_and_run(jobs))
    assert thumbnails.resize_all("sun") == ["sun-320", "sun-640", "sun-1280"]


def test_an_album_is_published_after_its_pictures(delayq):
    albums.upload(7, [1, 2, 3])
    runs = delayq.drain()
    assert albums.published == [7]
    assert runs[-1].task == "albums.tasks.publish"


def test_five_calls_a_second(delayq, settings):
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": {"geocoder": {"rate": "5/s"}}}
    for number in range(20):
        maps.locate.enqueue(str(number))
    assert 1 <= len(delayq.advance(seconds=1, run=True)) <= 6
    assert len(delayq.advance(seconds=5, run=True)) >= 14


def test_customers_take_turns(delayq, settings):
    settings.DELAYQ = {**settings.DELAYQ, "QUEUES": {"imports": {"fair": True}, "default": {}}}
    for row in range(10):
        imports.import_row.enqueue("large", row)
    imports.import_row.enqueue("small", 1)
    assert ["small", 1] in [run.args for run in delayq.run_due()][:3]


def test_an_export_shows_its_progress(delayq):
    job = exports.export.enqueue([1, 2])
    assert json.loads(export_views.progress(None, job.id).content) == {"state": "ready", "fraction": 0}
    [run] = delayq.run_due()
    assert run.progress[-1].fraction == 1.0
    assert json.loads(export_views.progress(None, job.id).content) == {"state": "done", "fraction": 1}


def test_a_film_stops(delayq, monkeypatch):
    job = renders.render.enqueue(100)

    class Stopping(list):
        def append(self, frame):
            super().append(frame)
            if frame == 2:
                assert renders.stop(job.id)

    monkeypatch.setattr(renders, "drawn", Stopping())
    [run] = delayq.run_due()
    assert (run.ending, renders.drawn) == ("stopped", [0, 1, 2])
    assert not renders.stop(job.id)


def test_a_view_awaits_its_price(delayq):
    async def main():
        view = asyncio.create_task(quote_views.show(RequestFactory().get("/"), 7))
        while not view.done():
            await delayq.arun_due()
            await asyncio.sleep(0)
        return view.result()

    assert json.loads(async_to_sync(main)().content) == {"price": 21}
