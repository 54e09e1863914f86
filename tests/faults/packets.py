"""Packets by hand, stages fed with them, and how far chance may carry a count: bounds, not guesses."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random
from struct import pack
from typing import Any

from contextlab.experiment import Direction, Piece, Stage, WireFault

FALSE_ALARM = 1e-12
"""How often one comparison here may fail although all is well; where the number of trials is itself left to chance, at
most so many times more often as there are numbers (10⁴ at most)."""
SHAPED = ("corrupt", "delay", "duplicate", "jitter", "loss", "rate", "reorder")


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071): 0 over data that holds its own right checksum."""
    total = sum(int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(payload: bytes = b"", *, protocol: int = 6, ports: tuple[int, int] = (40000, 8000)) -> bytes:
    """An IPv4 packet without options that carries a TCP segment (or a UDP datagram, 17) with right checksums."""
    near, far = bytes((10, 83, 0, 1)), bytes((10, 83, 0, 2))
    if protocol == 6:
        head = pack("!HHIIBBHHH", *ports, 1, 2, 5 << 4, 0x18, 512, 0, 0)
        place = 16
    else:
        head = pack("!HHHH", *ports, 8 + len(payload), 0)
        place = 6
    body = head + payload
    right = checksum(near + far + pack("!BBH", 0, protocol, len(body)) + body)
    body = body[:place] + pack("!H", right) + body[place + 2 :]
    ip = pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 7, 0, 64, protocol, 0) + near + far
    return ip[:10] + pack("!H", checksum(ip)) + ip[12:] + body


def is_whole(data: bytes) -> bool:
    """Whether the checksum over addresses and body fits, as a receiver finds out."""
    return checksum(data[12:20] + pack("!BBH", 0, data[9], len(data) - 20) + data[20:]) == 0


def stage_of(fault: WireFault, seed: object = 1) -> Stage:
    """The fault at work on what goes down."""
    return fault.stage(Random(str(seed)), Direction.DOWN)


def fed(stage: Stage, pieces: Iterable[Piece]) -> list[list[Piece]]:
    """What becomes of each piece."""
    return [list(stage.feed(piece)) for piece in pieces]


def many(num: int, data: bytes = b"x" * 100, gap_s: float = 0.001) -> Iterable[Piece]:
    """As many packets, one after the other."""
    return (Piece(number * gap_s, data) for number in range(num))


class CountingRandom(Random):
    """An RNG that counts its draws."""

    draws = 0

    def random(self) -> float:
        self.draws += 1
        return super().random()

    def getrandbits(self, num_bits: int, /) -> Any:
        self.draws += 1
        return super().getrandbits(num_bits)


def binomial_bounds(num: int, share: float, false_alarm: float = FALSE_ALARM) -> tuple[float, float]:
    """Counts that Binomial(num, share) leaves with at most this probability.

    Chernoff: P(count ≥ num·q) ≤ exp(−num·KL(q‖share)) for q above share, the same below; each side gets a half.
    """
    enough = math.log(2 / false_alarm) / num

    def end(outer: float) -> float:
        inner = share
        for _ in range(60):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if _divergence(middle, share) < enough else (inner, middle)
        return outer

    return num * end(0.0), num * end(1.0)


def _divergence(q: float, p: float) -> float:
    """Kullback–Leibler divergence of Bernoulli(q) from Bernoulli(p), in nats."""
    first = q * math.log(q / p) if q > 0 else 0.0
    return first + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0)


def furthest_share(num: int, false_alarm: float = FALSE_ALARM) -> float:
    """How far an empirical distribution function of `num` draws may be from the true one (Dvoretzky–Kiefer–Wolfowitz,
    with Massart's constant): P(sup|F̂ − F| > ε) ≤ 2·exp(−2·num·ε²)."""
    return math.sqrt(math.log(2 / false_alarm) / (2 * num))
