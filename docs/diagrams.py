"""Diagrams: draws the SVG files of `internals/how-it-works.md`: `python docs/diagrams.py`.

Every text stands in a filled box, and lines have a middle grey, so that the pictures are readable on light and on dark
pages.
"""

from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
FONT = "font-family='system-ui, sans-serif'"
LINE = "#8892a0"
#: Kind of a box -> its fill, and the colour of its text.
FILLS = {
    "place": ("#2f6f8f", "#ffffff"),
    "end": ("#5b6472", "#ffffff"),
    "process": ("#8a5a00", "#ffffff"),
    "label": ("#e6ebf0", "#1c2530"),
}
HEIGHT = 44


class Drawing:
    """One SVG file: boxes and arrows, in the order in which they are added."""

    def __init__(self, width: int, height: int, *, title: str) -> None:
        self.parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' {FONT} font-size='14'>",
            f"<title>{escape(title)}</title>",
            "<defs><marker id='tip' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='8' markerHeight='8' "
            f"orient='auto-start-reverse'><path d='M0 0 L10 5 L0 10 z' fill='{LINE}'/></marker></defs>",
        ]

    def box(self, x: int, y: int, width: int, text: str, kind: str = "place", *, height: int = HEIGHT) -> None:
        """Add a box; each line of the text is centred in it."""
        fill, ink = FILLS[kind]
        lines = text.split("\n")
        self.parts.append(f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' fill='{fill}'/>")
        for number, line in enumerate(lines):
            middle = y + height / 2 + 5 + (number - (len(lines) - 1) / 2) * 18
            weight = " font-weight='600'" if number == 0 and kind != "label" else ""
            self.parts.append(
                f"<text x='{x + width / 2:g}' y='{middle:g}' text-anchor='middle' fill='{ink}'{weight}>"
                f"{escape(line)}</text>"
            )

    def arrow(self, path: str, label: str = "", *, at: tuple[int, int] = (0, 0), both: bool = False) -> None:
        """Add an arrow along an SVG path, and its label with its middle at a point."""
        start = " marker-start='url(#tip)'" if both else ""
        self.parts.append(
            f"<path d='{path}' fill='none' stroke='{LINE}' stroke-width='2'{start} marker-end='url(#tip)'/>"
        )
        if label:
            width = 7.6 * max(map(len, label.split("\n"))) + 14
            height = 6 + 18 * len(label.split("\n"))
            self.box(int(at[0] - width / 2), int(at[1] - height / 2), int(width), label, "label", height=height)

    def text(self) -> str:
        """Return the file."""
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def processes() -> Drawing:
    """Who speaks to Redis, and about what."""
    drawing = Drawing(760, 330, title="Web processes, dispatchers, workers and the admin speak to Redis alone.")
    drawing.box(290, 125, 180, "Redis\nall state", height=80)
    drawing.box(20, 20, 180, "Web process\nyour views", "process", height=60)
    drawing.box(560, 20, 180, "Dispatcher", "process", height=60)
    drawing.box(20, 250, 180, "Admin, commands", "process", height=60)
    drawing.box(560, 250, 180, "Worker\nyour tasks", "process", height=60)
    drawing.arrow("M200 60 L290 140", "enqueue, cancel", at=(245, 100))
    drawing.arrow("M560 60 L470 140", "promote, reclaim", at=(515, 100), both=True)
    drawing.arrow("M200 270 L290 190", "look, change", at=(245, 232), both=True)
    drawing.arrow("M560 270 L470 190", "claim, settle, renew", at=(515, 232), both=True)
    return drawing


def states() -> Drawing:
    """The states of a job, and the transitions between them."""
    title = "A job goes from scheduled to ready to claimed, and ends as done, dead, cancelled or expired."
    drawing = Drawing(860, 400, title=title)
    drawing.box(20, 150, 120, "unsent", "end")
    drawing.box(230, 150, 130, "scheduled")
    drawing.box(460, 150, 130, "ready")
    drawing.box(700, 150, 130, "claimed")
    drawing.box(700, 20, 130, "done", "end")
    drawing.box(460, 20, 130, "parked")
    drawing.box(700, 330, 130, "dead")
    drawing.box(230, 330, 130, "cancelled", "end")
    drawing.box(460, 330, 130, "expired", "end")
    drawing.arrow("M140 172 L230 172", "commit", at=(182, 172))
    drawing.arrow("M80 150 L80 110 Q80 100 90 100 L500 100 Q510 100 510 110 L510 150", "due now", at=(200, 100))
    drawing.arrow("M360 172 L460 172", "promote", at=(409, 172))
    drawing.arrow("M590 172 L700 172", "claim", at=(643, 172))
    drawing.arrow("M550 150 L550 64", "limit", at=(550, 92), both=True)
    drawing.arrow("M765 150 L765 64", "acknowledge", at=(765, 108))
    drawing.arrow("M785 194 L785 330", "dead letter", at=(785, 300))
    drawing.arrow(
        "M740 194 L740 255 Q740 265 730 265 L335 265 Q325 265 325 255 L325 194", "retry, snooze", at=(410, 265)
    )
    drawing.arrow(
        "M715 194 L715 212 Q715 220 705 220 L575 220 Q565 220 565 210 L565 194", "release, reclaim", at=(640, 220)
    )
    drawing.arrow("M260 194 L260 330", "cancel", at=(260, 290))
    drawing.arrow("M500 194 L500 330", "too late", at=(500, 300))
    drawing.arrow(
        "M700 352 L660 352 Q650 352 650 362 L650 382 Q650 392 640 392 "
        "L210 392 Q200 392 200 382 L200 204 Q200 190 228 186",
        "requeue",
        at=(410, 390),
    )
    return drawing


def path() -> Drawing:
    """What happens when, from the call to the end of a job."""
    title = "The web process enqueues, the dispatcher promotes at the due time, the worker claims, runs and settles."
    drawing = Drawing(860, 420, title=title)
    for x, name in ((20, "Web process"), (235, "Redis"), (450, "Dispatcher"), (665, "Worker")):
        drawing.box(x, 10, 175, name, "place" if name == "Redis" else "process")
        drawing.parts.append(
            f"<path d='M{x + 87} 54 L{x + 87} 410' stroke='{LINE}' stroke-width='2' stroke-dasharray='4 5'/>"
        )
    web, redis, dispatcher, worker = 107, 322, 537, 752
    for y, start, end, label in (
        (95, web, redis, "enqueue the job,\ndue at 12:00:00"),
        (150, redis, dispatcher, "next due: 12:00:00"),
        (205, dispatcher, redis, "promote: from\nscheduled to ready"),
        (255, redis, worker, "notification"),
        (300, worker, redis, "claim: a lease until 12:00:30"),
        (350, worker, redis, "heartbeat: renew the lease"),
        (395, worker, redis, "settle, and claim the next job"),
    ):
        drawing.arrow(f"M{start} {y} L{end} {y}", label, at=((start + end) // 2, y))
    return drawing


DIAGRAMS = {"processes.svg": processes, "states.svg": states, "path.svg": path}


if __name__ == "__main__":
    for name, draw in DIAGRAMS.items():
        (IMAGES / name).write_text(draw().text())
