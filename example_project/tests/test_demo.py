"""The Redis of the demo."""

from pathlib import Path

from demo.processes import demo_redis
from django_delayq.testing.local_redis import responds


def test_the_demo_uses_the_redis_it_is_given(monkeypatch):
    monkeypatch.setenv("DELAYQ_REDIS_URL", "redis://given.example/3")
    with demo_redis() as url:
        assert url == "redis://given.example/3"


def test_the_demo_starts_a_private_server_and_never_reads_redis_url(monkeypatch):
    monkeypatch.delenv("DELAYQ_REDIS_URL", raising=False)
    monkeypatch.setenv("REDIS_URL", "redis://production.example/0")
    with demo_redis() as url:
        path = Path(url.removeprefix("unix://"))
        assert responds(path)
    assert not path.exists()
