"""Seal: the signatures of bodies, which tell this project's jobs from what somebody else wrote into Redis.

With DELAYQ["SIGN"] a body is signed when it is sent, and again when it is rewritten, after it was verified; a worker
runs no other. The signature covers the id and the whole body: format, priority, flags, queue, task, arguments and
options. It does not cover due time, attempts and place: whoever can write to Redis can still hold a job back, drop it,
or let it run again. A dispatcher need not verify: what it reads of a forged body (the policy) can only bring the job
back to a worker, at most 1,000 times, and the first one that signs ends it.
"""

from collections.abc import Callable

from django.core.signing import Signer
from django.utils.crypto import constant_time_compare, salted_hmac

from django_delayq.exceptions import BadSignature
from django_delayq.job.codec import SIGNATURE, SIGNED, is_newer, read_queue, unsigned

_SALT = "django_delayq.job.signing"


class BodySigner:
    """Sign and verify bodies with SECRET_KEY, SECRET_KEY_FALLBACKS; do nothing where signing is off."""

    def __init__(self, *, on: bool) -> None:
        self.on = on
        if on:
            secrets = Signer(salt=_SALT)
            # Django derives a key at each call, which costs more than the signature; copies of an unused HMAC do not.
            # The first is the one that signs.
            self._keys = [
                salted_hmac(_SALT, b"", secret=secret, algorithm="sha256")
                for secret in (secrets.key, *secrets.fallback_keys)
            ]

    def sign(self, raw_id: bytes, body: bytes) -> bytes:
        """Return an unsigned body as it is to be stored."""
        if not self.on:
            return body
        body = bytes((body[0] | SIGNED,)) + body[1:]
        return body + self._signature(0, raw_id, body)

    def verify(self, raw_id: bytes, body: bytes | None, *, queue: str | None = None) -> None:
        """Raise `BadSignature` unless the body is signed for this id, and for the queue it was found in.

        A missing body and one of a later release, which no worker runs, are left to `decode`.
        """
        if not self.on or body is None or is_newer(body):
            return
        if not body or not body[0] & SIGNED:
            raise BadSignature("the job is not signed, and DELAYQ['SIGN'] is on: it was enqueued without, or forged")
        text, signature = body[:-SIGNATURE], body[-SIGNATURE:]
        for number in range(len(self._keys)):
            if constant_time_compare(self._signature(number, raw_id, text), signature):
                break
        else:
            raise BadSignature(
                "the job's signature is wrong: its body was changed or is another job's, or its key is in neither "
                "SECRET_KEY nor SECRET_KEY_FALLBACKS"
            )
        if queue is not None and read_queue(text) != queue:
            raise BadSignature("the job is signed for another queue than it was found in")

    def resign(self, raw_id: bytes, body: bytes, rewrite: Callable[[bytes], bytes]) -> bytes:
        """Verify a stored body, let `rewrite` make another of it without its signature, and sign that.

        With signing off the result is unsigned, since the old signature would be wrong. Raises `BadSignature`.
        """
        self.verify(raw_id, body)
        return self.sign(raw_id, rewrite(unsigned(body)))

    def _signature(self, number: int, raw_id: bytes, body: bytes) -> bytes:
        code = self._keys[number].copy()
        code.update(raw_id + body)
        return code.digest()
