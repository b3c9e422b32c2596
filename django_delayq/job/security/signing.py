"""Signing: signatures of bodies, which distinguish this project's jobs from bodies that somebody else wrote into Redis.

With DELAYQ["SIGN"], a body is signed when it is sent, and verified and signed again when it is rewritten. A worker runs
no unsigned body. The signature covers the id and the whole body: format, priority, flags, queue, task, arguments and
options. It does not cover due time, attempts and place: a user who can write to Redis can still delay a job, drop it,
or make it run again. A dispatcher does not verify: from a forged body it reads only the retry policy, which can return
the job to a worker at most 1,000 times, and the first worker that verifies ends the job.
"""

from collections.abc import Callable

from django.core.signing import Signer
from django.utils.crypto import constant_time_compare, salted_hmac

from django_delayq.exceptions import BadSignature, see
from django_delayq.job.body.codec import SIGNATURE, SIGNED, is_newer, read_queue, unsigned

_SALT = "django_delayq.job.signing"
_SEE = see("troubleshooting#a-signature-is-wrong")


class BodySigner:
    """Sign and verify bodies with SECRET_KEY and SECRET_KEY_FALLBACKS; do nothing if signing is off. Thread-safe."""

    def __init__(self, *, on: bool) -> None:
        self.on = on
        if on:
            secrets = Signer(salt=_SALT)
            # Copied for each signature: Django's salted_hmac() derives a key at each call, which costs more than the
            # signature. The first one signs.
            self._keys = [
                salted_hmac(_SALT, b"", secret=secret, algorithm="sha256")
                for secret in (secrets.key, *secrets.fallback_keys)
            ]

    def sign(self, raw_id: bytes, body: bytes) -> bytes:
        """Return the body to store, signed if signing is on. `body` must be unsigned."""
        if not self.on:
            return body
        body = bytes((body[0] | SIGNED,)) + body[1:]
        return body + self._signature(0, raw_id, body)

    def verify(self, raw_id: bytes, body: bytes | None, *, queue: str | None = None) -> None:
        """Raise `BadSignature` unless the body is signed for this id and names this queue.

        A missing body, and one of a later release, are accepted: `decode` raises for them.
        """
        if not self.on or body is None or is_newer(body):
            return
        if not body or not body[0] & SIGNED:
            raise BadSignature(
                f"the job is not signed, and DELAYQ['SIGN'] is on: it was enqueued without, or forged. {_SEE}"
            )
        text, signature = body[:-SIGNATURE], body[-SIGNATURE:]
        for number in range(len(self._keys)):
            if constant_time_compare(self._signature(number, raw_id, text), signature):
                break
        else:
            raise BadSignature(
                "the job's signature is wrong: its body was changed or is another job's, or its key is in neither "
                f"SECRET_KEY nor SECRET_KEY_FALLBACKS. {_SEE}"
            )
        if queue is not None and read_queue(text) != queue:
            raise BadSignature(f"the job is signed for another queue than it was found in. {_SEE}")

    def resign(self, raw_id: bytes, body: bytes, rewrite: Callable[[bytes], bytes]) -> bytes:
        """Verify a stored body, call `rewrite` with it unsigned, and return the result signed.

        If signing is off, the result is unsigned, since the old signature would be wrong. Raises `BadSignature`.
        """
        self.verify(raw_id, body)
        return self.sign(raw_id, rewrite(unsigned(body)))

    def _signature(self, number: int, raw_id: bytes, body: bytes) -> bytes:
        mac = self._keys[number].copy()
        mac.update(raw_id + body)
        return mac.digest()
