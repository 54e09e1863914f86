"""What the probing commands have in common: a target, a folder for the record, live progress, a report at the end.

No judging and no formatting of its own: the lab runs, the writers write.
"""

from __future__ import annotations

import ipaddress
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from contextlab import registry
from contextlab.lab.journal import RECORD, read_run
from contextlab.lab.run import Lab, Options
from contextlab.model import ContextlabError, Outcome, Policy, Run, Scenario, TargetSpec, UsageError

LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})
CONFIG_KEYS = ("allow", "fail_on")
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


class Session:
    """One command from its arguments to its exit code (`code`).

    As a context manager it turns an error into the JSON document that `--json` promises, also on failure.
    """

    def __init__(self, *, command: str, target: str, json: bool, quiet: bool, runs: Path, output: Path | None) -> None:
        self.command = command
        self.target = target
        self.code = 0
        self._json = json
        self._quiet = quiet or json
        self._runs = runs
        self._output = output

    def parse(self, assignments: Sequence[str], *, at: str | None, i_own_this: bool) -> TargetSpec:
        """The target, with its settings checked; one that is not on this machine needs the user's word."""
        spec = registry.parse_target(self.target, assignments, at=at)
        self.check_local(spec, i_own_this=i_own_this)
        return spec

    def check_local(self, spec: TargetSpec, *, i_own_this: bool) -> None:
        """Refuse a target on another machine, unless the user says that it is theirs."""
        for url in (spec.address, spec.url or ""):
            host = urlsplit(url).hostname if "://" in url else None
            if host is not None and not is_local(host) and not i_own_this:
                raise UsageError(
                    f"target={spec.name!r}: {host} is not this machine, and these probes can bring a server down",
                    "add --i-own-this if it is yours to test",
                )

    def choose(self, names: Sequence[str]) -> list[Scenario]:
        """The scenarios asked for."""
        return registry.choose_scenarios(self.command, names)

    def work(self, spec: TargetSpec, options: Options, run: Callable[[Lab], int]) -> Run:
        """Run something in a lab, report it, and return its record; sets `code`."""
        from contextlab.reports.live import Live

        folder = self._output or new_folder(self._runs, self.command, spec.name)
        with Live(sys.stderr, quiet=self._quiet) as live:
            lab = Lab(spec=spec, folder=folder, options=options, listener=live)
            self.code = run(lab)
        write = registry.choose_writer("json" if self._json else "terminal")
        record = read_run(folder / RECORD)
        write(record, sys.stdout)
        return record

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._json and isinstance(error, ContextlabError):
            from contextlab.reports.json import encoded, failure_document

            sys.stdout.write(encoded(failure_document(self.command, self.target, error), indent=2) + "\n")


def new_folder(runs: Path, command: str, target: str) -> Path:
    """A folder that does not exist yet: runs/<time>-<command>-<target>."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", target).strip("-.")[:40] or "target"
    base = runs / f"{datetime.now():%Y%m%d-%H%M%S}-{command}-{name}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def is_local(host: str) -> bool:
    """Whether a host name or address is this machine's own loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOCAL_NAMES


def parse_bytes(text: str) -> int:
    """A size such as 512MiB, 2G or 1000000. Raises UsageError naming the rule."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m|g|ki|mi|gi)?b?", text.strip().lower())
    if not found or float(found[1]) <= 0:
        raise UsageError(f"size={text!r}: must be a number above 0 with an optional unit", "for example 512MiB or 2GiB")
    return int(float(found[1]) * UNITS[found[2] or ""])


def policy(allow: Sequence[str], fail_on: Sequence[str], config: Path = Path("pyproject.toml")) -> Policy:
    """The policy: [tool.contextlab] of the project in this folder, then the flags, which win.

    Raises UsageError for an unknown key or outcome, and where one outcome is both allowed and a failure.
    """
    stored = _config(config)
    named = {key: _outcomes(f"[tool.contextlab] {key}", stored.get(key, [])) for key in CONFIG_KEYS}
    flagged = {"allow": _outcomes("--allow", allow), "fail_on": _outcomes("--fail-on", fail_on)}
    both = flagged["allow"] & flagged["fail_on"]
    if both:
        raise UsageError(f"{min(both).name} is both allowed and a failure", "name it once: --allow or --fail-on")
    return Policy(
        allow=(named["allow"] - flagged["fail_on"]) | flagged["allow"],
        fail_on=(named["fail_on"] - flagged["allow"]) | flagged["fail_on"],
    )


def _config(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("contextlab", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", "mend the file, or run in another folder") from None
    for key in table:
        if key not in CONFIG_KEYS:
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
