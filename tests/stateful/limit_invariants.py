"""Invariants of limits: statements about what Redis holds of them, without the model."""

from collections import Counter
from typing import Any

from django_delayq.store.digests import queue_hash
from django_delayq.store.keys import Keys, decode_queue

PARKED, LET_IN, SLOT = b"\0", b"\1", b"\2"


def check_limits(picture: dict[str, Any], keys: Keys) -> None:
    """Check all invariants of limits."""
    entries = list(picture.get(keys("limit_jobs"), {}))
    check_slots_go_with_leases([entry for entry in entries if entry[:1] == SLOT], picture, keys)
    parked = [entry for entry in entries if entry[:1] == PARKED]
    check_parked_jobs_have_their_entries(parked, picture, keys)
    check_let_in_jobs_are_ready([entry for entry in entries if entry[:1] == LET_IN], picture, keys)
    unseen = {entry[1:13] for entry in parked} - picture.get(keys("open_limits"), {}).keys()
    assert not unseen, f"the dispatcher does not look at {unseen}"


def check_slots_go_with_leases(entries: list[bytes], picture: dict[str, Any], keys: Keys) -> None:
    """Each slot is of a live lease, whose record names it, or of code outside a job that has it for some time."""
    records, leases = picture.get(keys("claim_limits"), {}), picture.get(keys("leases"), {})
    expected = list(picture.get(keys("limit_holders"), {}))
    for lease in leases:
        held = records.get(lease[:12], b"")
        expected += [held[at : at + 12] + lease for at in range(0, len(held), 14)]
    assert Counter(entry[1:] for entry in entries) == Counter(expected)
    assert records.keys() <= {lease[:12] for lease in leases}


def check_parked_jobs_have_their_entries(entries: list[bytes], picture: dict[str, Any], keys: Keys) -> None:
    """A parked job has one entry, which names the limit that it waits for, its queue and its rank; nothing else has."""
    waiting_for, places = picture.get(keys("waiting_for"), {}), dict[tuple[bytes, bytes, int], bytes]()
    prefix = keys.parked("")
    for name, members in picture.items():
        if name.startswith(prefix):
            queue = name.removeprefix(prefix).encode()
            places |= {(member, queue, rank): waiting_for.get(member[:12], b"") for member, rank in members.items()}
    found = {
        (entry[35:49], entry[51:], int.from_bytes(entry[27:35])): entry[1:13]
        for entry in entries
        if entry[13:19] == queue_hash(decode_queue(entry[51:]))
    }
    assert len(entries) == len(found) and found == places
    assert len(waiting_for) == len(places)


def check_let_in_jobs_are_ready(entries: list[bytes], picture: dict[str, Any], keys: Keys) -> None:
    """A job that was let in waits for a worker; a job is let in by one limit."""
    ready = set[tuple[bytes, bytes]]()
    for name, members in picture.items():
        for prefix in (keys.ready(""), keys.recovered("")):
            if name.startswith(prefix):
                hashed = queue_hash(decode_queue(name.removeprefix(prefix).encode()))
                ready |= {(hashed, member) for member in members}
    found = [(entry[13:19], entry[27:41]) for entry in entries]
    assert set(found) <= ready and len(set(found)) == len(found)
