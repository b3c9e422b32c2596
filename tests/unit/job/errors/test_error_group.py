"""Error groups: messages that differ in what varies are one group, and all else makes another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_delayq.job.attempts import NO_ATTEMPTS, AttemptHistory
from django_delayq.job.errors.error_group import ErrorGroup
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.error_group_record import GROUP_SIZE, OTHER_GROUPS, error_group_of, read_label

CIPHER = Cipher(on=False)


def attempts(
    message: str, *, exception: str = "builtins.ValueError", ending: str = OutcomeKind.FAILED
) -> AttemptHistory:
    name = exception.removeprefix("builtins.")
    error = f'Traceback (most recent call last):\n  File "shop.py", line 1, in pay\n{name}: {message}\n'
    return NO_ATTEMPTS.add(
        worker="w", started_us=1, ended_us=2, ending=OutcomeKind.FAILED, error=error, exception=exception
    )


def group(message: str, **options: str) -> ErrorGroup:
    return ErrorGroup.of("shop.pay", attempts(message, **options))


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("order 4711 not found", "order # not found"),
        ("timed out after 10.5 s", "timed out after # s"),
        ("at 2026-11-27 10:00:12,5 UTC", "at # # UTC"),
        ("<Order object at 0x7f12ab>", "<Order object at #>"),
        ("no user 3f2504e0-abcd-abcd-9a0c-0305e82c3301 here", "no user # here"),
        ("user_12 of 10.0.0.1:80 refused", "# of # refused"),
        ("'name'", "'name'"),
        ("two\twords  apart", "two words apart"),
        ("", ""),
    ],
)
def test_words_with_digits_vary(message: str, shown: str) -> None:
    assert group(message) == ("shop.pay", "ValueError", shown)


def test_task_class_and_message_make_different_groups() -> None:
    digests = {
        error_group_of(task, attempts(message, exception=kind), CIPHER)[:GROUP_SIZE]
        for task in ("shop.pay", "shop.ship")
        for message in ("no money", "no card")
        for kind in ("builtins.ValueError", "shop.errors.ValueError")
    }
    assert len(digests) == 8


def test_an_ending_without_an_exception_has_its_own_name() -> None:
    crashed = NO_ATTEMPTS.add(worker="w", started_us=1, ended_us=None, ending=OutcomeKind.CRASHED, error="exit code 9")
    assert ErrorGroup.of("shop.pay", crashed) == ("shop.pay", OutcomeKind.CRASHED, "exit code #")
    assert ErrorGroup.of("", NO_ATTEMPTS) == ("", "", "")


@given(st.text(), st.text())
def test_the_label_is_read_as_it_was_stored(task: str, message: str) -> None:
    stored = error_group_of(task, attempts(message), CIPHER)
    assert read_label(stored[:GROUP_SIZE], stored[GROUP_SIZE:], CIPHER) == ErrorGroup.of(task, attempts(message))


def test_a_group_of_several_messages_shows_none() -> None:
    stored = error_group_of("shop.pay", attempts("no money"), CIPHER)
    found = read_label(stored[:6] + bytes(6), stored[GROUP_SIZE:], CIPHER)
    assert found == ("shop.pay", "ValueError", "")


def test_a_label_of_a_group_of_all_others_and_a_damaged_one_are_unknown() -> None:
    assert read_label(OTHER_GROUPS, b"", CIPHER) is None
    for damaged in (b"{", b"[1,2,3]", b'["a","b"]', b"\xff", b"null"):
        assert read_label(b"123456789012", damaged, CIPHER) is None


def test_an_encrypted_label_is_read_with_the_key_alone() -> None:
    cipher, other = (Cipher(on=True, secrets=[letter * 32]) for letter in "ab")
    stored = error_group_of("shop.pay", attempts("no money"), cipher)
    digest, label = stored[:GROUP_SIZE], stored[GROUP_SIZE:]
    assert b"money" not in stored and b"shop" not in stored
    assert read_label(digest, label, cipher) == group("no money")
    assert read_label(digest, label, other) is None
    # The group of a message is the same, whoever stored it.
    assert error_group_of("shop.pay", attempts("no money"), other)[:GROUP_SIZE] == digest
