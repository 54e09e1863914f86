"""What the stream faults share: whom they hit, at which place of a reply they act, what stages count. No fault.

A stage is fed every piece of one direction of one request, and pieces without data that tell it the time: one when a
window opens or a request begins (BYTES), and one when the request has gone up and no byte of the reply is there (HEAD).
Beyond `Stage`, the relay looks at three attributes:

    holds    True: what it did to this request lasts, also after its window (a stream is never un-dropped)
    is_dark  True: nothing passes on this connection any more, either way, nor that one side ended
    achieved a sketch of what it achieved, for quantiles over all requests
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from contextlab.analysis.quantities import num_of
from contextlab.experiment import Close, Direction, Landed, Mark, Piece, Plane, Stage, option
from contextlab.model import UsageError

PLACES = "now, prefill, first-token, event:K or done"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFault:
    """What holds for every stream fault: `share` of the requests is hit, decided by each request's own generator."""

    PLANE: ClassVar[Plane] = Plane.STREAM
    EXCLUDES: ClassVar[frozenset[str]] = frozenset()

    share: float = option(1.0, "share of the requests that are hit", kind="share", low=0.0, high=1.0)

    @property
    def by_event(self) -> bool:
        """Whether replies must be cut into events for it."""
        return False

    @property
    def changes_length(self) -> bool:
        """Whether replies may become longer or shorter without being cut off."""
        return False

    @property
    def asks_nothing(self) -> str:
        """The option that makes it do nothing, in words; "" where none does."""
        return ""

    @property
    def is_null(self) -> bool:
        """Whether it does nothing as its options stand."""
        return self.share == 0 or bool(self.asks_nothing)

    @property
    def acting(self) -> str:
        """What it does, for sentences such as "3 times …"."""
        return "acted"

    def touches(self, direction: Direction) -> bool:
        """Replies only, where a fault does not say more."""
        return direction is Direction.DOWN

    def hits(self, rng: Random) -> bool:
        """Whether the request that this generator belongs to is hit: one draw."""
        return rng.random() < self.share

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """It acted at least once; else which step towards that is missing."""
        if self.is_null:
            return Landed(proven=None, why=f"{self.asks_nothing or 'share=0'} asks for nothing")
        seen, hit, applied = (tally.get(name, 0) for name in ("requests_seen", "requests_hit", "applied"))
        if not seen:
            return Landed(proven=False, why="no request was under way while it acted")
        if not hit:
            return Landed(proven=False, why=f"its share hit none of {seen:.0f} requests")
        if not applied:
            at = getattr(self, "at", "")
            place = f"reached at={at}" if at else "gave it anything to act on"
            return Landed(proven=False, why=f"none of the {hit:.0f} requests that it hit {place}")
        return Landed(
            proven=True, why=f"hit {hit:.0f} of {seen:.0f} requests, {self.acting} {num_of(applied, 'times')}"
        )


def direction_option(default: str) -> Any:
    """The field `direction` of a fault that can act both ways."""
    words = "which bytes: up (client to target), down (target to client) or both"
    return option(default, words, kind="text", choices=("both", "up", "down"))


# ── where in a reply ─────────────────────────────────────────────────────────────────────────────


def at_option(default: str, words: str) -> Any:
    """The field `at` of a fault that acts at one place."""
    return option(default, f"{words}: {PLACES} (K counts the events with text, from 0)", kind="text")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a reply, `kind` being the word before the colon; `event`: which content event, from 0."""

    kind: str
    event: int = 0

    @property
    def by_event(self) -> bool:
        """Whether only a reply cut into events has it."""
        return self.kind not in ("now", "prefill")

    def reached(self, piece: Piece) -> tuple[Piece | None, Piece] | None:
        """Where the place is reached with this piece: what lies before it, and the rest; else None."""
        match self.kind:
            case "now":
                return None, piece
            case "prefill":
                return (None, piece) if piece.mark is Mark.HEAD and not piece.data else None
            case "first-token":
                return (piece, Piece(piece.at_s)) if piece.mark is Mark.FIRST_TOKEN else None
            case "event":
                return halves(piece) if piece.event == self.event else None
        return (None, piece) if piece.mark is Mark.DONE else None


def place(at: str, *, only_events: bool = False) -> Place:
    """The place that a text names; `only_events`: it must be an event. Raises UsageError."""
    kind, colon, number = at.partition(":")
    choices = "first-token, event:K or done" if only_events else PLACES
    known = {"first-token", "done", *(() if only_events else ("now", "prefill"))}
    if (kind in known and not colon) or (kind == "event" and number.isdecimal()):
        return Place(kind, int(number or 0))
    raise UsageError(f"at={at!r}: there is no such place in a reply", f"choose from: {choices}, for example event:3")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFault(StreamFault):
    """A stream fault that acts at one place of a reply. Raises UsageError for a place that there is not."""

    at: str = at_option("event:3", "where it acts")

    def __post_init__(self) -> None:
        place(self.at)

    @property
    def by_event(self) -> bool:
        """Unless it needs no reply."""
        return place(self.at).by_event


def halves(piece: Piece) -> tuple[Piece, Piece]:
    """A piece cut in the middle of its bytes, wherever that is."""
    middle = (len(piece.data) + 1) // 2
    return (
        Piece(piece.at_s, piece.data[:middle], piece.mark, piece.event),
        Piece(piece.at_s, piece.data[middle:], close=piece.close),
    )


# ── stages ───────────────────────────────────────────────────────────────────────────────────────


class StreamStage:
    """A stage's tally, `applied` first, and what the relay asks of it."""

    def __init__(self, *names: str) -> None:
        self.tally: dict[str, float] = dict.fromkeys(("applied", *names), 0.0)
        self.holds = False
        self.is_dark = False
        self.achieved: Sketch | None = None


class Ending(StreamStage):
    """Ends the reply at a place: what lies before passes, then the connection closes; the rest is swallowed."""

    def __init__(self, where: Place, close: Close, after_s: float) -> None:
        super().__init__("swallowed_bytes")
        self._where, self._close = where, close
        self._after_s = after_s if where.kind == "prefill" else 0.0

    def feed(self, piece: Piece) -> Iterable[Piece]:
        if self.holds:
            self.tally["swallowed_bytes"] += len(piece.data)
            return ()
        reached = self._where.reached(piece)
        if reached is None:
            return (piece,)
        before, rest = reached
        self.holds = True
        self.tally["applied"] += 1
        self.tally["swallowed_bytes"] += len(rest.data)
        end = Piece(piece.at_s + self._after_s, close=self._close)
        return (end,) if before is None else (before, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingFault(PlacedFault):
    """A stream fault that closes the connection at a place of a reply, in the way that `CLOSE` says."""

    CLOSE: ClassVar[Close]

    after_s: float = option(
        0.05, "with at=prefill: how long after the request", kind="duration", low=0.0, high=600.0, unit="s"
    )

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """End the reply. Draws nothing."""
        return Ending(place(self.at), self.CLOSE, self.after_s)


# ── events ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFault(StreamFault, ABC):
    """A fault of single events: the one at a place, or a share of all events with text, drawn one by one."""

    at: str = option(
        "event:1", "which event: first-token, event:K or done (K counts the events with text, from 0)", kind="text"
    )
    events: float = option(0.0, "instead of `at`: the share of all events with text", kind="share", low=0.0, high=1.0)

    def __post_init__(self) -> None:
        place(self.at, only_events=True)

    @property
    def by_event(self) -> bool:
        """Always."""
        return True

    @property
    def changes_length(self) -> bool:
        """Always."""
        return True

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Change events: two draws for each that has text, whatever becomes of it."""
        return EventStage(self, rng)

    @abstractmethod
    def changed(self, piece: Piece, draw: float) -> tuple[Piece, ...]:
        """What becomes of an event that is hit; `draw` is from 0 to 1. The piece itself is not changed."""


class EventStage(StreamStage):
    """`events_seen`: events with text; `applied`: events that were changed."""

    def __init__(self, fault: EventFault, rng: Random) -> None:
        super().__init__("events_seen", "bytes")
        self._fault, self._draw = fault, rng.random
        self._where = place(fault.at, only_events=True)

    def feed(self, piece: Piece) -> Iterable[Piece]:
        chance = draw = 1.0
        if piece.event is not None:
            self.tally["events_seen"] += 1
            chance, draw = self._draw(), self._draw()
        is_hit = chance < self._fault.events if self._fault.events else self._where.reached(piece) is not None
        if not is_hit:
            return (piece,)
        pieces = self._fault.changed(piece, draw)
        if len(pieces) != 1 or pieces[0].data != piece.data:
            self.tally["applied"] += 1
            self.tally["bytes"] += len(piece.data)
        return pieces


# ── tallies of many stages as one ────────────────────────────────────────────────────────────────


def add_tally(total: dict[str, float], tally: Mapping[str, float]) -> None:
    """Add a tally to a total: `min_…` and `max_…` by their extreme, all else summed."""
    for name, value in tally.items():
        if name not in total:
            total[name] = value
        elif name.startswith("min_"):
            total[name] = min(total[name], value)
        elif name.startswith("max_"):
            total[name] = max(total[name], value)
        else:
            total[name] += value


class Sketch:
    """Quantiles of many numbers in bounded memory: exact up to `limit`, then neighbours stand for each other."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._points: list[tuple[float, float]] = []  # value, how many numbers it stands for

    def add(self, value: float, weight: float = 1.0) -> None:
        """Take a number in, or one that stands for several."""
        self._points.append((value, weight))
        if len(self._points) > self._limit:
            ordered = sorted(self._points)
            self._points = [
                (ordered[at + at // 2 % 2][0], ordered[at][1] + ordered[at + 1][1])
                for at in range(0, len(ordered) - 1, 2)
            ] + ordered[len(ordered) // 2 * 2 :]

    def merge(self, other: Sketch) -> None:
        """Take all that another one stands for in."""
        for value, weight in list(other._points):
            self.add(value, weight)

    def quantile(self, share: float) -> float | None:
        """The least number that at least this share lies at or below; None where there is none."""
        wanted = share * sum(weight for _, weight in self._points)
        for value, weight in sorted(self._points):
            wanted -= weight
            if wanted <= 0:
                return value
        return None
