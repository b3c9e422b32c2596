"""Registry: a stored name selects a registered task, or nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_delayq import delayed_task
from django_delayq.exceptions import UnknownTask
from django_delayq.task import registry
from tests.sample_app.tasks import noop


@pytest.fixture(autouse=True)
def own_registry(registered: Any) -> None:
    """Undo at the end of a test what it registered."""
    registered()


def function(name: str) -> Callable[..., Any]:
    """Make a function of a module of its own, as an import would."""
    namespace: dict[str, Any] = {"__name__": f"shop.{name}_module"}
    exec(compile(f"def {name}(): pass", f"/shop/{name}.py", "exec"), namespace)
    made: Callable[..., Any] = namespace[name]
    return made


def test_a_task_is_found_by_name_and_alias() -> None:
    task = delayed_task(name="shop.remind", aliases=["shop.old", "shop.older"])(function("remind"))
    for name in ("shop.remind", "shop.old", "shop.older"):
        assert registry.find(name) is registry.get(name) is task
        assert name in registry.names()
    assert registry.names() == sorted(registry.names())


def test_the_default_name_is_the_import_path() -> None:
    assert noop.name == "tests.sample_app.tasks.noop"
    assert registry.get("tests.sample_app.tasks.noop") is noop


def test_an_unknown_name_is_a_lookup_error_that_names_the_nearest() -> None:
    hint = r"'tests\.sample_app\.tasks\.nop'.*mean 'tests\.sample_app\.tasks\.noop'"
    with pytest.raises(UnknownTask, match=hint) as caught:
        registry.get("tests.sample_app.tasks.nop")
    assert isinstance(caught.value, LookupError)
    assert "tasks.py" in str(caught.value) and "TASK_MODULES" in str(caught.value)


@pytest.mark.parametrize("name", ["", "os.system", "x" * 10_000, None, 5, b"tests.sample_app.tasks.noop", ["a"]])
def test_an_unregistered_name_is_never_imported(name: Any) -> None:
    with pytest.raises(UnknownTask) as caught:
        registry.get(name)
    assert len(str(caught.value)) < 600
    if isinstance(name, str):
        assert registry.find(name) is None


def test_two_functions_with_one_name_are_refused_naming_both() -> None:
    delayed_task(name="shop.remind")(function("first"))
    with pytest.raises(ImproperlyConfigured, match=r"'shop\.remind'.*first.*second.*Rename") as caught:
        delayed_task(name="shop.remind")(function("second"))
    assert "/shop/first.py:1" in str(caught.value) and "/shop/second.py:1" in str(caught.value)


def test_an_alias_of_one_task_cannot_be_the_name_of_another() -> None:
    first = delayed_task(name="shop.remind")(function("first"))
    with pytest.raises(ImproperlyConfigured, match=r"shop\.remind"):
        delayed_task(name="shop.fresh", aliases=("shop.remind",))(function("second"))
    assert registry.get("shop.remind") is first
    assert registry.find("shop.fresh") is None, "half of a refused task was registered"


def test_a_module_imported_again_replaces_its_tasks() -> None:
    delayed_task(name="shop.remind")(function("remind"))
    again = delayed_task(name="shop.remind")(function("remind"))
    assert registry.get("shop.remind") is again


def test_autodiscovery_imports_tasks_of_apps_and_named_modules() -> None:
    registry.autodiscover(("tests.sample_app.tasks",))
    with pytest.raises(ModuleNotFoundError, match="tests.no_such_module"):
        registry.autodiscover(("tests.no_such_module",))
