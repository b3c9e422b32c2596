"""Exception classes: a path becomes the one that its exceptions have, and a wrong one is refused."""

import sys
from pathlib import Path

import pytest

from django_delayq.conf import exception_classes
from django_delayq.conf.exception_classes import is_resolved, resolve
from django_delayq.job.retry import RetryPolicy

ERRORS = """
class Declined(Exception):
    class Twice(Exception):
        pass
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `shop_of_errors` that can be imported."""
    (tmp_path / "shop_of_errors").mkdir()
    (tmp_path / "shop_of_errors" / "__init__.py").write_text("from shop_of_errors.bank import Declined")
    (tmp_path / "shop_of_errors" / "bank.py").write_text(ERRORS)
    monkeypatch.syspath_prepend(str(tmp_path))
    # The module is another one in each test.
    monkeypatch.setattr(exception_classes, "_known", {})
    yield tmp_path / "shop_of_errors"
    for name in [name for name in sys.modules if name.startswith("shop_of_errors")]:
        del sys.modules[name]


def test_an_alias_becomes_the_path_of_the_class(shop: Path) -> None:
    policy = resolve(RetryPolicy(retry_on=["shop_of_errors.Declined", "shop_of_errors.bank.Declined.Twice"]))
    assert policy.retry_on == ("shop_of_errors.bank.Declined", "shop_of_errors.bank.Declined.Twice")
    assert resolve(policy) is policy


def test_a_class_need_not_be_importable() -> None:
    made = type("Made", (Exception,), {"__module__": "botocore.errorfactory"})

    class Local(Exception):
        pass

    policy = RetryPolicy(retry_on=[made, Local], dead_on=OSError)
    assert resolve(policy) is policy
    named = resolve(RetryPolicy(retry_on="a.b.<locals>.Local"))
    assert named.retry_on == ("a.b.<locals>.Local",) and is_resolved(named)
    assert policy.retry_on[0] == "botocore.errorfactory.Made"


def test_a_module_that_is_being_imported_is_not_judged(shop: Path) -> None:
    (shop / "tasks.py").write_text(
        "from django_delayq import RetryPolicy\n"
        "from django_delayq.conf.exception_classes import resolve\n"
        "policy = resolve(RetryPolicy(retry_on='shop_of_errors.tasks.Later', dead_on='shop_of_errors.circle.Round'))\n"
        "class Later(Exception): pass\n"
    )
    (shop / "circle.py").write_text("from shop_of_errors.tasks import Later\nclass Round(Later): pass\n")
    from shop_of_errors.tasks import policy  # type: ignore[import-not-found]

    assert (policy.retry_on, policy.dead_on) == (("shop_of_errors.tasks.Later",), ("shop_of_errors.circle.Round",))
    assert not is_resolved(policy)
    assert is_resolved(resolve(policy, is_final=True))


def test_a_circle_is_not_judged_in_the_middle_of_its_import(shop: Path) -> None:
    (shop / "tasks.py").write_text(
        "from django_delayq import RetryPolicy\n"
        "from django_delayq.conf.exception_classes import resolve\n"
        "given = RetryPolicy(retry_on='shop_of_errors.tasks.Later', dead_on='shop_of_errors.circle.Round')\n"
        "policy = resolve(given, is_final=True)\n"
        "class Later(Exception): pass\n"
    )
    (shop / "circle.py").write_text("from shop_of_errors.tasks import Later\nclass Round(Later): pass\n")
    from shop_of_errors.tasks import policy

    assert not is_resolved(policy)
    assert is_resolved(resolve(policy))


def test_a_class_above_in_the_same_module_is_resolved_at_once(shop: Path) -> None:
    (shop / "tasks.py").write_text(
        "from django_delayq import RetryPolicy\n"
        "from django_delayq.conf.exception_classes import is_resolved, resolve\n"
        "class Early(Exception): pass\n"
        "assert is_resolved(resolve(RetryPolicy(retry_on='shop_of_errors.tasks.Early')))\n"
    )
    import shop_of_errors.tasks  # noqa: F401


@pytest.mark.parametrize(
    ("wrong", "words"), [("Latr", "has no 'Latr'.*did you mean 'Later'"), ("NONE", "no exception")]
)
def test_a_wrong_path_into_a_module_is_an_error_once_its_import_is_complete(shop: Path, wrong: str, words: str) -> None:
    (shop / "tasks.py").write_text(
        "from django_delayq import RetryPolicy\n"
        "from django_delayq.conf.exception_classes import resolve\n"
        "NONE = None\n"
        f"policy = resolve(RetryPolicy(retry_on='shop_of_errors.tasks.{wrong}'))\n"
        "class Later(Exception): pass\n"
    )
    from shop_of_errors.tasks import policy

    with pytest.raises(ValueError, match=words):
        resolve(policy)


def test_a_module_that_fails_for_a_reason_of_its_own_is_not_judged(shop: Path) -> None:
    (shop / "half.py").write_text("import no_such_driver\n")
    policy = resolve(RetryPolicy(retry_on="shop_of_errors.half.Broken"))
    assert policy.retry_on == ("shop_of_errors.half.Broken",)
    words = r"retry_on of OPTIONS has 'shop_of_errors.half.Broken', but shop_of_errors.half .*'no_such_driver'; mend"
    with pytest.raises(ValueError, match=words):
        resolve(policy, name="OPTIONS", is_final=True)


def test_an_error_names_the_option(shop: Path) -> None:
    with pytest.raises(ValueError, match=r"dead_on of OPTIONS has 'shop_of_errors.bank.Declned', .*did you mean"):
        resolve(RetryPolicy(dead_on="shop_of_errors.bank.Declned"), name="OPTIONS")
