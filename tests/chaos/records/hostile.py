"""Hostile payloads: records that an attacker with access to Redis might write, drawn from a seed, and a canary.

Half of the payloads are constructed by kind. Half are valid bodies with flipped bits, or with parts cut, doubled or
swapped. The canary is code that no payload may reach.
"""

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from redis import Redis

from django_delayq.store.keys import Keys, encode_queue

#: An importable module with a function that is no task. Both write to the ledger if they are reached.
CANARY = "canary_payload"
RECORD = "tests.sample_app.tasks.record"
QUEUES = ("default", "mail", "zoo")
LARGE = 4
#: Names that refer to code somewhere.
NAMES = (
    *("os.system", "subprocess.Popen", "builtins.eval", "builtins.exec", "posix.system", "pty.spawn", "__class__"),
    *(
        CANARY,
        f"{CANARY}.fire",
        f"{CANARY}:fire",
        "django_delayq.task.task.Task",
        "django_delayq.task.registry.autodiscover",
    ),
    *(
        "tests.sample_app.tasks.note",
        "tests.sample_app.tasks.record.func",
        "tests.sample_app.tasks",
        "antigravity",
        "",
        ".",
        "..",
        "\0",
    ),
    *(
        "tests.sample_app.tasks.record\0",
        " tests.sample_app.tasks.record",
        "tests.sample_app.tasks.RECORD",
        "\ud800",
        "\x1b[2J\r\nFORGED ok",
    ),
    *("x" * 65_000, "../../etc/passwd", "{0.__class__}", "%s%s%s%n", "lambda: 0", "tests.sample_app.tasks.crash.func"),
)
#: Texts that are no JSON, or JSON of the wrong shape, or larger than any real payload.
TEXTS: tuple[bytes, ...] = (
    *(b"", b"[", b"]", b"{}", b"null", b"NaN", b"[[NaN]]", b"[[1e400,-1e400]]", b"[[Infinity]]", b'"x"', b"[[1],[2]]"),
    *(b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"[[" + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"]]"),
    *(b"[[" + b"9" * 5_000 + b"]]", b"[[-" + b"9" * 4_300 + b"]]", b'[[1,1],{"a":1,"a":2}]', b"[[],{},{},{}]"),
    *(b"\xff\xfe[\0]\0", b"\xef\xbb\xbf[[1]]", b"[[\xff]]", b'[["\xed\xa0\x80"]]', b'[["\\ud800\\udc00\\ud800"]]'),
    *(b'[[],{"self":1,"func":2,"claim":3}]', b'[[],{"":1}]', b'[[],{"1 2":3,"\\u0000":4}]', b'[["\\u001b[2J\\r\\nX"]]'),
    *(b"[[]] []", b"[[],[],[]]", b'[{"__class__":"os.system"}]', b"!!python/object/apply:os.system ['x']", b"\0" * 300),
    b'[[{"py/reduce":[{"py/type":"canary_payload.Fire"},{"py/tuple":[]}]}]]',
    b'[["' + b"x" * 262_000 + b'"]]',
)
NUMBERS = (
    *("-1", "0", "1", "2.5", "1e3", "1e400", "NaN", "null", "true", '"5"', "[]", "{}", "[5]", '"\\u0000"', str(2**63)),
    *(
        str(-(2**63)),
        str(2**80),
        "1" + "0" * 300,
        "1" + "0" * 400,
        "9" * 4_299,
        "-" + "9" * 4_299,
        "9" * 5_000,
        "1e-400",
    ),
)


class Fire:
    """An object whose pickle imports the canary when it is loaded."""

    def __reduce__(self) -> Any:
        return (__import__, (CANARY,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One entry, and the records that belong to it."""

    number: int
    kind: str
    #: The noun of its place, and its score there.
    place: str
    member: bytes
    score: float
    queue: str = "default"
    body: bytes | None = None
    attempts: bytes | None = None
    extra: bytes | None = None
    running: bytes | None = None
    dead_body: bytes | None = None

    @property
    def raw_id(self) -> bytes:
        """The id that the engine derives from the member."""
        return self.member[:12]

    def write(self, client: Any, keys: Keys) -> None:
        """Write the payload to Redis with plain commands."""
        queued = {"ready": keys.ready, "scheduled": keys.scheduled}
        client.zadd(keys("queues"), {encode_queue(self.queue): 1})
        if self.place == "scheduled":
            client.zadd(keys("next_due"), {encode_queue(self.queue): self.score})
        key = queued[self.place](self.queue) if self.place in queued else keys(self.place)
        client.zadd(key, {self.member: self.score})
        records = {
            "jobs": self.body,
            "attempts": self.attempts,
            "job_extras": self.extra,
            "claim_records": self.running,
        }
        for noun, record in {**records, "dead_bodies": self.dead_body}.items():
            if record is not None:
                client.hset(keys(noun), self.raw_id, record)  # type: ignore[arg-type]


def body(task: str | bytes = RECORD, text: bytes = b"[[1]]", *, queue: str = "default", flags: int = 0) -> bytes:
    """Return a body in the codec's format, with any contents."""
    name = task if isinstance(task, bytes) else task.encode("utf-8", "surrogatepass")
    place = queue.encode("utf-8", "surrogatepass")
    return bytes((1, 100, flags, len(place))) + place + len(name).to_bytes(2) + name + text


def payloads(seed: int, count: int) -> Iterator[Payload]:
    """Yield that many payloads. The same seed yields the same payloads. One of 250 is put back, whatever the seed."""
    rng = Random(seed)
    for number in range(count):
        kind = rng.choice(KINDS) if number % 2 else _mutated if number % 250 else _returned
        made: dict[str, Any] = {"body": None, "flags": 0, "place": "ready", "score": float(number), **kind(rng)}
        queue = made.pop("queue", rng.choice(QUEUES))
        flags, tail = made.pop("flags"), made.pop("tail", None)
        if made["body"] and len(made["body"]) > 32_000:
            flags |= LARGE
        member = b"\xfe" + number.to_bytes(11) + (bytes((100, flags)) if tail is None else tail)
        # A scheduled payload with a large score would correctly wait there for centuries.
        if made["place"] == "ready" and made["score"] < 2**53 and rng.random() < 0.3:
            made["place"] = "scheduled"
        yield Payload(number=number, kind=kind.__name__.strip("_"), queue=queue, member=member, **made)


def _name(rng: Random) -> dict[str, Any]:
    return {"body": body(rng.choice(NAMES))}


def _text(rng: Random) -> dict[str, Any]:
    # Large texts are rare, because each of them takes a claim of its own.
    text = rng.choice(TEXTS)
    return {"body": body(text=text if len(text) < 10_000 or rng.random() < 0.3 else rng.choice(TEXTS[:12]))}


def _pickled(rng: Random) -> dict[str, Any]:
    text = pickle.dumps(Fire(), protocol=rng.randrange(6))
    return {"body": rng.choice([text, body(text=text), body(text)])}


def _head(rng: Random) -> dict[str, Any]:
    whole = body()
    choices = [
        whole[: rng.randrange(len(whole))],
        whole[:4] + b"\xff" * 2 + whole[6:],
        whole[:3] + b"\xff" + whole[4:],
        bytes((rng.randrange(256), rng.randrange(256), rng.randrange(256), rng.randrange(256))) + whole[4:],
        bytes((rng.randrange(2, 256),)) + whole[1:],
        whole.replace(b"default", b"\xff\xfe\0\r\n\x1b["),
        rng.randbytes(rng.randrange(400)),
    ]
    return {"body": rng.choice(choices)}


def _option(rng: Random) -> dict[str, Any]:
    one = lambda: rng.choice(NUMBERS)  # noqa: E731
    options = rng.choice(
        [
            f'{{"r":[{one()},{one()},{one()},{one()}]}}',
            f'{{"r":{one()}}}',
            f'{{"t":{one()}}}',
            f'{{"h":{one()}}}',
            f'{{"t":{one()},"h":{one()}}}',
            f'{{"k":{one()}}}',
            f'{{"r":[3,{one()},{one()},1],"t":{one()},"h":{one()},"k":"k","x":1}}',
            one(),
        ]
    )
    return {"body": body(text=f"[[1],{{}},{options}]".encode())}


def _deep(rng: Random) -> dict[str, Any]:
    # Depths around the interpreter's recursion limit: one reader may accept a depth that the next one refuses.
    depth = rng.choice([60, 200, 330, 500, rng.randrange(880, 1_000)])
    nested = b"[" * depth + b"]" * depth
    if rng.random() < 0.5:
        return {"body": body(text=b"[[" + nested + b"]]")}
    where = rng.choice([b'"error"', b'"worker"', b'"x"'])
    return {"body": body("unknown"), "attempts": b"\0\1\0[{" + where + b":" + nested + b"}]"}


def _attempts(rng: Random) -> dict[str, Any]:
    head = rng.choice([b"", b"\0", b"\0\1", b"\0\1\0", b"\xff\xff\0", b"\0\4\0", b"\0\0\xfe", b"\x7f\xff\0"])
    history = rng.choice([*TEXTS[:30], b'[{"error":5}]', b'[{"error":null,"ending":[]}]', b"[1,2,3]", b"[{}]" * 3])
    if history and len(history) > 10_000:
        history = history[:10_000]
    return {"body": body(rng.choice([RECORD, "unknown"])), "attempts": head + history}


def _suspect(rng: Random) -> dict[str, Any]:
    # Each of these takes its own process, which costs half a second.
    if rng.random() < 0.9:
        return _attempts(rng)
    return {**_deep(rng), "attempts": b"\0\1\1[]"}


def _extra(rng: Random) -> dict[str, Any]:
    extra = rng.choice([None, b"", b"\1", b"\1" + b"k" * 16, rng.randbytes(40), b"\xff" * 5_000])
    return {"body": body(flags=1), "flags": rng.randrange(256) & ~LARGE | 1, "extra": extra}


def _member(rng: Random) -> dict[str, Any]:
    tail = rng.choice([b"", b"\0", b"\xff\xff", b"\0\0", b"\xff" * 3, b"x" * 500])
    return {"body": rng.choice([None, body()]), "tail": tail, "score": rng.choice(SCORES)}


def _score(rng: Random) -> dict[str, Any]:
    return {"body": body(), "score": rng.choice(SCORES)}


def _queue(rng: Random) -> dict[str, Any]:
    names = ["\0", "\r\nFORGED\x1b[31m", "a" * 255, "{0}", "*", "\ud800", "%00", "../..", "{1}:jobs", " "]
    inside, outside = rng.choice(names), rng.choice([*names, "default"])
    # The client cannot encode a lone surrogate.
    return {"body": body(queue=inside[:80]), "queue": outside.replace("\ud800", "?")}


def _lease(rng: Random) -> dict[str, Any]:
    # These leases expired long ago and belong to an unknown worker.
    tail = rng.choice([b"\x64\0" + b"w" * 16, b"", b"\0", b"w" * 15, b"w" * 900])
    started = rng.choice([None, b"", b"w", b"w" * 16 + b"\xff" * 17, b"w" * 33, rng.randbytes(60)])
    inside = rng.choice([_head, _text, _name, _option, _attempts, _deep])(rng)
    return {**inside, "place": "leases", "tail": tail, "score": rng.choice([0, 1, -5.5]), "running": started}


def _returned(_: Random) -> dict[str, Any]:
    # Its lease is shorter than the member of a job: the job is put back, and nobody can claim it.
    return {"body": body(), "place": "leases", "tail": b"\0", "score": 0}


def _dead(rng: Random) -> dict[str, Any]:
    stored = rng.choice(
        [None, b"", b"\0" * 8, b"\xff" * 8, rng.randbytes(100), bytes(8) + b"m" * 14 + body(), b"\xff" * 22 + body()]
    )
    return {"place": "dead_letters", "tail": b"", "score": rng.choice([4e15, 4.1e15, 1.5]), "dead_body": stored}


def _mutated(rng: Random) -> dict[str, Any]:
    sound = bytearray(
        body(text=b'[["a",1,{"b":[true,null]}],{"c":2.5},{"r":[3,2000000,60000000,1],"t":9000000,"k":"k"}]')
    )
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at, end = sorted((rng.randrange(len(sound) + 1), rng.randrange(len(sound) + 1)))
        how = rng.randrange(5)
        if how < 2 and at < len(sound):
            sound[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            del sound[at : min(end, at + 9)]
        elif how == 3:
            sound[at:at] = sound[at:end]
        else:
            sound[at:at] = rng.randbytes(rng.randrange(5))
    return {"body": bytes(sound)}


SCORES: tuple[float, ...] = (float("-inf"), -1e308, -1, 0, 0.5, 2.0**53, 1e15)
KINDS: tuple[Callable[[Random], dict[str, Any]], ...] = (
    _name,
    _text,
    _pickled,
    _head,
    _option,
    _deep,
    _attempts,
    _suspect,
    _extra,
    _member,
    _score,
    _queue,
    _lease,
    _dead,
)


def corrupt_shared_records(client: Redis, keys: Keys, rng: Random) -> None:
    """Write garbage into the records that belong to no job."""
    for noun in ("worker_names", "exchanges", "unique_keys"):
        client.hset(keys(noun), rng.randbytes(8), rng.choice([b"", b"x\r\nFORGED\x1b[31m", b"\xff" * 3_000]))  # type: ignore[arg-type]
    client.zadd(keys("workers"), {rng.randbytes(rng.randrange(1, 20)): rng.choice([0, 1e308, -1])})
    for noun in ("queues", "next_due"):
        client.zadd(keys(noun), {rng.randbytes(20): 1, b"\xff\r\n": 1, b"q" * 5_000: 1, b"": 1})
    client.set(keys("next_promotion"), rng.choice([b"", b"nan", b"soon", b"-1", b"0x10", b"1e15", b"\0"]))


def write_canary(folder: Path) -> str:
    """Write the canary and a module with an audit hook, and return the name of that module.

    The hook records events once a file named `enabled` exists.
    """
    (folder / f"{CANARY}.py").write_text(
        "from tests.sample_app.tasks import note\nnote('canary', what='imported')\n\n"
        "def fire(*args, **kwargs):\n    note('canary', what='called')\n"
    )
    (folder / "canary_hook.py").write_text(_AUDIT_HOOK.format(names=json.dumps([CANARY, "antigravity", "pty"])))
    return "canary_hook"


#: Audit hooks detect what no result shows: an import, a shell, text that runs as code, a class that is unpickled.
_AUDIT_HOOK = """
import os, sys, threading, time
from tests.sample_app.tasks import note

NAMES = {names}
STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "subprocess.Popen", "webbrowser.open")
PICKLED = ("django_delayq.", "multiprocessing.", "builtins", "datetime", "_codecs", "copyreg", "collections")
enabled, inside = False, threading.local()

def enable():
    global enabled
    while not os.path.exists("enabled"):
        time.sleep(0.01)
    enabled = True
    note("enabled")

def hook(event, args):
    if not enabled or getattr(inside, "busy", False):
        return
    bad = event in STARTS
    bad = bad or event == "import" and args[0].split(".")[0] in NAMES
    code = getattr(args[0], "co_filename", "") if event == "exec" else ""
    bad = bad or code in ("<string>", "<stdin>") or code.endswith(tuple("/" + name + ".py" for name in NAMES))
    bad = bad or event == "pickle.find_class" and not args[0].startswith(PICKLED)
    if bad:
        inside.busy = True
        note("foreign", event=event, about=repr(args)[:300])
        inside.busy = False

os.chdir(os.path.dirname(__file__))
sys.addaudithook(hook)
threading.Thread(target=enable, daemon=True).start()
"""
