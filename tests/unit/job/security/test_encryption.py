"""Encryption: what a cipher seals only its keys open, for the same job and place; and when it does nothing."""

import subprocess
import sys
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_delayq.conf.settings import read_config
from django_delayq.exceptions import BadBody, UnknownEncryptionKey
from django_delayq.job.body.codec import (
    ENCRYPTED_FORMAT,
    decode,
    decode_head,
    decrypt,
    encode,
    encrypt,
    with_flags,
    with_queue,
)
from django_delayq.job.ids import next_id
from django_delayq.job.job import Flag, Job
from django_delayq.job.outcome import OutcomeKind, kind_of_fault
from django_delayq.job.security.encryption import ATTEMPTS, OVERHEAD, RESULT, Cipher

JOB, BODY = encode(
    Job(raw_id=next_id(), shard=0, task="shop.tasks.pay", queue="mail", priority=3, args=["canary"], key="k"),
    max_payload=1_000,
)
SECRET, OTHER = "s" * 32, "o" * 32


def read(body: bytes, cipher: Cipher | None, *, raw_id: bytes = JOB.raw_id) -> Job:
    return decode(body, raw_id=raw_id, shard=0, cipher=cipher)


def sealed_body(*secrets: str) -> bytes:
    return encrypt(BODY, raw_id=JOB.raw_id, cipher=Cipher(on=True, secrets=secrets))


def test_an_encrypted_body_has_a_readable_head_and_nothing_else() -> None:
    body = sealed_body(SECRET)
    head = decode_head(body)
    assert (head.task, head.queue, head.priority) == ("shop.tasks.pay", "mail", 3)
    assert body[0] == ENCRYPTED_FORMAT and body[1 : head.size] == BODY[1 : head.size]
    assert b"canary" not in body and len(body) == len(BODY) + OVERHEAD
    assert read(body, Cipher(on=True, secrets=[SECRET])) == JOB
    for plain in (body, BODY):
        assert decrypt(plain, raw_id=JOB.raw_id, cipher=Cipher(on=False, secrets=[SECRET])) == BODY


def test_the_same_text_is_never_sealed_alike() -> None:
    cipher = Cipher(on=True, secrets=[SECRET])
    assert len({cipher.seal(JOB.raw_id, RESULT, b"1") for _ in range(100)}) == 100


def test_a_repeatable_text_is_sealed_alike_for_one_id_purpose_and_secret() -> None:
    cipher, others = Cipher(on=True, secrets=[SECRET]), Cipher(on=True, secrets=[OTHER, SECRET])

    def sealed(by: Cipher = cipher, raw_id: bytes = b"1", purpose: bytes = RESULT, text: bytes = b"text") -> bytes:
        return by.seal(raw_id, purpose, text, repeatable=True)

    assert sealed() == sealed() and cipher.open(b"1", RESULT, sealed()) == b"text"
    different = [sealed(), sealed(others), sealed(raw_id=b"2"), sealed(purpose=ATTEMPTS), sealed(text=b"texts")]
    nonces = {each[5:17] for each in different}
    assert len(set(different)) == len(nonces) == 5
    assert others.open(b"1", RESULT, sealed()) == b"text"


def test_a_later_release_reads_what_this_one_stored() -> None:
    stored = bytes.fromhex("015b0f91ff000102030405060708090a0bfc2dcc9aa507db83f6f867cbe7fa680cde34d6216b1e4eea57295f")
    assert Cipher(on=True, secrets=[SECRET]).open(bytes(range(12)), RESULT, stored) == b'{"value":1}'


def test_any_byte_changed_or_cut_off_is_noticed() -> None:
    cipher = Cipher(on=True, secrets=[SECRET])
    body = sealed_body(SECRET)
    start = decode_head(body).size
    for at in range(start, len(body)):
        changed = bytearray(body)
        changed[at] ^= 4
        with pytest.raises(BadBody):
            read(bytes(changed), cipher)
        with pytest.raises(BadBody):
            read(body[:at], cipher)
    with pytest.raises(BadBody):
        read(body + b"\0", cipher)


def test_a_body_of_another_job_or_task_is_refused() -> None:
    cipher, body = Cipher(on=True, secrets=[SECRET]), sealed_body(SECRET)
    with pytest.raises(BadBody, match="another job's"):
        read(body, cipher, raw_id=next_id())
    with pytest.raises(BadBody, match="another job's"):
        read(body.replace(b"shop.tasks.pay", b"shop.tasks.bay"), cipher)


def test_a_text_of_another_place_is_refused() -> None:
    cipher = Cipher(on=True, secrets=[SECRET])
    result = cipher.seal(JOB.raw_id, RESULT, b"{}")
    assert cipher.open(JOB.raw_id, RESULT, result) == b"{}"
    assert cipher.try_open(JOB.raw_id, ATTEMPTS, result) == b""


def test_queue_and_flags_change_without_a_key() -> None:
    # The admin's user who moves a job, and the one who changes its time, need no arguments.
    body = with_flags(with_queue(sealed_body(SECRET), "bulk"), Flag.DELAYED)
    job = read(body, Cipher(on=True, secrets=[SECRET]))
    assert (job.queue, job.flags, job.args) == ("bulk", Flag.DELAYED, ["canary"])


def test_an_older_secret_still_opens_and_the_first_one_seals() -> None:
    rotated = Cipher(on=True, secrets=[OTHER, SECRET])
    assert read(sealed_body(SECRET), rotated) == JOB
    new = encrypt(BODY, raw_id=JOB.raw_id, cipher=rotated)
    assert read(new, Cipher(on=True, secrets=[OTHER])) == JOB
    with pytest.raises(UnknownEncryptionKey, match=r"SECRET_KEY_FALLBACKS or.*ENCRYPTION_KEYS") as caught:
        read(new, Cipher(on=True, secrets=[SECRET]))
    assert kind_of_fault(caught.value) is OutcomeKind.UNKNOWN_KEY


def test_the_secrets_are_those_of_django_unless_there_are_others(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "first", []
    body = encrypt(BODY, raw_id=JOB.raw_id, cipher=Cipher(on=True))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "second", ["first"]
    assert read(body, Cipher(on=True)) == JOB
    with pytest.raises(UnknownEncryptionKey):
        read(body, Cipher(on=True, secrets=[SECRET]))


def test_a_cipher_that_is_off_seals_nothing_and_reads_both() -> None:
    off = Cipher(on=False, secrets=[SECRET])
    assert off.seal(JOB.raw_id, RESULT, BODY) is BODY
    assert read(BODY, off) == read(sealed_body(SECRET), off) == JOB
    assert read(BODY, Cipher(on=True, secrets=[SECRET])) == JOB


def test_a_reader_without_keys_knows_what_is_missing(settings: Any) -> None:
    with pytest.raises(UnknownEncryptionKey):
        read(sealed_body(SECRET), None)
    settings.SECRET_KEY = ""
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY"):
        Cipher(on=True)
    with pytest.raises(UnknownEncryptionKey, match="no SECRET_KEY"):
        read(sealed_body(SECRET), Cipher(on=False))


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # None makes every import of it fail, as if it were not installed.
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    config, [problem] = read_config({"REDIS": "redis://127.0.0.1:1/0", "ENCRYPT": True})
    assert config is None
    assert "DELAYQ['ENCRYPT'] needs the package cryptography: pip install 'django-delayq[encrypt]'" in problem.msg
    assert read_config({"REDIS": "redis://127.0.0.1:1/0", "ENCRYPT": False})[1] == []
    with pytest.raises(UnknownEncryptionKey, match=r"pip install 'django-delayq\[encrypt\]'"):
        Cipher(on=False, secrets=[SECRET]).open(JOB.raw_id, RESULT, b"\1" + bytes(60))


def test_a_process_that_does_not_encrypt_does_not_import_the_package() -> None:
    script = (
        "import sys; from django_delayq.job.security.encryption import Cipher; Cipher(on=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "django_delayq.job.security.encryption" in done.stdout and "cryptography" not in done.stdout.split()
