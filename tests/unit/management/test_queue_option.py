"""Queue options: what `run_worker --queues` and `--weights` accept, and what they refuse with the cure."""

import pytest
from django.core.management.base import CommandError, CommandParser

from django_delayq.conf.config import TaskConfig, WorkerConfig
from django_delayq.management.queue_option import add_queues, with_queues

DECLARED = TaskConfig(queues=frozenset({"mail", "mail.slow", "reports"}))


def read(text: str | None, tasks: TaskConfig = DECLARED) -> WorkerConfig:
    """Return the settings of a worker with this option."""
    return with_queues(WorkerConfig(), {"queues": text, "weights": None}, tasks=tasks)


def weighted(text: str, tasks: TaskConfig = DECLARED) -> WorkerConfig:
    """Return the settings of a worker with these weights."""
    return with_queues(WorkerConfig(), {"queues": None, "weights": text}, tasks=tasks)


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


@pytest.mark.parametrize(
    ("text", "queues", "weights"),
    [
        ("mail=6,reports=1", ("mail", "reports"), (6, 1)),
        (" reports = 100 , mail=1 ", ("reports", "mail"), (100, 1)),
        ("mail=3", ("mail",), (3,)),
        ("m%61il=007", ("mail",), (7,)),
    ],
)
def test_weights_are_read_in_their_order(text: str, queues: tuple[str, ...], weights: tuple[int, ...]) -> None:
    config = weighted(text)
    assert (config.queues, config.weights, config.queue_filter) == (queues, weights, None)


def test_encoded_names_have_weights() -> None:
    config = weighted("a%3Db=1,a%2Cb=2,%2Dx=3,slow%2A=4,50%25=5,Größe=6,Gr%C3%B6%C3%9Fe 2=7", TaskConfig())
    assert dict(zip(config.queues, config.weights, strict=True)) == {
        **{"a=b": 1, "a,b": 2, "-x": 3, "slow*": 4},
        **{"50%": 5, "Größe": 6, "Größe 2": 7},
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' has no weight; write NAME=WEIGHT, for example mail=6,bulk=1"),
        ("mail=6,", "'' has no weight"),
        ("mail", "'mail' has no weight"),
        ("mail:6", "'mail:6' has no weight"),
        ("mail=0", "'mail=0' must have a whole number, 1 to 100, behind the ="),
        ("mail=101", "'mail=101' must have a whole number, 1 to 100"),
        ("mail=99999999999999999999", "must have a whole number, 1 to 100"),
        ("mail=-1", "must have a whole number"),
        ("mail=+1", "must have a whole number"),
        ("mail=1_0", "must have a whole number"),
        ("mail=1.5", "must have a whole number"),
        ("mail=٣", "must have a whole number"),
        ("mail=", "must have a whole number"),
        ("mail=six", "must have a whole number"),
        ("ma=il=6", "'ma=il=6' must have a whole number.*write %3D for = in a name"),
        ("mail=6 reports=1", "must have a whole number.*put a comma between two queues"),
        ("mail=6,reports=1,m%61il=2", "'m%61il' is the same queue as an item before it; give each queue one weight"),
        ("=6", "queue must be 1 to 200 bytes"),
        ("x" * 201 + "=6", "queue must be 1 to 200 bytes"),
        ("mail*=6", r"'mail\*' is a pattern or an exclusion; name each queue, or write %2A"),
        ("-mail=6", "'-mail' is a pattern or an exclusion; name each queue, or write %2A for a .* and %2D"),
        ("-=6", "'-' is a pattern or an exclusion"),
        ("50%=6", "write %25"),
        ("report=6", "queue 'report' is not declared.*did you mean 'reports'"),
    ],
)
def test_bad_weights_are_refused(text: str, words: str) -> None:
    with pytest.raises(CommandError, match=f"^--weights: .*{words}"):
        weighted(text)


@pytest.mark.parametrize("queues", ["", "mail", "mail*"])
def test_weights_and_a_list_exclude_each_other(queues: str) -> None:
    with pytest.raises(CommandError, match="^--weights: it names the queues itself, so leave out --queues"):
        with_queues(WorkerConfig(), {"queues": queues, "weights": "mail=6"}, tasks=DECLARED)


def test_weights_without_a_value_are_refused_with_the_cure() -> None:
    for options in (("--weights",), ("--weights", "-mail=6")):
        with pytest.raises(CommandError, match="--weights: expected one argument; write --weights mail=6,bulk=1"):
            parsed(*options)


def test_other_errors_of_the_command_line_have_no_hint() -> None:
    with pytest.raises(CommandError) as caught:
        parsed("--nonsense")
    assert "--queues=" not in str(caught.value)
