"""Tests of docs/recipes/failures.md. They run in a project that has the files which the page shows."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from charges import tasks as charges
from crm import tasks as crm
from django.core import mail
from payouts import tasks as payouts
from support import tasks as support
from transcodes import tasks as transcodes
from webhooks import tasks as webhooks


class Busy(BaseHTTPRequestHandler):
    """A server that wants its client to come later."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(429)
        self.send_header("Retry-After", "17")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_429_says_when(delayq):
    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.handle_request).start()
        crm.upload.enqueue(f"http://127.0.0.1:{server.server_port}/")
        [run] = delayq.run_due()
    assert (run.ending, run.retry_in.total_seconds()) == ("snoozed", 17)


def test_a_webhook_is_tried_four_times(delayq):
    webhooks.post_webhook.enqueue("http://example.com")
    runs = delayq.drain(errors="retry")
    assert [run.retry_in and run.retry_in.total_seconds() for run in runs] == [5, 60, 600, None]


def test_some_errors_are_final(delayq):
    for amount in (2000, -1, 10):
        charges.charge.enqueue(amount)
    runs = delayq.run_due(errors="retry")
    assert [run.dead for run in runs] == [True, True, False]


def test_a_video_is_published_when_it_is_there(delayq):
    transcodes.publish.enqueue(7)
    assert [run.ending for run in delayq.advance(minutes=2, run=True)] == ["snoozed"] * 3
    transcodes.ready.add(7)
    assert [run.ending for run in delayq.advance(minutes=1, run=True)] == ["succeeded"]


def test_the_handle_says_why_and_somebody_is_told(delayq, settings):
    settings.ADMINS = [("Ann", "ann@example.com")] if _takes_pairs() else ["ann@example.com"]
    job = support.parse.enqueue("seven")
    assert support.why(job.id) == "no error"
    delayq.run_due(errors="retry")
    assert support.why(job.id) == "dead: invalid literal for int() with base 10: 'seven'"
    assert support.failed_today() == [job.id]
    assert any(job.id in message.body for message in mail.outbox)


def test_a_payout_that_is_done_is_not_repeated(delayq):
    payouts.pay_out.enqueue(7, 20)
    delayq.run_due()
    assert payouts.paid == {7: 20}
    assert payouts.is_paid(7, 20)
    assert not payouts.is_paid(8, 20)


def _takes_pairs() -> bool:
    import django

    return django.VERSION < (6,)
