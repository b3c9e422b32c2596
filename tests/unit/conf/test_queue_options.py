"""Queue options: what QUEUES may say of a queue, and the weights that follow."""

from typing import Any

import pytest

from django_delayq.conf.queue_options import NO_OPTIONS, QUEUES, QueueOptions


def read(options: Any) -> QueueOptions:
    """Return the options of a queue."""
    queues = QUEUES("QUEUES", {"mail": options})
    return queues["mail"]


def test_a_queue_without_options_is_not_fair() -> None:
    assert read({}) == NO_OPTIONS
    assert read({}).weight_of("acme") == 0


def test_a_tenant_has_its_weight_and_others_have_one() -> None:
    options = read({"fair": True, "weights": {"acme": 3}, "max_waiting": 10})
    assert [options.weight_of(tenant) for tenant in ("acme", "other", None)] == [3, 1, 1]
    assert options.max_waiting == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 5}, r"\['mail'\] has the unknown key 'rate'"),
        ({"fiar": True}, r"unknown key 'fiar' \(did you mean 'fair'\?\)"),
        (7, r"\['mail'\] must be a dict of fair, weights, max_waiting, got int"),
        ({"fair": 1}, r"\['mail'\]\['fair'\] must be True or False, got 1"),
        ({"weights": {"a": 2}}, r"has weights, which only a fair queue uses: add 'fair': True"),
        ({"fair": True, "weights": ["a"]}, r"\['weights'\] must be a dict of tenants to whole numbers, got list"),
        ({"fair": True, "weights": {"a": 0}}, r"\['weights'\]\['a'\] must be a whole number, 1 to 100, got 0"),
        ({"fair": True, "weights": {"a": 101}}, r"must be a whole number, 1 to 100, got 101"),
        ({"fair": True, "weights": {"a": 1.5}}, r"must be a whole number, 1 to 100, got 1.5"),
        ({"fair": True, "weights": {"a": True}}, r"must be a whole number, 1 to 100, got True"),
        ({"fair": True, "weights": {"": 1}}, r"the tenant '' in .*\['mail'\]\['weights'\] must be 1 to 200 bytes"),
        ({"fair": True, "weights": {"x" * 201: 1}}, r"must be 1 to 200 bytes of text, got 201"),
        ({"max_waiting": 0}, r"\['max_waiting'\] must be a whole number of jobs, 1 to 1,000,000,000, or None"),
        ({"max_waiting": "9"}, r"\['max_waiting'\] must be a whole number of jobs"),
    ],
)
def test_wrong_options_are_refused_by_name(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(options)
