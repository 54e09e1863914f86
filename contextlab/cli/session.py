"""What the probing commands have in common: a target, a folder for the record, live progress, a report at the end.

No judging and no formatting of its own: the lab runs, the writers write.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

from contextlab import registry
from contextlab.cli.output import in_words, printing, show_error, write_failure
from contextlab.lab.journal import RECORD, read_run
from contextlab.lab.run import Lab, Options
from contextlab.model import Outcome, Policy, Record, Run, Scenario, TargetSpec, UsageError
from contextlab.targets import http

LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})
CONFIG_KEYS = ("allow", "fail_on")
OTHERS_KEYS = ("gate",)
"""Tables of the project's configuration that other commands read."""
SMALLEST_MEMORY_BYTES = 16 << 20
"""No server, not even one of ours, starts in less."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
L = TypeVar("L")


class Session:
    """One command from its arguments to its exit code (`code`).

    As a context manager it tells an error in words, and as the JSON document that `--json` promises, also on failure.
    """

    def __init__(self, *, command: str, target: str, json: bool, quiet: bool, runs: Path, output: Path | None) -> None:
        self.command = command
        self.target = http.shown(target) if "://" in target else target
        self.code = 0
        self._given = target
        self._folder: Path | None = None
        self._json = json
        self._quiet = quiet or json
        self._runs = runs
        self._output = output

    @property
    def runs(self) -> Path:
        """The folder that holds the runs."""
        return self._runs

    def retarget(self, target: str | None) -> None:
        """Take the target that a plan names, where the command line names none. Raises UsageError without one."""
        if not target:
            plan = ', or put target = "…" into the plan' if self.command == "chaos" else ""
            raise UsageError("no target is named", f"name one, such as smollm2{plan}")
        self.target = http.shown(target) if "://" in target else target
        self._given = target

    def parse(self, assignments: Sequence[str], *, at: str | None, i_own_this: bool) -> TargetSpec:
        """The target, with its settings checked; one that is not on this machine needs the user's word."""
        spec = registry.parse_target(self._given, assignments, at=at)
        self.check(spec, i_own_this=i_own_this)
        return spec

    def check(self, spec: TargetSpec, *, i_own_this: bool) -> None:
        """Refuse, while there is nothing to undo, what cannot be started or opened as it stands.

        A target on another machine is refused too, unless the user says that it is theirs.
        """
        module = registry.targets().get(spec.scheme)
        if module is None:
            message = f"target={self.target!r}: {spec.scheme}: targets are not known here"
            raise UsageError(message, "install the package that brings them")
        if hasattr(module, "check"):
            module.check(spec)
        registry.server_command(spec)
        away = [host for host in hosts(spec) if not is_local(host)]
        if away and not i_own_this:
            raise UsageError(
                f"target={self.target!r}: {away[0]} is not this machine, and these probes can bring a server down",
                "add --i-own-this if it is yours to test",
            )

    def choose(self, names: Sequence[str]) -> list[Scenario]:
        """The scenarios asked for."""
        return registry.choose_scenarios("overflow", names)

    def work(self, spec: TargetSpec, options: Options, run: Callable[[Lab], int]) -> Run:
        """Run something in a lab, report it, and return its record; sets `code`."""
        return self.work_in(lambda folder, listener: Lab(spec, folder, options, listener), run)

    def work_in(
        self,
        make: Callable[[Path, Callable[[Record], None]], L],
        run: Callable[[L], int],
        folder: Path | None = None,
    ) -> Run:
        """The same in a lab of another kind, which `make` opens on the run's folder and the live display.

        `folder`: that of a run which goes on; else a new one.
        """
        from contextlab.reports.live import Live

        folder = folder or self._output or new_folder(self._runs, self.command, self.target)
        with Live(sys.stderr, quiet=self._quiet) as live:
            lab = make(folder, live)
            self._folder = folder
            self.code = run(lab)
        write = registry.choose_writer("json" if self._json else "terminal")
        record = read_run(folder / RECORD)
        with printing() as out:
            write(record, out)
        return record

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        told = in_words(error)
        self.code = told.exit_code
        show_error(told)
        if self._json:
            write_failure(self.command, self.target, told, self._folder)
        return True


def new_folder(runs: Path, command: str, target: str) -> Path:
    """A folder that does not exist yet: runs/<time>-<command>-<target>."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", target).strip("-.")[:40] or "target"
    base = runs / f"{datetime.now():%Y%m%d-%H%M%S}-{command}-{name}"
    folder, number = base, 2
    while os.path.exists(folder):  # not Path.exists, which raises where a folder is closed or a name too long
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def recordable_argv() -> tuple[str, ...]:
    """The words of the command line, without user and password in a URL that is a word of its own."""
    return tuple(re.sub(r"^((?:--at=)?https?:/*)\S*@", r"\1", word) for word in sys.argv[1:])


def hosts(spec: TargetSpec) -> list[str]:
    """The hosts that a target's URLs name."""
    address = http.url_of(spec) if spec.scheme in (http.SCHEME, *http.ALSO) else spec.address
    return [host for url in (address, spec.url or "") if "://" in url and (host := urlsplit(url).hostname)]


def is_local(host: str) -> bool:
    """Whether a host name or address is this machine's own loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOCAL_NAMES


def memory_limit_bytes(text: str | None) -> int | None:
    """What `--memory-limit` says; None where it says nothing. Raises UsageError."""
    return parse_bytes(text, "--memory-limit", SMALLEST_MEMORY_BYTES) if text else None


def parse_bytes(text: str, name: str = "size", low: int = 1) -> int:
    """A size such as 512MiB, 2G or 1000000, at least `low`. Raises UsageError with its `name` and the rule."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*(k|m|g|ki|mi|gi)?b?", text.strip().lower())
    num_bytes = int(float(found[1]) * UNITS[found[2] or ""]) if found else 0
    if num_bytes < low:
        rule = "a number with an optional unit" + (f", and at least {low >> 20}MiB" if low >= 1 << 20 else " above 0")
        raise UsageError(f"{name}={text!r}: must be {rule}", "for example 512MiB or 2GiB")
    return num_bytes


def policy(allow: Sequence[str], fail_on: Sequence[str], config: Path = Path("pyproject.toml")) -> Policy:
    """The policy: [tool.contextlab] of the project in this folder, then the flags, which win.

    Raises UsageError for an unknown key or outcome, and where one outcome is both allowed and a failure.
    """
    stored = _config(config)
    named = {key: _outcomes(f"{config}: [tool.contextlab] {key}", stored.get(key, [])) for key in CONFIG_KEYS}
    flagged = {"allow": _outcomes("--allow", allow), "fail_on": _outcomes("--fail-on", fail_on)}
    for where, chosen, keys in ((f"{config}: ", named, CONFIG_KEYS), ("", flagged, ("--allow", "--fail-on"))):
        if both := chosen["allow"] & chosen["fail_on"]:
            raise UsageError(f"{where}{min(both)} is both allowed and a failure", f"name it once: {' or '.join(keys)}")
    return Policy(
        allow=(named["allow"] - flagged["fail_on"]) | flagged["allow"],
        fail_on=(named["fail_on"] - flagged["allow"]) | flagged["fail_on"],
    )


def _config(path: Path) -> dict[str, object]:
    if not os.path.isfile(path):
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", "mend the file, or run in another folder") from None
    for name in ("tool", "contextlab"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name}={table!r}: must be a table", "for example [tool.contextlab]")
    for key in table:
        if key not in (*CONFIG_KEYS, *OTHERS_KEYS):
            close = get_close_matches(key, CONFIG_KEYS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(
                f"{path}: [tool.contextlab] has no key {key!r}", f"{hint}the keys are {', '.join(CONFIG_KEYS)}"
            )
    return dict(table)


def _outcomes(where: str, names: object) -> frozenset[Outcome]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"{where}={names!r}: must be a list of outcomes", f"outcomes: {', '.join(Outcome.__members__)}"
        )
    for name in names:
        if name.upper() not in Outcome.__members__:
            close = get_close_matches(name.upper(), Outcome.__members__, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(
                f"{where}={name!r}: there is no such outcome", f"{hint}outcomes: {', '.join(Outcome.__members__)}"
            )
    return frozenset(Outcome[name.upper()] for name in names)
