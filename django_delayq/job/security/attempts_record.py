"""Attempts record: the stored form of an attempt history, encrypted behind the three bytes that scripts read.

A process keeps a part that it has no key for as it is, and a process that has the key joins it with the others again.
"""

from dataclasses import replace

from django_delayq.exceptions import BadBody, UnknownEncryptionKey
from django_delayq.job.attempts import HEAD_SIZE, NO_ATTEMPTS, AttemptHistory
from django_delayq.job.security.encryption import ATTEMPTS, Cipher


def read_attempts(record: bytes | None, *, raw_id: bytes, cipher: Cipher, last_only: bool = False) -> AttemptHistory:
    """Read an attempts record. `sealed` has the parts that this process has no key for.

    With `last_only`, earlier attempts than the last one may be left out of the history.
    """
    if record is None:
        return NO_ATTEMPTS
    head, rest = record[:HEAD_SIZE], record[HEAD_SIZE:]
    try:
        found = AttemptHistory.unpack(head + cipher.open(raw_id, ATTEMPTS, rest), last_only=last_only)
    except UnknownEncryptionKey:
        return replace(AttemptHistory.unpack(head), sealed=(rest,))
    except BadBody:
        return AttemptHistory.unpack(head)
    if found.sealed:
        parts, found = found.sealed, replace(found, sealed=())
        for part in reversed(parts):
            found = found.joined(read_attempts(bytes(HEAD_SIZE) + part, raw_id=raw_id, cipher=cipher))
    return found


def pack_attempts(attempts: AttemptHistory, *, raw_id: bytes, cipher: Cipher) -> bytes:
    """Return the attempts record to store."""
    if not cipher.on:
        return attempts.pack()
    if not attempts.sealed:
        return _sealed(attempts.pack(), raw_id, cipher)
    # Sealed parts are stored side by side: nested, they would grow with each process that has another key.
    own = replace(attempts, sealed=(), waiting_since_us=0, waiting_for="").pack()
    parts = (*attempts.sealed, *filter(None, (_sealed(own, raw_id, cipher)[HEAD_SIZE:],)))
    return replace(attempts, history=(), snoozes=0, interruptions=0, sealed=parts).pack()


def revive_attempts(record: bytes, *, raw_id: bytes, cipher: Cipher) -> bytes:
    """Return the record of a dead letter that is retried: everything is counted from 0."""
    rest = record[HEAD_SIZE:]
    # A plain list has no counts. Reading and writing it would be a third of the cost of a retry.
    if rest[:1] in (b"", b"[") and not cipher.on:
        return bytes(HEAD_SIZE) + rest
    return pack_attempts(read_attempts(record, raw_id=raw_id, cipher=cipher).revived(), raw_id=raw_id, cipher=cipher)


def _sealed(record: bytes, raw_id: bytes, cipher: Cipher) -> bytes:
    head, rest = record[:HEAD_SIZE], record[HEAD_SIZE:]
    return head + cipher.seal(raw_id, ATTEMPTS, rest) if rest else head
