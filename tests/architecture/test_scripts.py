"""Lua scripts against the Python that calls them: headers, contracts, and forbidden commands."""

import ast
import re
from pathlib import Path

import pytest

from django_delayq.store import store
from django_delayq.store.client.script import PRELUDE_PARTS, Script, used_prelude
from django_delayq.store.keys import CATALOGUE

STORE = Path(store.__file__).parent
PRELUDE = [STORE / "lua" / f"{name}.lua" for name in PRELUDE_PARTS]
FILES = sorted(set(STORE.glob("lua/*.lua")) - {*PRELUDE})
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
#: Nouns that are one key per queue: a script can only have them by name from its caller.
PER_QUEUE = {"scheduled", "ready", "recovered"}


def header(path: Path) -> str:
    """Return the comment a script begins with."""
    lines = path.read_text().splitlines()
    return "\n".join(lines[: next(n for n, line in enumerate(lines) if not line.startswith("--"))])


def code(path: Path) -> list[str]:
    """Return a script's lines without comments and blank ones."""
    bare = (re.sub(r"--.*", "", line).rstrip() for line in path.read_text().splitlines())
    return [line for line in bare if line]


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
    reads |= {"HGETALL", "HKEYS", "HSTRLEN", "INFO", "LINDEX", "ZUNION"}
    for name in ("find", "find_holders", "find_tenants", "page", "snapshot", "due_histogram"):
        assert commands(STORE / "lua" / f"{name}.lua") <= reads


def test_there_is_no_other_include() -> None:
    assert all("require" not in path.read_text() and "dofile" not in path.read_text() for path in FILES)


SMALL_PRELUDE = """
local CONSTANT = 1
-- outer(key)
local function used(key)
  return inner(redis.pcall('LLEN', key))
end
local function inner(key)
  if key then redis.call('DEL', key) end
end
local function unused(key) -- inner(key)
  return redis.call('FLUSHALL')
end
"""


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("return 1", set()),
        ("return redis.call('GET', KEYS[1]) -- used()", set()),
        ("for _ = 1, 2 do used(KEYS[1]) end", {"used", "inner"}),
        ("local later = inner\nreturn later(KEYS[1])", {"inner"}),
    ],
)
def test_a_script_gets_the_functions_it_uses_and_no_others(source: str, names: set[str]) -> None:
    prelude = used_prelude(source, SMALL_PRELUDE)
    assert set(re.findall(r"local function (\w+)", prelude)) == names
    assert "CONSTANT" in prelude
    assert prelude.count("\n") == SMALL_PRELUDE.count("\n"), "the line numbers of errors would be wrong"


def test_each_function_of_the_prelude_is_shared() -> None:
    # A part of one script, in a file of its own.
    texts = "".join(path.read_text() for path in PRELUDE if path.stem != "_choice")
    for name in re.findall(r"^local function (\w+)", texts, re.MULTILINE):
        assert sum(f"local function {name}(" in Script(path.stem).text for path in FILES) > 1, name


def test_errors_are_reported_with_the_line_of_their_file() -> None:
    script = Script("cancel")
    lines = script.text.splitlines()
    own = (STORE / "lua" / "cancel.lua").read_text().splitlines()
    assert script.source_line(f"user_script:{len(lines)}: error") == f"cancel.lua:{len(own)}"
    texts = {"_prelude": "local function now_us(given)", "_places": "local function expire(key, ttl)"}
    for name, text in texts.items():
        line = (STORE / "lua" / f"{name}.lua").read_text().splitlines().index(text) + 1
        assert script.source_line(f"@user_script: {lines.index(text) + 1}: error") == f"{name}.lua:{line}"
    assert script.source_line("no line") == "cancel.lua"


def test_every_loaded_script_is_there_and_every_file_is_loaded() -> None:
    loaded = {name for path in STORE.rglob("*.py") for name in re.findall(r'Script\("(\w+)"\)', path.read_text())}
    assert loaded == {path.stem for path in FILES}
