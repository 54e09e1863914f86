"""Orders for tests, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextlab.experiment import Due, GeneratorHealth, Sample
from contextlab.lab.load.fleet import Fleet, LoadOrder, Prepared

BODY = b'{"model":"null","messages":[],"stream":true}'
CHAT = "/v1/chat/completions"


def order(port: int, paths: Sequence[str] = (CHAT,), *, times: Sequence[float] | None = None, **how: Any) -> LoadOrder:
    """An order: one request a path, 20 ms apart; with `times`, one for each of them, paths in turn."""
    at = [0.02 * place for place in range(len(paths))] if times is None else times
    fields = {
        "host": "127.0.0.1",
        "port": port,
        "requests": tuple(Prepared(path=path, body=BODY) for path in paths),
        "schedule": tuple(Due(index=i, at_s=at_s, mixed=i % len(paths)) for i, at_s in enumerate(at)),
        "duration_s": max(at, default=0.0) + 0.01,
        "timeout_s": 10.0,
    }
    return LoadOrder(**{**fields, **how})


@dataclass
class Came:
    """Everything that a fleet told, samples by their index."""

    samples: list[Sample] = field(default_factory=list)
    healths: list[GeneratorHealth] = field(default_factory=list)

    def by_path(self, one: LoadOrder) -> dict[str, Sample]:
        """The sample of each path."""
        return {one.requests[sample.mixed].path: sample for sample in self.samples}


def gathered(fleet: Fleet, after_poll: Callable[[Came], None] = lambda came: None) -> Came:
    """What a fleet tells until it has finished."""
    came = Came()
    while not fleet.finished:
        for seen in fleet.poll(0.2):
            if isinstance(seen, Sample):
                came.samples.append(seen)
            else:
                came.healths.append(seen)
        after_poll(came)
    came.samples.sort(key=lambda sample: sample.index)
    return came


def run(one: LoadOrder, folder: Path, *, num_workers: int = 1) -> Came:
    """Carry an order out."""
    with Fleet(one, log=folder / "client.log", num_workers=num_workers) as fleet:
        if one.zero_s is None:
            fleet.start()
        return gathered(fleet)
