"""Floors, sizes, and which modules alone may use what."""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import django_delayq

PACKAGE = Path(django_delayq.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))
#: Most lines in a file, Python files in a folder, and floors.
LINES, FILES, FLOORS = 400, 12, 11


def named(path: Path) -> str:
    """Return a file's path inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Return (module, name) of everything a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{named(path)}:{node.lineno} imports relatively"
            yield from ((node.module or "", alias.name) for alias in node.names)


def importers(*modules: str) -> set[str]:
    """Return the files that import one of these modules, or from inside it."""
    return {
        named(path)
        for path in MODULES
        for module, name in imports(path)
        for wanted in modules
        if f"{module}.{name}.".startswith(f"{wanted}.")
    }


def test_floors_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 broken" in run.stdout


def test_there_are_at_most_eleven_floors() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [floors] = [contract for contract in contracts if contract.get("containers") == ["django_delayq"]]
    assert floors["exhaustive"] and len(floors["layers"]) <= FLOORS


def test_ci_tests_the_lowest_versions_that_the_package_accepts() -> None:
    accepted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = (ROOT / "tests/constraints-lowest.txt").read_text().splitlines()
    tested = {name.split("==")[0]: name.split("==")[1] for name in lines if not name.startswith("#")}
    # As many numbers as the requirement has.
    lowest = {name: version for name, version in (each.split(">=") for each in accepted) if name in tested}
    assert lowest and all(f"{tested[name]}.".startswith(f"{lowest[name]}.") for name in tested)


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = grimp.build_graph("django_delayq", exclude_type_checking_imports=True)
    modules = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # Raises CycleError, which names the circle.
    TopologicalSorter(modules).prepare()


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=named)
def test_a_folder_has_few_enough_files_to_see_at_once(folder: Path) -> None:
    # An empty one only makes the folder a package. Django looks for commands in one folder.
    most = FILES + 1 if folder.name == "commands" else FILES
    assert len([path for path in folder.glob("*.py") if path.read_text()]) <= most


def test_a_folder_of_tests_has_few_enough_files_to_see_at_once() -> None:
    files = Counter(path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py"))
    assert not {folder: count for folder, count in files.items() if count > FILES}


@pytest.mark.parametrize("path", [*MODULES, *sorted(PACKAGE.rglob("*.lua"))], ids=named)
def test_file_is_short_enough_to_hold_one_noun(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


@pytest.mark.parametrize("path", [path for path in MODULES if path.read_text().strip()], ids=named)
def test_module_says_what_it_is_and_imports_absolutely(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))
    # Walking them is the test: a relative one fails on the way.
    list(imports(path))


def test_only_the_store_speaks_redis() -> None:
    outside = {name for name in importers("redis", "django_redis") if not name.startswith("store/")}
    # It starts servers, and checks whether they are up.
    assert outside == {"testing/local_redis.py"}


def test_only_the_configuration_reads_settings() -> None:
    assert importers("django.conf.settings") == {"conf/settings.py", "conf/redis_settings.py"}


def test_nothing_is_unpickled_and_nothing_imported_by_a_stored_name() -> None:
    assert importers("pickle", "marshal", "shelve", "yaml") == set()
    # They import what settings, the command line and declarations name (modules of tasks, middlewares, functions that
    # are permissions or take jobs over, backends in TASKS, exceptions of retry policies), the package its own public
    # names, and encryption an extra, by a fixed name.
    assert importers("importlib.import_module", "django.utils.module_loading") == {
        *(
            "task/registry.py",
            "admin/permissions.py",
            "management/pool_options.py",
            "__init__.py",
            "conf/settings.py",
            "conf/redis_settings.py",
            "store/nodes/pools/cache_pool.py",
            "job/security/encryption.py",
            "middleware/chain.py",
            "conf/exception_classes.py",
        ),
    }


def test_broad_excepts_stand_around_user_code_and_around_a_step_only() -> None:
    found = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            swallows = not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
            if broad and swallows:
                found.add(named(path))
    # A pool's threads outlive what strikes in them; receivers, log handlers and drivers of databases are the project's.
    pools = {
        "worker/pools/child.py",
        "worker/pools/claim_queue.py",
        "worker/pools/asyncio.py",
        "worker/pools/threads.py",
    }
    assert found == {
        "processes/database.py",
        "processes/emitter.py",
        "worker/execution.py",
        "worker/outcomes.py",
        "logs.py",
        # The text of an exception is code of the project.
        "job/errors/exception_text.py",
        # It makes a connection of a class of the project.
        "store/nodes/pools/configured_pool.py",
        # It imports the project's classes.
        "middleware/chain.py",
        # It runs the project's middlewares and functions of arguments.
        "task/recurring/declarations.py",
        # Celery raises classes of its own, which it does not import.
        "task/recurring/celery_beat.py",
        "processes/service.py",
        "signals.py",
        # Coroutines wait for its answer without a timeout.
        "store/queries/result_waiter.py",
        *pools,
    }


def test_loading_the_pytest_plugin_imports_no_django() -> None:
    program = "import sys, django_delayq.pytest_plugin; print(sorted(sys.modules.keys() & {'django', 'redis'}))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.stdout == "[]\n", run.stderr


def test_every_public_name_is_at_home_where_the_package_says() -> None:
    # First of all: an imported module of the same name would take the place of a public name.
    for path in MODULES:
        import_module(".".join(["django_delayq", *Path(named(path)).with_suffix("").parts]).removesuffix(".__init__"))
    assert set(django_delayq._HOMES) == set(django_delayq.__all__)
    assert not [name for name in django_delayq.__all__ if isinstance(getattr(django_delayq, name), ModuleType)]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        django_delayq.nothing  # noqa: B018
