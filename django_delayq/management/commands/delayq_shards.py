"""manage.py delayq_shards: the shards and their servers, and another number of shards while everything runs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.management.operating import FAILED, WRONG_OPTIONS, OperatingCommand, missing_facts, missing_line
from django_delayq.management.resharding import Resharding
from django_delayq.metrics import ALL_JOBS
from django_delayq.store.nodes.errors import with_store_errors
from django_delayq.store.slots import slot_of_shard
from django_delayq.store.store import Store

_COLUMNS = (
    *("shard", "slot", "node", "scheduled", "ready", "running", "failed", "done in the last hour", "bytes"),
    "left of an older number",
)
_MIB = 1 << 20


class Command(OperatingCommand):
    """Show the shards, or change their number."""

    help = "Shows the shards and their servers, or changes the number of shards while everything runs."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        super().add_arguments(parser)
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("--grow", type=int, metavar="N", help="Spread new jobs over N shards, more than before.")
        chosen.add_argument(
            "--shrink", type=int, metavar="N", help="Drain and drop the shards from N on; run it again."
        )
        text = "Count what is left of an older number of shards, move recurring schedules, and forget that number."
        chosen.add_argument("--finish", action="store_true", help=text)
        text = "Show the slot of each of N shards, and which slots a cluster should move. Default: as many as now."
        chosen.add_argument("--plan", type=int, nargs="?", const=0, metavar="N", help=text)
        text = "Grow although running processes do not serve the new shards yet."
        parser.add_argument("--force", action="store_true", help=text)
        text = "Seconds to wait for processes, and for schedules whose jobs run. Default: 60."
        parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS", help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Show or change the shards."""
        store = self.open(options)
        wanted = options["grow"] if options["grow"] is not None else options["shrink"]
        for number in (wanted, options["plan"] or None):
            if number is not None and not 1 <= number <= 1_000:
                raise CommandError(f"the number of shards must be 1 to 1,000, got {number}", returncode=WRONG_OPTIONS)
        if options["plan"] is not None:
            return self._plan(store, options["plan"], options)
        if wanted is None and not options["finish"]:
            return self._show(store, options)
        return self._change(store, wanted, options)

    def _change(self, store: Store, wanted: int | None, options: dict[str, Any]) -> None:
        steps = list[str]()

        def report(sentence: str) -> None:
            steps.append(sentence)
            if not options["json"]:
                self.stdout.write(sentence)
                self.stdout.flush()

        if not options["dry_run"]:
            # It may store a layout.
            store.check_shards_once()
        resharding = Resharding(store, report)
        before = resharding.read_layout().shards
        resharding.check_number(options["grow"], options["shrink"])
        if options["dry_run"]:
            text = f"change the number of shards from {before} to {wanted}"
            if wanted in (None, before):
                text = "count what is left of an older number of shards"
            self.print_result(options, f"Would {text}.", dry_run=True, shards=before)
            return
        if wanted not in (None, before):
            self.confirm(f"Change the number of shards from {before} to {wanted}?", options)
        if options["grow"] is not None:
            left = resharding.grow(options["grow"], wait=options["wait"], force=options["force"])
        elif options["shrink"] is not None:
            left = resharding.shrink(options["shrink"], wait=options["wait"])
        else:
            left = resharding.finish(wait=options["wait"])
        for line in _left_lines(left):
            report(line)
        if store.config.shards != store.layout.shards:
            report(f"Set SHARDS to {store.layout.shards} with the next deploy.")
        if options["json"]:
            facts = {"layout": store.layout.text, "shards": store.layout.shards, "left": _plain(left), "steps": steps}
            self.stdout.write(json.dumps(facts))
        if options["shrink"] is not None and left:
            # The caller, who wants to take a server away, must see that.
            raise CommandError("The shards are not empty yet: run the command again later.", returncode=FAILED)

    def _show(self, store: Store, options: Mapping[str, Any]) -> None:
        resharding = Resharding(store, self.stdout.write)
        layout = resharding.read_layout()
        owners, _ = _owners(store, layout.served)
        reads = store.reads(partial=True)
        snapshots = reads.read(lambda index: store.dashboard(index).read_snapshot())
        memory = reads.read(lambda index: store.dashboard(index).read_memory(snapshots[index].queues))
        missing = missing_facts(reads)
        left = {} if layout.is_finished or missing else resharding.left()
        shards = []
        for index in memory:
            snapshot = snapshots[index]
            total, hour = snapshot.total, snapshot.hour(ALL_JOBS)
            figures = [total.scheduled, total.ready, snapshot.claimed, snapshot.dead, hour.done, memory[index]]
            shards.append((index, slot_of_shard(index), owners[index], *figures, _kinds(left.get(index, Counter()))))
        servers = [(server.address, info) for server, info in store.check_servers().answering]
        if options["json"]:
            facts = {
                "layout": layout.text,
                "shards": [dict(zip(_COLUMNS[:-1], each[:-1], strict=True)) for each in shards],
                "left": _plain(left),
                "missing": missing,
                "nodes": [
                    {
                        "node": label,
                        "memory": info.used_memory,
                        "commands_per_second": info.commands_per_second,
                        "connections": info.connections,
                    }
                    for label, info in servers
                ],
            }
            self.stdout.write(json.dumps(facts))
        else:
            self._table([_COLUMNS, *shards] if left else [row[:-1] for row in (_COLUMNS, *shards)])
            columns = ("node", "memory", "commands/s", "connections")
            rows = [
                (label, f"{info.used_memory / _MIB:,.0f} MiB", info.commands_per_second, info.connections)
                for label, info in servers
            ]
            self.stdout.write("")
            self._table([columns, *rows])
            self.stdout.write("")
            for line in () if missing else _layout_lines(store, left):
                self.stdout.write(line)
        if missing:
            raise CommandError("\n".join(map(missing_line, missing)), returncode=FAILED)

    def _plan(self, store: Store, shards: int, options: Mapping[str, Any]) -> None:
        store.layouts.read_any()
        count = shards or store.layout.served
        owners, nodes = _owners(store, count)
        moves = list(even_moves(owners, nodes))
        if options["json"]:
            facts = [{"shard": each, "slot": slot_of_shard(each), "node": owners[each]} for each in owners]
            plan = [{"shard": each, "slot": slot_of_shard(each), "from": a, "to": b} for each, a, b in moves]
            self.stdout.write(json.dumps({"shards": facts, "moves": plan}))
            return
        self._table([("shard", "slot", "node"), *((each, slot_of_shard(each), owners[each]) for each in owners)])
        self.stdout.write("")
        for shard, source, target in moves:
            slot = slot_of_shard(shard)
            self.stdout.write(f"Move slot {slot} (shard {shard}) from {source} to {target}.")
        if moves:
            self.stdout.write(
                "Valkey 9: CLUSTER MIGRATESLOTS SLOTSRANGE <slot> <slot> NODE <id of the other node>, on the node that "
                "has the slot. Redis 8.4: CLUSTER MIGRATION IMPORT <slot> <slot>, on the other node. Before: "
                "CLUSTER SETSLOT and MIGRATE, for which the shard stands still."
            )
        else:
            self.stdout.write("The shards are even on the nodes: no slot is to be moved.")

    def _table(self, rows: Sequence[Sequence[Any]]) -> None:
        widths = [max(len(_cell(row[at])) for row in rows) for at in range(len(rows[0]))]
        for row in rows:
            cells = (_cell(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
            self.stdout.write("  ".join(cells).rstrip())


def _owners(store: Store, count: int) -> tuple[dict[int, str], list[str]]:
    """Return the server of each of so many shards, and all servers that may have some."""

    def read() -> tuple[dict[int, str], list[str]]:
        owners = {index: topology.node(slot_of_shard(index)).connections.label for index in range(count)}
        return owners, [node.connections.label for node in topology.nodes()]

    topology = store.topology
    return with_store_errors(read, place=lambda: store.config.redis.display_url, user=topology.connections.user)


def even_moves(owners: Mapping[int, str], nodes: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the shards to move, from where and to where, so that no node has two more than another."""
    of_node = {node: [shard for shard, owner in owners.items() if owner == node] for node in nodes}
    while len(of_node) > 1:
        most, least = (
            max(of_node, key=lambda node: len(of_node[node])),
            min(of_node, key=lambda node: len(of_node[node])),
        )
        if len(of_node[most]) - len(of_node[least]) <= 1:
            return
        shard = of_node[most].pop()
        of_node[least].append(shard)
        yield shard, most, least


def _layout_lines(store: Store, left: Mapping[int, Counter[str]]) -> Iterator[str]:
    layout = store.layout
    yield f"Layout {layout.number}: new jobs are spread over {layout.shards} shards."
    if not layout.is_finished:
        older = ", ".join(map(str, layout.older))
        yield f"Before there were {older}. " + (
            "Of that this is left:" if left else "Nothing is left of that: run delayq_shards --finish."
        )
        yield from _left_lines(left)
    if layout.coming:
        yield (
            f"{layout.coming} shards are announced: run delayq_shards --grow {layout.coming} again, or --shrink "
            f"{layout.shards} to take that back."
        )
    if layout.moves_schedules:
        yield "Recurring schedules are being moved, and nothing is declared: run delayq_shards --finish."
    if store.config.shards != layout.shards:
        yield f"SHARDS is {store.config.shards}: set it to {layout.shards} with the next deploy."


def _left_lines(left: Mapping[int, Counter[str]]) -> Iterator[str]:
    for shard, found in left.items():
        yield f"Shard {shard}: {_kinds(found)}."
    if left:
        yield "What belongs together stays there until it is done. delayq_shards shows what is left."


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _kinds(found: Counter[str]) -> str:
    return ", ".join(f"{number:,} × {kind}" for kind, number in sorted(found.items()))


def _plain(left: Mapping[int, Counter[str]]) -> dict[int, dict[str, int]]:
    return {shard: dict(found) for shard, found in left.items()}
