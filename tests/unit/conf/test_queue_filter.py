"""Queue filter: how items are read, which queues they match, and which lists are refused."""

import pytest

from django_delayq.conf.queue_filter import QueueFilter, QueueItem

QUEUES = ("", "mail", "mail.fast", "mail.slow", "email", "slow", "slow*", "-slow", "a,b", "50%", "gruß", "\ud800")


def matched(*texts: str) -> list[str]:
    """Return those of the queues that the filter matches."""
    return list(filter(QueueFilter.read(texts).matches, QUEUES))


@pytest.mark.parametrize(
    ("texts", "queues"),
    [
        (["mail"], ["mail"]),
        (["mail*"], ["mail", "mail.fast", "mail.slow"]),
        (["*mail"], ["mail", "email"]),
        (["*mail*"], ["mail", "mail.fast", "mail.slow", "email"]),
        (["m*l*w"], ["mail.slow"]),
        (["m**l"], ["mail"]),
        (["*"], list(QUEUES)),
        (["mail*", "-*slow"], ["mail", "mail.fast"]),
        (["-*slow", "mail*"], ["mail", "mail.fast"]),
        (["mail*", "slow", "-mail"], ["mail.fast", "mail.slow", "slow"]),
        (["-*l*", "-gru%C3%9F", "-%ED%A0%80"], ["", "a,b", "50%"]),
        (["slow%2A", "*x"], ["slow*"]),
        (["%2Dslow", "*x"], ["-slow"]),
        (["-%2Dslow", "*low"], ["mail.slow", "slow"]),
        (["a%2cb", "50%25", "*x"], ["a,b", "50%"]),
        (["*%2A"], ["slow*"]),
        (["gru%C3%9F", "*x"], ["gruß"]),
        (["gruß", "*x"], ["gruß"]),
    ],
    ids=lambda value: ",".join(value).encode("ascii", "backslashreplace").decode(),
)
def test_a_filter_matches_what_an_item_matches_and_no_exclusion(texts: list[str], queues: list[str]) -> None:
    assert matched(*texts) == queues


def test_only_exclusions_match_all_other_queues() -> None:
    assert matched("-slow", "-mail*") == [name for name in QUEUES if name != "slow" and not name.startswith("mail")]


@pytest.mark.parametrize(("pattern", "short"), [("aa*aa", "aaa"), ("ab*ba", "aba"), ("a*a", "a")])
def test_the_ends_of_a_pattern_do_not_overlap(pattern: str, short: str) -> None:
    assert not QueueItem.read(pattern).matches(short)
    assert QueueItem.read(pattern).matches(pattern.replace("*", ""))


def test_a_part_in_the_middle_does_not_overlap_the_end() -> None:
    assert not QueueItem.read("a*bc*c").matches("abc")
    assert QueueItem.read("a*bc*c").matches("abcc")
    assert not QueueItem.read("*ab*ab*").matches("xab")


def test_a_pattern_of_many_stars_is_matched_at_once() -> None:
    # A regular expression would not end.
    assert not QueueItem.read("a*" * 50 + "b").matches("a" * 200)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["mail*", "-"], "'-' excludes no queue; write -NAME, or %2D"),
        (["50%"], "'50%' has a % without two hexadecimal digits; write %25"),
        (["*%2"], "without two hexadecimal digits"),
        (["-%zz"], "'-%zz' has a % without two hexadecimal digits"),
        (["%FF*"], "'%FF\\*' has a % that begins no UTF-8 character; write %25"),
        (["mail", "-mail"], "-mail excludes every queue of the list"),
        (["mail", "bulk", "-*l*"], "-\\*l\\* excludes every queue"),
        (["mail", "bulk", "-mail", "-bulk"], "-mail, -bulk excludes every queue"),
        (["mail*", "-m*"], "-m\\* excludes every queue"),
        (["-*"], "-\\* excludes every queue"),
        (["*", "-**"], "-\\*\\* excludes every queue"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        QueueFilter.read(texts)


@pytest.mark.parametrize("texts", [["mail", "bulk", "-mail"], ["*", "-%2A"], ["mail*", "-mail"], ["m*", "-ma*"]])
def test_exclusions_that_leave_a_queue_are_accepted(texts: list[str]) -> None:
    assert QueueFilter.read(texts).texts == tuple(texts)


def test_a_filter_is_needed_for_more_than_names() -> None:
    assert not QueueFilter.read(["mail", "slow%2A", "%2Dslow"]).is_needed
    assert QueueFilter.read(["mail", "slow*"]).is_needed
    assert QueueFilter.read(["mail", "-slow"]).is_needed
