"""`fake:NAME`: a server of ours that misbehaves in one known way, to see whether the tool says so.

The fakes themselves are in `servers/fake_engine`; this says how one is started.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches

from contextlab.model import Outcome, ServerCommand, Setting, TargetSpec, UsageError
from contextlab.targets.servers import NO_CERTIFICATES
from contextlab.targets.servers.fake_engine import DEPARTURES, UNDER_FAULTS

SCHEME = "fake"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="window",
        kind="int",
        default=256,
        low=64,
        high=8192,
        unit="tokens",
        help="context window of one request, the prompt and its reply together",
    ),
    Setting(name="slots", kind="int", default=2, low=1, high=64, help="requests answered at once; others wait"),
    Setting(
        name="token_delay_s", kind="float", default=0.004, low=0, high=10, unit="s", help="pause before each token"
    ),
)

_ALL = {**DEPARTURES, **UNDER_FAULTS}
NAMES: tuple[str, ...] = tuple(_ALL)
EXPECTED: Mapping[str, Outcome] = {name: departure.outcome for name, departure in DEPARTURES.items()}
"""The outcome that `overflow` must find, by name."""
EXPECTED_UNDER_FAULTS: Mapping[str, Outcome] = {name: departure.outcome for name, departure in UNDER_FAULTS.items()}
"""The outcome that `chaos` must find, by name."""
ABOUT: Mapping[str, str] = {name: departure.about for name, departure in _ALL.items()}

_MEMORY_LIMITS_BYTES = {"eats-memory": 512 * 2**20}


def server(spec: TargetSpec) -> ServerCommand:
    """How to start the fake that `spec.address` names; raises UsageError if there is none of that name."""
    name = spec.address
    if name not in _ALL:
        close = " or ".join(get_close_matches(name, NAMES))
        raise UsageError(
            f"fake={name!r}: there is no such fake",
            (f"did you mean {close}? " if close else "") + f"choose from: {', '.join(NAMES)}",
        )
    options = [
        word
        for setting in SETTINGS
        for word in ("--" + setting.name.replace("_", "-"), str(spec.settings.get(setting.name, setting.default)))
    ]
    return ServerCommand(
        argv=(sys.executable, "-m", "contextlab.targets.servers.fake_server", name, *options, "--port", "0"),
        ready_path="/v1/models",  # the health of a fake may be what it lies about
        memory_limit_bytes=_MEMORY_LIMITS_BYTES.get(name),
        env=NO_CERTIFICATES,
    )
