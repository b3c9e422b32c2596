"""Requests a second of idle processes, with jobs an hour ahead: python -m benchmarks.idle [seconds] [jobs]

Counted as MONITOR shows them, without the lines marked `lua`: INFO also counts what runs inside scripts.
"""

import sys
import threading
import time

from benchmarks.site import site


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    with site() as place:
        from benchmarks import tasks

        tasks.noop.after(hours=1).enqueue_many([(number,) for number in range(jobs)])
        place.run("run_dispatcher")
        place.run("run_worker")
        time.sleep(3)
        lines: dict[str, int] = {}
        with place.client.monitor() as monitor:
            threading.Timer(seconds, place.client.echo, ["end of the count"]).start()
            for entry in monitor.listen():
                if "end of the count" in entry["command"]:
                    break
                if entry["client_type"] != "lua":
                    word = entry["command"].split()[0]
                    lines[word] = lines.get(word, 0) + 1
        total = sum(lines.values())
        print(f"{jobs} jobs waiting, {seconds:g} s: {total} requests of two processes: {lines}")
        print(f"per process and second: {total / seconds / 2:.3f}")


if __name__ == "__main__":
    main()
