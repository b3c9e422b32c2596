"""Expiry: what `reschedule` and `requeue` do to the expiry in a stored body."""

from django_delayq.job.body.codec import decode_head, decrypt, encrypt, with_due
from django_delayq.store.shard import Shard


def move_expiry(shard: Shard, raw_id: bytes, body: bytes, due_us: int, *, revived: bool = False) -> bytes:
    """Return an unsigned body whose expiry follows a new due time. Raises `UnknownEncryptionKey`."""
    if not decode_head(body).expires:
        return body
    plain = decrypt(body, raw_id=raw_id, cipher=shard.cipher)
    return encrypt(with_due(plain, due_us, revived=revived), raw_id=raw_id, cipher=shard.cipher)
