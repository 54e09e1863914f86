"""One request and the stream faults that it is exposed to: who is hit, what their stages make of it, what they did.

Armed (a placed fault and its account) ─▶ Exposure (one request): seen? hit? ─▶ stages up, stages down
                                                               │ pieces through those whose window is open
                                                               ▼
                                                         tallies back into the account, readable at any time
"""

from __future__ import annotations

from collections.abc import Sequence

from contextlab.analysis.loads import rng_of
from contextlab.experiment import Close, Direction, Mark, Piece, Stage, WireFault
from contextlab.faults.streams import Sketch, add_tally
from contextlab.lab.link.framing import ReplyReader
from contextlab.lab.link.messages import Head

ACHIEVED = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
REQUEST_ID = b"x-request-id"


class Armed:
    """A placed fault at work from `start_s` to `end_s` (monotonic), and the account of what it did."""

    def __init__(self, fault: WireFault, *, number: int, start_s: float, end_s: float) -> None:
        self.fault = fault
        self.number = number
        self.start_s, self.end_s = start_s, end_s
        self.num_seen = self.num_hit = 0
        self._settled: dict[str, float] = {}
        self._achieved = Sketch()
        self._live: dict[int, Stage] = {}

    def begin(self, stage: Stage) -> Stage:
        """Follow a stage until it is settled."""
        self._live[id(stage)] = stage
        return stage

    def settle(self, stage: Stage) -> None:
        """Keep what a stage has counted; it counts no more."""
        self._live.pop(id(stage), None)
        add_tally(self._settled, stage.tally)
        if (achieved := getattr(stage, "achieved", None)) is not None:
            self._achieved.merge(achieved)

    def tally(self) -> dict[str, float]:
        """What its stages have done until now, as one."""
        total = {"requests_seen": float(self.num_seen), "requests_hit": float(self.num_hit)}
        add_tally(total, self._settled)
        achieved = Sketch()
        achieved.merge(self._achieved)
        for stage in self._live.values():
            add_tally(total, stage.tally)
            if (one := getattr(stage, "achieved", None)) is not None:
                achieved.merge(one)
        for name, share in ACHIEVED:
            if (value := achieved.quantile(share)) is not None:
                total[f"achieved_{name}_s"] = value
        return total


class Exposure:
    """The faults at work on one request. `is_live`: its reply has not all come; `is_dark`: one has made it dark."""

    def __init__(self, armed: Sequence[Armed], *, seed: int, index: int, head: Head, now_s: float) -> None:
        self.is_live = True
        self.is_dark = False
        self._unseen: list[tuple[Armed, bool]] = []
        self._stages: dict[Direction, list[tuple[Armed, Stage]]] = {Direction.UP: [], Direction.DOWN: []}
        self._has_gone_up = False
        cuts = rechunks = False
        for one in armed:
            if now_s >= one.end_s:
                continue
            hit = one.fault.hits(rng_of(seed, one.number, index, "hits"))
            self._unseen.append((one, hit))
            if not hit:
                continue
            cuts = cuts or one.fault.by_event
            rechunks = rechunks or getattr(one.fault, "changes_length", False)
            for direction in Direction:
                if one.fault.touches(direction):
                    rng = rng_of(seed, one.number, index, direction.value)
                    self._stages[direction].append((one, one.begin(one.fault.stage(rng, direction))))
        for stages in self._stages.values():  # what addresses events must see them before they are cut further
            stages.sort(key=lambda pair: not pair[0].fault.by_event)
        is_bodiless = head.first_line.startswith(b"HEAD ")
        self._reply = ReplyReader(cuts=cuts, rechunks=rechunks, is_bodiless=is_bodiless)

    def request(self, data: bytes, now_s: float, *, ends: bool) -> list[Piece]:
        """What passes of bytes of the request; `ends`: they are its last."""
        self._has_gone_up = self._has_gone_up or ends
        return self._through(Direction.UP, [Piece(now_s, data)], now_s)

    def reply(self, data: bytes, now_s: float) -> list[Piece]:
        """What passes of bytes of the reply, framed for the wire."""
        pieces = self._through(Direction.DOWN, self._reply.feed(data, now_s), now_s)
        self.is_live = not self._reply.ended
        return pieces

    def closed(self, direction: Direction, how: Close, now_s: float) -> list[Piece]:
        """What passes of the news that the client (UP) or the target (DOWN) ended the connection."""
        pieces = [Piece(now_s, close=how)]
        if not self.is_live:
            self._unseen.clear()  # a connection that ends idle is no request under way
        if direction is Direction.DOWN:
            self.is_live = False
            if how is Close.FIN:
                pieces = self._reply.close(now_s)
        return self._through(direction, pieces, now_s)

    def poke(self, direction: Direction, now_s: float, at_s: float) -> list[Piece]:
        """What becomes of a request that has just come, has just gone up, or is under way when a window opens.

        `at_s`: when it is so, which is later than now where the request itself is delayed.
        """
        waits = direction is Direction.DOWN and self._has_gone_up and not self._reply.begun
        return self._through(direction, [Piece(at_s, mark=Mark.HEAD if waits else Mark.BYTES)], now_s)

    def settle(self) -> None:
        """The request is over: its stages count no more."""
        for stages in self._stages.values():
            for one, stage in stages:
                one.settle(stage)
            stages.clear()

    def _through(self, direction: Direction, pieces: list[Piece], arrived_s: float) -> list[Piece]:
        if self._unseen:
            self._see(arrived_s)
        for one, stage in self._stages[direction]:
            if one.start_s <= arrived_s < one.end_s or getattr(stage, "holds", False):
                pieces = [out for piece in pieces for out in stage.feed(piece)]
                self.is_dark = self.is_dark or getattr(stage, "is_dark", False)
        if direction is Direction.DOWN:
            for piece in pieces:
                piece.data = self._reply.wire(piece)
        return pieces

    def _see(self, arrived_s: float) -> None:
        """Count the request for the faults whose window it is in now."""
        left = []
        for one, hit in self._unseen:
            if arrived_s >= one.end_s:
                continue
            if arrived_s < one.start_s:
                left.append((one, hit))
                continue
            one.num_seen += 1
            one.num_hit += hit
        self._unseen = left


def index_of(head: Head, otherwise: int) -> int:
    """The index in a request's mark, `X-Request-Id: <arm>-<index>`; another number where it has none."""
    number = head.headers.get(REQUEST_ID, b"").rpartition(b"-")[2]
    return int(number) if number.isdigit() else otherwise
