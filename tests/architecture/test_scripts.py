"""Lua scripts against the Python that calls them: headers, contracts, and forbidden commands."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from django_delayq.store import store
from django_delayq.store.client.prelude import PARTS, Prelude
from django_delayq.store.client.script import _OF_QUEUE, Script
from django_delayq.store.keys import CATALOGUE
from django_delayq.store.maintenance.acl_roles import commands_in

STORE = Path(store.__file__).parent
PRELUDE = [STORE / "lua" / f"{name}.lua" for name in PARTS]
FILES = sorted(set(STORE.glob("lua/*.lua")) - {*PRELUDE})
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
#: Nouns that are one key per queue: a script can only have them by name from its caller.
PER_QUEUE = {"scheduled", "ready", "recovered", "parked"}


def header(path: Path) -> str:
    """Return the comment a script begins with."""
    lines = path.read_text().splitlines()
    return "\n".join(lines[: next(n for n, line in enumerate(lines) if not line.startswith("--"))])


def code(path: Path) -> list[str]:
    """Return a script's lines without comments and blank ones."""
    bare = (re.sub(r"--.*", "", line).rstrip() for line in path.read_text().splitlines())
    return [line for line in bare if line]


def declared(path: Path) -> set[str]:
    """Return the names that a text declares, and those of the fields in its constructors of tables."""
    text = re.sub(r"'[^'\n]*'", "''", "\n".join(code(path)))
    found = [
        *re.findall(r"local (?!function\b)(\w[\w, ]*)", text),
        *re.findall(r"function [\w.]*\(([^)]*)\)", text),
        *re.findall(r"for ([\w, ]+) (?:in|=) ", text),
        *re.findall(r"[{,]\s*(\w+) = ", text),
    ]
    return set(re.findall(r"\w+", " ".join(found)))


def users(name: str) -> list[Path]:
    """Return the modules that load a script."""
    return [path for path in STORE.rglob("*.py") if f'Script("{name}")' in path.read_text()]


def commands(path: Path) -> set[str]:
    """Return the Redis commands a script calls."""
    return set(re.findall(r"redis\.p?call\(\s*'(\w+)'", "\n".join(code(path))))


@EACH
def test_header_states_the_contract(path: Path) -> None:
    text = header(path)
    assert re.match(rf"-- {path.stem.capitalize()}\b.*: ", text), "the first line names the transition"
    for part in ("KEYS: ", "ARGV: ", "Returns", "Cost: "):
        assert part in text, f"{path.name} does not tell {part}"
    assert re.search(r"Cost: .*O\(", text)


@EACH
def test_header_names_each_key_once(path: Path) -> None:
    names = Script(path.stem).key_names
    assert names
    assert len(set(names)) == len(names)
    # The loader assigns them; the script itself counts from FIXED.
    assert not re.search(r"KEYS\[\d+\]", "\n".join(code(path)))


@EACH
def test_first_code_line_takes_the_arguments_and_now_is_the_first(path: Path) -> None:
    line = re.fullmatch(r"local (now(?:, \w+)*) = (now_us\(ARGV\[1\]\).*)", code(path)[0])
    assert line, code(path)[0]
    numbers = [int(number) for number in re.findall(r"ARGV\[(\d+)\]", line[2])]
    assert numbers == list(range(1, len(line[1].split(", ")) + 1))


@EACH
def test_every_key_is_in_the_catalogue_or_named_by_the_caller(path: Path) -> None:
    (module,) = users(path.stem)
    text = module.read_text()
    if re.search(r"\bqueue=", text):
        text += (STORE / "keys.py").read_text()
    tree = ast.parse(text)
    given = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    given |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    by_name = {name for name in Script(path.stem).key_names if name not in CATALOGUE or name in PER_QUEUE}
    assert by_name <= given


@EACH
def test_script_is_the_transition_of_one_method_of_its_name(path: Path) -> None:
    (module,) = users(path.stem)
    methods = {node.name for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.FunctionDef)}
    assert path.stem in methods


@pytest.mark.parametrize("path", [*PRELUDE, *FILES], ids=lambda path: path.stem)
def test_script_does_nothing_that_scripts_must_not(path: Path) -> None:
    text = "\n".join(code(path))
    # cjson rounds integers, a time as text loses digits, keys are passed in KEYS, a popped job has no owner.
    for word in ("cjson", "tostring", "loadstring", "string.format('%d", "{0}", "math.random"):
        assert word not in text
    assert not commands(path) & {"KEYS", "SCAN", "SSCAN", "HSCAN", "ZSCAN", "RANDOMKEY", "FLUSHALL", "FLUSHDB"}
    # One function of the prelude, for kept results.
    assert text.count("'PEXPIRE'") == (path.stem == "_places")
    assert not commands(path) & {"EXPIRE", "EXPIREAT", "PEXPIREAT", "SETEX", "PSETEX", "GETEX"}
    assert not commands(path) & {"LPOP", "RPOP", "ZPOPMIN", "ZPOPMAX", "SPOP", "BLPOP", "EVAL", "PUBLISH"}
    assert not re.search(r"redis\.p?call\((?!\s*')", text), "a command's name is written out"
    assert not re.search(r"redis\.p?call\('\w+', ['\"]", text), "a key's name is never written out"


def test_reading_scripts_only_read() -> None:
    reads = {"ZCARD", "ZCOUNT", "ZRANGE", "ZSCORE", "ZRANK", "ZMSCORE", "HGET", "HMGET", "HLEN", "HEXISTS"}
    reads |= {"HGETALL", "HKEYS", "HSTRLEN", "HVALS", "INFO", "LINDEX", "TIME", "ZLEXCOUNT", "ZUNION"}
    for name in (
        "find",
        "find_holders",
        "read_bodies",
        "find_tenants",
        "find_limits",
        "find_error_groups",
        "page",
        "snapshot",
        "due_histogram",
        "read_totals",
    ):
        # With the functions of the prelude that it uses.
        assert commands_in(Script(name).text) <= reads


def test_there_is_no_other_include() -> None:
    assert all("require" not in path.read_text() and "dofile" not in path.read_text() for path in FILES)


#: The parts of a small prelude.
FIRST_PART = """-- First: a part.
local CONSTANT, OTHER = 1, 2
local state
local function inner(key)
  if key then redis.call('DEL', key) end
end
-- outer(key)
local function used(key)
  state = CONSTANT
  return inner(redis.pcall('LLEN', key))
end
local function unused(key) -- inner(key)
  return redis.call('FLUSHALL')
end
"""
SECOND_PART = """-- Second: a part.
local OWN, SHARED = 5, 7
local calls = 0
local function sum_of(a)
  state, calls = (state or 0) + a, calls + 1
  return state + OWN + OTHER
end
local function count()
  return calls
end

"""
THIRD_PART = """-- Third: a part.
local function twice(a)
  return 2 * sum_of(a)
end
"""
SOME_PARTS = {"_first": FIRST_PART, "_second": SECOND_PART, "_third": THIRD_PART}
SOME_PRELUDE = Prelude(SOME_PARTS)
#: Parts that are lazy.
LAZY: list[set[str]] = [set(), {"_third"}, {"_second"}, {"_second", "_third"}]


def in_front_of(source: str) -> str:
    """Return a script after its parts; all but the first one are lazy."""
    return SOME_PRELUDE.in_front_of(source, lazy={"_second", "_third"})


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("return 1", set()),
        ("return redis.call('GET', KEYS[1]) -- used()", set()),
        ("for _ = 1, 2 do used(KEYS[1]) end", {"used", "inner"}),
        ("local later = inner\nreturn later(KEYS[1])", {"inner"}),
        ("return used(KEYS[1]) + sum_of(1)", {"used", "inner", "sum_of"}),
        ("return twice(1)", {"twice", "sum_of"}),
    ],
)
def test_a_script_gets_the_functions_it_uses_and_no_others(source: str, names: set[str]) -> None:
    text = in_front_of(source)
    assert set(re.findall(r"local function (\w+)", text)) == names
    # `inner` alone uses no variables.
    assert ("CONSTANT, OTHER = 1, 2" in text) == bool(names - {"inner"})
    lines = "".join([*SOME_PARTS.values(), source]).count("\n")
    assert text.count("\n") == lines, "the line numbers of errors would be wrong"


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("return sum_of(CONSTANT)", 1 + 5 + 2),
        # The parts and the script have one `state`, and each part has its own variables.
        ("state = 10; return sum_of(CONSTANT)", 11 + 5 + 2),
        ("sum_of(1); sum_of(1); return count()", 2),
        ("return twice(1)", 2 * (1 + 5 + 2)),
        ("local later = sum_of; return later(1)", 1 + 5 + 2),
        ("return SHARED", 7),
        # Neither a field nor a string nor a comment is a function of a part.
        ("local row = {}; row.sum_of = 'count()' -- count()\nreturn row.sum_of", b"count()"),
    ],
)
def test_a_script_runs_with_its_parts(source: str, result: object, client: Redis) -> None:
    for lazy in LAZY:
        assert client.eval(SOME_PRELUDE.in_front_of(source, lazy=lazy), 0) == result


def test_a_script_does_not_see_what_is_used_in_a_part_alone(client: Redis) -> None:
    with pytest.raises(ResponseError, match="(?i)nonexistent global variable 'calls'"):
        client.eval(in_front_of("local others = _G; return sum_of(1) + others['calls']"), 0)


def test_a_part_is_created_at_its_first_use(client: Redis) -> None:
    source = "if ARGV[1] == 'yes' then return twice(1) end"
    text = in_front_of(source)
    for name in ("_second", "_third"):
        creates = f"create = function({name})"
        assert text.count(creates) == 1
        text = text.replace(creates, f"{creates} redis.call('INCR', '{name}')")
    client.eval(text, 0, "no")
    assert client.mget("_second", "_third") == [None, None]
    client.eval(text, 0, "yes")
    assert client.mget("_second", "_third") == [b"1", b"1"]


@pytest.mark.parametrize("path", PRELUDE, ids=lambda path: path.stem)
def test_the_loader_can_read_a_part(path: Path) -> None:
    # The first line is replaced, and the last one gets the end of the part.
    first, *_, last = path.read_text().split("\n")[:-1]
    assert first.startswith("-- ") and "--" not in last


def test_the_name_of_a_shared_function_means_nothing_else() -> None:
    # The loader reads the function from its part wherever its name is.
    shared = set(re.findall(r"^local function (\w+)", "".join(path.read_text() for path in PRELUDE), re.MULTILINE))
    for path in (*PRELUDE, *FILES):
        assert not shared & declared(path), path.name


@EACH
def test_the_name_of_a_key_means_nothing_else(path: Path) -> None:
    # The loader writes KEYS[n] wherever the name is, but for the keys of the queue of the call.
    names = set(Script(path.stem).key_names) - _OF_QUEUE
    for text in (*PRELUDE, path):
        assert not names & declared(text), text.name


@EACH
def test_the_lazy_parts_of_a_script_are_used(path: Path) -> None:
    if line := re.search(r"^-- Lazy: (.*)\.$", header(path), re.MULTILINE):
        for name in line[1].split(", "):
            assert f"local {name} = setmetatable(" in Script(path.stem).text


def test_each_function_of_the_prelude_is_shared() -> None:
    # Parts of one script, in files of their own.
    of_one = dict.fromkeys(("_parking", "_choice", "_candidates"), "settle_and_claim")
    scripts = {path.stem: Script(path.stem).text for path in FILES}
    for path in PRELUDE:
        for name in re.findall(r"^local function (\w+)", path.read_text(), re.MULTILINE):
            users = [script for script, text in scripts.items() if re.search(rf"\bfunction {name}\(", text)]
            assert users == [of_one[path.stem]] if path.stem in of_one else len(users) > 1, name


@EACH
def test_errors_are_reported_with_the_line_of_their_file(path: Path) -> None:
    script = Script(path.stem)
    loaded = enumerate(script.text.splitlines(), start=1)
    next(loaded)
    for file in (*PRELUDE, path):
        lines = [re.sub(" *--.*", "", line) for line in file.read_text().splitlines()]
        for number, line in enumerate(lines, start=1):
            at, text = next(loaded)
            text = re.sub(r"KEYS\[(\d+)\]", lambda key: script.key_names[int(key[1]) - 1], text)
            for message in (f"user_script:{at}: error", f"@user_script: {at}: error"):
                assert script.source_line(message) == f"{file.name}:{number}"
            if file != path and number == 1:
                continue
            # The table of a part stands before its functions, and the end of a part follows its last line.
            bare = re.sub(r"\b_[a-z_]+\.", "", text)
            if file != path and number == len(lines):
                bare = "" if bare.startswith(" ") else bare[: len(line)]
            # What is not used is left out.
            expected = {line} if file == path else {line, ""}
            assert bare.rstrip() in expected, f"{file.name}:{number}"
    assert list(loaded) == []
    assert script.source_line("no line") == f"{path.name}"


def test_every_process_has_the_same_texts() -> None:
    # Redis would keep a text for each process.
    program = (
        "from django_delayq.store.client.script import Script\n"
        f"print(*[Script(name).sha for name in {[path.stem for path in FILES]}])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert found == {" ".join(Script(path.stem).sha for path in FILES).encode() + b"\n"}


def test_every_loaded_script_is_there_and_every_file_is_loaded() -> None:
    loaded = {name for path in STORE.rglob("*.py") for name in re.findall(r'Script\("(\w+)"\)', path.read_text())}
    assert loaded == {path.stem for path in FILES}
