"""Decrypted state: the keys of a store that encrypts, as they would be without encryption."""

from typing import Any

from django_delayq.job.attempts import HEAD_SIZE
from django_delayq.job.body.codec import ENCRYPTED_FORMAT, decrypt
from django_delayq.job.security.encryption import ATTEMPTS, PROGRESS, RESULT, Cipher
from django_delayq.job.security.error_group_record import read_label
from django_delayq.store.keys import Keys
from django_delayq.store.records import ClaimRecord, DeadLetterRecord, ResultRecord
from tests.stateful.redis_state import noun_of


def decrypted(picture: dict[str, Any], keys: Keys, cipher: Cipher) -> dict[str, Any]:
    """Return the state with every body and record decrypted; each of them must be encrypted."""
    reader = _Reader(cipher)
    of_noun = {
        "jobs": reader.body,
        "attempts": reader.attempts,
        "claim_records": reader.claim,
        "dead_bodies": reader.letter,
        "error_groups": reader.group,
    }
    letters, opened = picture.get(keys("dead_bodies"), {}), dict(picture)
    assert int(picture.get(keys("dead_bytes"), 0)) == sum(map(len, letters.values()))
    for name, value in picture.items():
        noun = noun_of(name, keys)
        if noun in of_noun:
            opened[name] = {raw_id: of_noun[noun](raw_id, stored) for raw_id, stored in value.items()}
        elif noun == "results":
            opened[name] = reader.result(bytes.fromhex(name.rpartition(":")[2]), value)
    if letters:
        opened[keys("dead_bytes")] = str(sum(map(len, opened[keys("dead_bodies")].values()))).encode()
    return opened


class _Reader:
    """What the store does to each record before it uses it."""

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def body(self, raw_id: bytes, stored: bytes) -> bytes:
        assert stored[0] == ENCRYPTED_FORMAT
        return decrypt(stored, raw_id=raw_id, cipher=self._cipher)

    def attempts(self, raw_id: bytes, stored: bytes) -> bytes:
        opened = stored[:HEAD_SIZE] + self._cipher.open(raw_id, ATTEMPTS, stored[HEAD_SIZE:])
        # A record of three bytes has nothing to hide; another one is longer while it is encrypted.
        assert len(opened) < len(stored) or len(stored) in (0, 3)
        return opened

    def claim(self, raw_id: bytes, stored: bytes) -> bytes:
        progress = ClaimRecord.unpack(stored).progress
        return stored[: len(stored) - len(progress)] + self._cipher.open(raw_id, PROGRESS, progress)

    def letter(self, raw_id: bytes, stored: bytes) -> bytes:
        record, extras, body = DeadLetterRecord.unpack(stored)
        record = self.attempts(raw_id, record)
        sizes = len(record).to_bytes(4) + len(extras).to_bytes(4)
        return sizes + stored[8:22] + record + extras + self.body(raw_id, body)

    def group(self, digest: bytes, stored: bytes) -> bytes:
        group = read_label(digest, stored[16:], self._cipher)
        assert group and group.pack() not in stored
        return stored[:16] + group.pack()

    def result(self, raw_id: bytes, stored: bytes) -> bytes:
        record, ending, body = ResultRecord.unpack(stored)
        opened = self._cipher.open(raw_id, RESULT, ending)
        assert len(opened) < len(ending)
        record, ending = self.attempts(raw_id, record), opened
        return len(record).to_bytes(4) + len(ending).to_bytes(4) + record + ending + self.body(raw_id, body)
