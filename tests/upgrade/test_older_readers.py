"""What this release stores, read by the older one: it ignores what it does not know, and the job still runs there."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.body.codec import encode, encrypt
from django_delayq.job.job import Expiry, Flag, Job
from django_delayq.job.retry import MAX_ATTEMPTS, RetryPolicy
from django_delayq.job.security.attempts_record import pack_attempts
from django_delayq.job.security.encryption import RESULT, Cipher

READ_BODY = """
import json, sys
import django_delayq
from django_delayq.job.codec import decode
job = decode(sys.stdin.buffer.read(), raw_id=bytes(range(16)), shard=0)
print(json.dumps([django_delayq.__file__, job.task, job.queue, job.args, job.kwargs, job.retry.max_attempts]))
"""
READ_ATTEMPTS = """
import json, sys
from django_delayq.job.attempts import AttemptHistory
record = AttemptHistory.unpack(sys.stdin.buffer.read())
print(json.dumps([record.ended, record.crash_suspected, record.spared]))
"""
READ_NEWER = """
import sys
from django_delayq.exceptions import NewerBody
from django_delayq.job.codec import decode, decode_head
from django_delayq.job.result import Result
body, result = sys.stdin.buffer.read().split(b"END OF BODY")
head = decode_head(body)
try:
    decode(body, raw_id=bytes(range(16)), shard=0)
except NewerBody:
    print(head.task, head.queue, Result.unpack(result))
"""
CIPHER = Cipher(on=True, secrets=["s" * 32])
RAW_ID = bytes(range(16))
#: Option -> a job with it. The older reader knows none but the first.
JOB = Job(raw_id=RAW_ID, shard=0, task="shop.ship", queue="mail", args=[1], kwargs={"fast": True})
JOBS = {
    "none": JOB,
    "rules": replace(JOB, retry=RetryPolicy(max_attempts=7, retry_on=OSError, dead_on="shop.errors.Declined")),
    "delays": replace(JOB, retry=RetryPolicy(delays=[5, 60, 600])),
    "forever": replace(JOB, retry=RetryPolicy(max_attempts=None)),
    "context": replace(JOB, context={"request_id": "7f3a"}),
    "expiry": replace(JOB, expiry=Expiry(moment_us=2_000_000, span_us=1_000_000, dead=True), flags=Flag.EXPIRES),
}
#: Part -> an attempts record with it, which the older reader does not know.
RECORDS = {
    "none": AttemptHistory(ended=3, crash_suspected=True),
    "snoozes": AttemptHistory(ended=3).snoozed(),
    "interruptions": AttemptHistory(ended=3, crash_suspected=True).cut_short(),
    "a wait for code": AttemptHistory(ended=3, crash_suspected=True).waited("unknown task", now_us=10**15),
    "sealed parts": AttemptHistory(ended=3, spared=True, history=({"error": "no"},), sealed=(b"\1\0\xff",)),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_the_older_reader_ignores_the_new_option(
    job: Job, in_older_package: Callable[[str, bytes], str], older_package: object
) -> None:
    _, body = encode(job, max_payload=10_000)
    imported, *read = json.loads(in_older_package(READ_BODY, body))
    assert imported.startswith(str(older_package))
    assert read == [job.task, job.queue, job.args, job.kwargs, job.retry.max_attempts or MAX_ATTEMPTS]


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
def test_the_older_reader_counts_the_attempts_of_a_newer_record(
    record: AttemptHistory, in_older_package: Callable[[str, bytes], str]
) -> None:
    read = json.loads(in_older_package(READ_ATTEMPTS, record.pack()))
    assert read == [record.ended, record.crash_suspected, record.spared]


def test_the_older_reader_leaves_an_encrypted_job_to_a_newer_one(
    in_older_package: Callable[[str, bytes], str],
) -> None:
    job, body = encode(JOBS["none"], max_payload=10_000)
    body = encrypt(body, raw_id=RAW_ID, cipher=CIPHER)
    result = CIPHER.seal(RAW_ID, RESULT, b'{"state": "done", "ended_us": 5}')
    assert in_older_package(READ_NEWER, b"END OF BODY".join((body, result))).split() == [job.task, job.queue, "None"]


def test_the_older_reader_counts_the_attempts_of_an_encrypted_record(
    in_older_package: Callable[[str, bytes], str],
) -> None:
    # Random bytes follow the head: none of them may break the older reader.
    record = AttemptHistory(ended=3, crash_suspected=True, history=({"error": "no"},))
    for _ in range(3):
        stored = pack_attempts(record, raw_id=RAW_ID, cipher=CIPHER)
        assert json.loads(in_older_package(READ_ATTEMPTS, stored)) == [3, True, False]
