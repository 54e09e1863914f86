"""A target that stays up for clients that are not ours: a person with curl, an application under test.

    clients ─▶ [link process: the faults asked for] ─▶ the target: ours to start, or one that runs already

Nothing is judged, and nothing is recorded but the logs. What stands in front is what `chaos` puts there, with the same
faults; packets are not touched, since only our own clients can enter the namespace where that is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from contextlab import registry
from contextlab.experiment import FaultEvidence, Placed, Plane
from contextlab.lab.link.engines import EMULATED, RELAY
from contextlab.lab.link.relay import listening
from contextlab.lab.link.route import Route
from contextlab.lab.load.aim import speaks_tls, where
from contextlab.lab.server import OwnedServer, served_at, serving_command
from contextlab.model import ProcessEnd, TargetSpec, UnableError, UsageError

FOREVER_S = 10 * 365 * 86_400.0
"""How long a fault acts for which no window was named."""


def on_stream(texts: Sequence[str], *, allow_emulation: bool = False) -> tuple[Placed, ...]:
    """Faults as the user wrote them; one without a window acts for ever. Raises UsageError for one that cannot stand
    between a target and clients of somebody else's."""
    placed = tuple(registry.parse_fault(text, start_s=0.0, length_s=FOREVER_S) for text in texts)
    for text, one in zip(texts, placed, strict=True):
        plane = registry.plane_of(one)
        if not plane.on_wire:
            raise UsageError(
                f"fault {text!r}: {one.name} is a fault of the plane {plane}; serve has those of streams",
                f'contextlab chaos TARGET --fault "{text}", beside a load of its own',
            )
        if plane is Plane.PACKET and not allow_emulation:
            raise UsageError(
                f"fault {text!r}: {one.name} acts on packets, and your clients cannot be put behind a packet link",
                "--allow-emulation lets the relay delay and stall instead; contextlab chaos acts on packets",
            )
    return placed


class Serving:
    """A target that is up, from construction to `close`, and where to reach it (`url`).

    `port`: of the address for clients, 0 for a free one. Raises UnableError where the target does not come up, speaks
    TLS, or the port is taken.
    """

    def __init__(
        self,
        spec: TargetSpec,
        folder: Path,
        *,
        faults: Sequence[Placed] = (),
        port: int = 0,
        seed: int = 0,
        memory_limit_bytes: int | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._server: OwnedServer | None = None
        listening(port).close()  # a port that is taken is told before anything starts
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if (command := serving_command(spec)) is not None:
                log = folder / "server.log"
                server = OwnedServer(command, log=log, memory_limit_bytes=memory_limit_bytes, progress=progress)
                self._server = stack.enter_context(server)
                spec = served_at(spec, server.url)
            if speaks_tls(spec):
                message = f"{spec.name}: it speaks TLS, and what is relayed here must be plain http"
                raise UnableError(message, "name the server behind its TLS, on its own port")
            packets = any(registry.plane_of(one) is Plane.PACKET for one in faults)
            engine = EMULATED if packets else RELAY
            route = Route(where(spec), engine=engine, log=folder / "link.log", seed=seed, port=port)
            self._route = stack.enter_context(route)
            if faults:
                route.arm(faults, time.monotonic(), keep=False)
            self._stack = stack.pop_all()
        self.url = "http://{}:{}".format(*route.address)

    def ended(self) -> ProcessEnd | None:
        """How the target ended; None while it runs, and of one that is not ours."""
        return self._server.process.poll() if self._server is not None else None

    def passed(self) -> tuple[dict[str, float], list[FaultEvidence]]:
        """What came through until now, and what each fault did. Raises UnableError where the link process has died."""
        return self._route.report()

    def close(self) -> None:
        """Stop what was started; what is connected is cut."""
        self._stack.close()

    def __enter__(self) -> Serving:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
