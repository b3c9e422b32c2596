"""Encryption: what Redis holds of a job beyond its head is unreadable there.

With DELAYQ["ENCRYPT"], arguments and options, the attempt history, the progress and the result are encrypted with
AES-256-GCM. The head of a body stays readable: scripts, `move` and counters need queue, task, priority and flags.

A sealed text is: a byte for the algorithm, 4 bytes that name the secret, a random nonce, the ciphertext with its tag.
Each job has a key of its own, derived from the secret and its id, so no key meets so many nonces that two are equal.
The tag also covers the purpose of the text (body of which task, attempts …), so no text can be moved to another job
or used as another of its texts.
"""

import hmac
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signing import Signer
from django.utils.crypto import salted_hmac

from django_delayq.exceptions import BadBody, UnknownEncryptionKey, see

_SALT = "django_delayq.job.encryption"
#: First byte of a sealed text: AES-256-GCM. No JSON begins so.
_MARK = b"\x01"
_NAME, _NONCE = 4, 12
_START = 1 + _NAME + _NONCE
#: Purpose of a text. Its tag covers this and the id.
ATTEMPTS, RESULT, PROGRESS = b"attempts", b"result", b"progress"
#: Bytes that sealing adds to a text.
OVERHEAD = _START + 16


class Cipher:
    """Encrypt and decrypt texts of jobs; store them as they are if encryption is off. Thread-safe.

    Encrypted texts are read even if it is off. The keys are derived from `secrets`, or from SECRET_KEY and
    SECRET_KEY_FALLBACKS if there are none. The first one encrypts.
    """

    def __init__(self, *, on: bool, secrets: Sequence[str] = ()) -> None:
        self.on = on
        self._secrets = secrets
        #: Name of a secret, in the order of the secrets -> the key derived from it.
        self._keys: dict[bytes, bytes] = {}
        self._aead: Any = None
        self._invalid_tag: type[Exception] = ValueError
        if on:
            self._load()

    def seal(self, raw_id: bytes, purpose: bytes, text: bytes, *, repeatable: bool = False) -> bytes:
        """Return the text to store, encrypted if encryption is on. It can be opened only for this id and purpose.

        `repeatable`: the same text is encrypted to the same bytes as long as the first secret is the same.
        """
        if not self.on:
            return text
        name = next(iter(self._keys))
        # A nonce of the text is used again only for this text, so it shows no more than that the text is the same.
        nonce = self._digest(name, b"nonce", raw_id, purpose, text) if repeatable else os.urandom(_NONCE)
        return b"".join((_MARK, name, nonce, self._job_cipher(name, raw_id).encrypt(nonce, text, raw_id + purpose)))

    def open(self, raw_id: bytes, purpose: bytes, stored: bytes) -> bytes:
        """Return the text that was sealed. A text that is not encrypted is returned unchanged.

        Raises `UnknownEncryptionKey` if another process may be able to read it, and `BadBody` if none can.
        """
        if stored[:1] != _MARK:
            return stored
        if not self._keys:
            self._load_for_reading()
        name, nonce = stored[1 : 1 + _NAME], stored[1 + _NAME : _START]
        if name not in self._keys:
            raise UnknownEncryptionKey(
                "the job is encrypted with a key that this process does not have; add its secret to "
                f"SECRET_KEY_FALLBACKS or, if it is set, DELAYQ['ENCRYPTION_KEYS']. {see('redis/encryption')}"
            )
        try:
            opened: bytes = self._job_cipher(name, raw_id).decrypt(nonce, stored[_START:], raw_id + purpose)
        except (self._invalid_tag, ValueError) as error:
            raise BadBody("the stored job cannot be decrypted: it was changed, cut, or is another job's") from error
        return opened

    def try_open(self, raw_id: bytes, purpose: bytes, stored: bytes) -> bytes:
        """Return the text that was sealed, or b"" if it cannot be read."""
        try:
            return self.open(raw_id, purpose, stored)
        except BadBody:
            return b""

    def _digest(self, name: bytes, *parts: bytes) -> bytes:
        return hmac.digest(self._keys[name], b"".join(parts), "sha256")[:_NONCE]

    def _job_cipher(self, name: bytes, raw_id: bytes) -> Any:
        # A method of its own: error reports show the local variables of a frame, and this one cannot fail.
        return self._aead(hmac.digest(self._keys[name], raw_id, "sha256"))

    def _load(self) -> None:
        """Import the package and derive the keys. Raises ImportError and ImproperlyConfigured."""
        # Not at the top: the package is an extra, and a process that meets nothing encrypted does not pay for it.
        self._aead = import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        self._invalid_tag = import_module("cryptography.exceptions").InvalidTag
        secrets: Sequence[str | bytes] = self._secrets
        if not secrets:
            signer = Signer(salt=_SALT)
            secrets = (signer.key, *signer.fallback_keys)
        keys = [salted_hmac(_SALT, b"key", secret=secret, algorithm="sha256").digest() for secret in secrets]
        self._keys = {hmac.digest(key, b"name", "sha256")[:_NAME]: key for key in keys}

    def _load_for_reading(self) -> None:
        try:
            self._load()
        except ImportError as error:
            raise UnknownEncryptionKey(
                "the job is encrypted, and this process cannot read it: pip install 'django-delayq[encrypt]'"
            ) from error
        except ImproperlyConfigured as error:
            raise UnknownEncryptionKey("the job is encrypted, and this process has no SECRET_KEY") from error
