"""Makes `docs/overflow-smollm2.svg`, the terminal that the README shows, from a real run: `make capture`.

    contextlab overflow smollm2 ─▶ a pseudo-terminal, 100 columns wide ─▶ ANSI text ─▶ rich ─▶ SVG

Only the report (standard output) is drawn; the progress of the run goes to standard error. The drawing
fetches nothing: it names fonts that a reader has.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ARGV = ("contextlab", "overflow", "smollm2")
SVG = Path(__file__).with_name("overflow-smollm2.svg")
COLUMNS, ROWS = 100, 50
MARGIN = 2
"""Columns of the drawing that stay blank on the right."""
HELD, FAILED = 0, 1
FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"


def report(folder: Path) -> str:
    """What the command writes to a terminal of `COLUMNS` columns, run in `folder`, where it leaves its record."""
    program = Path(sys.executable).with_name(ARGV[0])
    unwanted = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    ours, its = os.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = subprocess.Popen([program, *ARGV[1:]], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=its)
        os.close(its)
        written = b"".join(iter(lambda: chunk(terminal), b""))
    if process.wait() not in (HELD, FAILED):
        sys.exit(f"{' '.join(ARGV)} ended with exit code {process.returncode}: nothing to show")
    return written.decode().replace("\r\n", "\n")


def chunk(terminal: io.FileIO) -> bytes:
    """The next bytes of a terminal, none when its last writer has gone (which Linux reports as an error)."""
    try:
        return terminal.read(1 << 16) or b""
    except OSError:
        return b""


def drawing(ansi: str) -> str:
    """The text as an SVG that needs nothing but itself."""
    console = Console(
        record=True, width=COLUMNS + MARGIN, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text.from_ansi(ansi.rstrip("\n")), soft_wrap=True, highlight=False)
    svg = console.export_svg(title=" ".join(ARGV), unique_id=SVG.stem)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", FONTS).replace("font-family: arial;", "font-family: sans-serif;")


def main() -> None:
    """Run, draw, and write the file; refuse to publish a path of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        text = report(Path(folder))
        private = {folder, sys.prefix, str(Path.home()), str(SVG.parent.parent)} - {"/"}
    if found := [path for path in private if path in text]:
        sys.exit(f"the report names paths of this machine: {', '.join(found)}")
    SVG.write_text(drawing(text), encoding="utf-8")
    sys.stderr.write(f"wrote {SVG}\n")


if __name__ == "__main__":
    main()
