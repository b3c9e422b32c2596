"""Queue option: what `run_worker --queues` accepts, and what it refuses with the cure."""

import pytest
from django.core.management.base import CommandError, CommandParser

from django_delayq.conf.config import TaskConfig, WorkerConfig
from django_delayq.management.queue_option import add_queues, with_queues

DECLARED = TaskConfig(queues=frozenset({"mail", "mail.slow", "reports"}))


def read(text: str | None, tasks: TaskConfig = DECLARED) -> WorkerConfig:
    """Return the settings of a worker with this option."""
    return with_queues(WorkerConfig(), {"queues": text}, tasks=tasks)


def parsed(*options: str) -> str | None:
    """Return the value of the option on a command line."""
    parser = CommandParser(prog="run_worker")
    add_queues(parser)
    value: str | None = parser.parse_args(options).queues
    return value


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mail", ("mail",)),
        (" reports , mail ", ("reports", "mail")),
        ("reports,mail,reports", ("reports", "mail")),
        ("m%61il", ("mail",)),
    ],
)
def test_names_alone_are_a_strict_order(text: str, names: tuple[str, ...]) -> None:
    config = read(text)
    assert (config.queues, config.queue_filter, config.queue_texts) == (names, None, names)


def test_encoded_names_are_names() -> None:
    assert read("slow%2A,%2Dx,a%2Cb,50%25", TaskConfig()).queues == ("slow*", "-x", "a,b", "50%")


def test_no_option_serves_all_queues() -> None:
    assert read(None) == WorkerConfig()
    assert read(None).queue_texts == ()


@pytest.mark.parametrize("text", ["mail*", "-mail.slow", "mail,-mail.slow,reports", "-*.slow"])
def test_a_pattern_or_an_exclusion_makes_a_filter(text: str) -> None:
    config = read(text)
    assert config.queues == ()
    assert config.queue_filter is not None
    assert config.queue_texts == tuple(text.split(","))
    assert config.queue_filter.matches("mail")
    assert config.queue_filter.matches("mail.slow") == (text == "mail*")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "queue must be 1 to 200 bytes"),
        ("mail*,", "queue must be 1 to 200 bytes"),
        ("mail*,,reports", "queue must be 1 to 200 bytes"),
        ("-", "'-' excludes no queue"),
        ("50%", "write %25"),
        ("-" + "x" * 201, "queue must be 1 to 200 bytes"),
        ("mail,-mail", "-mail excludes every queue of the list"),
        ("-report", "queue 'report' is not declared.*did you mean 'reports'"),
        ("mail*,mial", "queue 'mial' is not declared.*did you mean 'mail'"),
        ("report.*", r"pattern 'report.\*' matches no queue of DELAYQ\['QUEUES'\] \(did you mean 'reports'\?\)"),
        ("-report.*", r"pattern 'report.\*' matches no queue"),
        ("mail*,-mail,-mail.slow", r"-mail, -mail.slow leaves no queue of DELAYQ\['QUEUES'\]"),
        ("-mail*,-reports", r"leaves no queue of DELAYQ\['QUEUES'\]"),
    ],
)
def test_a_bad_list_is_refused(text: str, words: str) -> None:
    with pytest.raises(CommandError, match=f"^--queues: .*{words}"):
        read(text)


def test_without_declared_queues_a_pattern_may_match_nothing_yet() -> None:
    assert read("report.*", TaskConfig()).queue_texts == ("report.*",)


def test_a_list_may_begin_with_an_exclusion() -> None:
    assert parsed("--queues=-slow,-test*") == "-slow,-test*"


@pytest.mark.parametrize("options", [("--queues", "-slow"), ("--queues",)])
def test_an_exclusion_without_the_sign_of_equality_is_refused_with_the_cure(options: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="--queues: expected one argument; write --queues=-slow"):
        parsed(*options)


def test_other_errors_of_the_command_line_have_no_hint() -> None:
    with pytest.raises(CommandError) as caught:
        parsed("--nonsense")
    assert "--queues=" not in str(caught.value)
