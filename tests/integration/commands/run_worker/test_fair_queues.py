"""How many jobs of a fair queue a worker claims beside those of other queues."""

import pytest
from redis import Redis

from django_delayq import enqueue_many
from tests.sample_app import tasks
from tests.subprocesses import Processes


@pytest.fixture
def queues(processes: Processes) -> None:
    """`mail` is fair, `bulk` is not."""
    processes.configure(QUEUES={"mail": {"fair": True}, "bulk": {}, "default": {}})


@pytest.mark.usefixtures("queues")
def test_short_jobs_of_another_queue_do_not_keep_those_of_a_fair_one_away(processes: Processes) -> None:
    bulk = [tasks.record.using(queue="bulk").job() for _ in range(2_000)]
    mails = [tasks.record.using(queue="mail", tenant=f"t{number % 5}").job() for number in range(60)]
    enqueue_many(bulk + mails)
    worker = processes.start("run_worker", "--queues", "mail,bulk", "--concurrency", "2", "--drain")
    assert worker.wait() == 0, worker.output
    order = [run["id"] for run in processes.runs()]
    assert len(order) == 2_060
    last = max(order.index(handle.id) for handle in mails)
    # At most ten of them and 54 others in each of six exchanges, and as many claimed before. Without the rule it is the
    # end of the other queue.
    assert last < 1_000


@pytest.mark.usefixtures("queues")
def test_a_worker_holds_few_jobs_of_a_fair_queue(processes: Processes, client: Redis) -> None:
    """Those in its slots and eight more, however short they are: the first job of another tenant waits behind them."""
    enqueue_many([tasks.record.using(queue="mail", tenant="big").job() for _ in range(2_000)])
    worker = processes.start("run_worker", "--queues", "mail", "--concurrency", "2", "--drain")
    held = set()
    while worker.process.poll() is None:
        held.add(client.zcard(processes.keys("leases")))
    assert worker.wait() == 0, worker.output
    assert len(processes.runs()) == 2_000
    assert 2 < max(held) <= 10
