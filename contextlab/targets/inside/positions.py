"""The task about positions: texts of exact lengths, an error or none, and what answers are worth past the range.

    [needles of the head … words that repeat … needles of the rest … words that repeat] [a question for each needle]

A needle is "The secret code of NAME is DIGITS."; its question repeats it, and whether the digits were foretold is read
off the logits. So is the likelihood of the repeated words, of the same words on both sides of the edge. One forward
pass reads all of it. Texts inside and past the range are built alike: they differ in where things stand only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from statistics import fmean, stdev
from typing import Any

from contextlab.analysis.prompts import WORDS, filler
from contextlab.model import Evidence
from contextlab.targets.inside.library import listening, words_of
from contextlab.targets.inside.load import Loaded

About = Mapping[str, int | float | str]

MAX_NEEDLES = 12
"""In the head, and as many in the rest."""
TOKENS_PER_NEEDLE = 64
PERIOD_WORDS = 160
STRETCHES = 8
"""Equal parts of the inside whose likelihood is told apart; the last two and what is past them are read closely."""
SPARSE_SAMPLES = 32
WHOLE_TOKENS = 4096
"""Longer texts are not read once more just to try one token past the edge."""


def measure_positions(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """The length at which positions end, and recall and likelihood on both sides of it where they do not.

    `inside_tokens`: a length that the model declares; `past_tokens`: a longer one.
    """
    inside, past = int(about["inside_tokens"]), int(about["past_tokens"])
    shape = loaded.shape
    yield {
        "position_kind": str(shape.positions.kind),
        "rope": shape.rope.kind if shape.rope else None,
        "positions": shape.positions.max_tokens,
        "vocabulary": loaded.vocab,
    }
    lengths = {"inside": inside, "edge": inside + 1, "past": past}
    if inside > WHOLE_TOKENS and shape.positions.kind != "table":
        del lengths["edge"]
    texts = Texts(loaded, lengths["past"] - inside, inside, Random(int(about.get("seed", 0))))
    works = 0
    with listening() as warned:
        for name, length in lengths.items():
            yield {"trying_tokens": length}
            try:
                if name == "edge":
                    loaded.logits(texts.plain(length))
                else:
                    yield reading(loaded, texts.of(length), inside, name)
            except Exception as error:
                yield {"ok_tokens": works, "error_tokens": length, **words_of(error)}
                yield from _edge(loaded, texts, works, length, error)
                return
            works = length
            yield {"ok_tokens": works}
    yield {"warned": warned[0][:200] if warned else None}


def _edge(loaded: Loaded, texts: Texts, works: int, fails: int, error: Exception) -> Iterator[Evidence]:
    """By bisection, the length from which on it fails; not where the error has taken the device with it."""
    while fails - works > 1 and "CUDA" not in str(error):
        middle = (works + fails) // 2
        try:
            loaded.logits(texts.plain(middle))
        except Exception as raised:
            fails, error = middle, raised
        else:
            works = middle
        yield {"ok_tokens": works, "error_tokens": fails, **words_of(error)}


# ── texts ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Needle:
    """The tokens of a sentence that hides a code, and of the code in it."""

    before: list[int]
    code: list[int]
    after: list[int]

    @property
    def ids(self) -> list[int]:
        """The whole sentence."""
        return [*self.before, *self.code, *self.after]


@dataclass(frozen=True, slots=True)
class Ask:
    """A question: where its code begins, the code, how far behind the needle's own code stands, and if in the head."""

    at: int
    code: tuple[int, ...]
    distance: int
    far: bool


@dataclass(slots=True)
class Text:
    """A text of exact length. `words` holds, for each repeated word's token, its index and its place in the period."""

    ids: list[int]
    asks: list[Ask] = field(default_factory=list)
    words: list[tuple[int, int]] = field(default_factory=list)


class Texts:
    """Texts of any length from the same words and needles.

    `head`: the first needles stand in so many tokens, less the length of the questions, so that in a text of
    `inside` + `head` tokens they are further than `inside` away from them.
    """

    def __init__(self, loaded: Loaded, head: int, inside: int, rng: Random) -> None:
        words = max(4, min(PERIOD_WORDS, inside // STRETCHES))
        self._period = loaded.ids(filler(words, rng), special=False)
        self._start = loaded.ids("", special=True)
        count = min(MAX_NEEDLES, inside // TOKENS_PER_NEEDLE)
        names = rng.sample([word.upper() for word in WORDS], 2 * MAX_NEEDLES)[: 2 * count]
        needles = [_needle(loaded, name, rng) for name in names]
        while needles and 2 * sum(len(needle.ids) for needle in needles) > min(head, inside - len(self._start)):
            needles = needles[:-2]
        self._needles = needles
        self._order = rng.sample(range(len(needles)), len(needles))
        tail = sum(len(needle.ids) for needle in needles)
        self._rest = max(0, min(head, (inside - tail) // 2))  # where the other needles begin, in both texts
        self._head = min(max(0, head - tail), self._rest)

    def plain(self, length: int) -> list[int]:
        """Words only."""
        return [self._period[number % len(self._period)] for number in range(length)]

    def of(self, length: int) -> Text:
        """Needles and words, then the questions: `length` tokens."""
        tail = sum(len(needle.ids) for needle in self._needles)
        text, places, used = Text(list(self._start)), list[int](), 0
        half = len(self._needles) // 2
        for number, needle in enumerate(self._needles):
            places.append(len(text.ids) + len(needle.before))
            text.ids += needle.ids
            if number < half - 1:  # spread over the head, the others over what is left
                until = len(self._start) + self._head * (number + 1) // half
            else:
                since = len(self._start) + self._rest
                until = since + (length - tail - since) * (number + 1 - half) // half
            used = self._fill(text, until, used)
        self._fill(text, length - tail, used)
        for number in self._order:
            needle = self._needles[number]
            at = len(text.ids) + len(needle.before)
            text.asks.append(Ask(at, tuple(needle.code), at - places[number], number < half))
            text.ids += needle.ids
        return text

    def _fill(self, text: Text, until: int, used: int) -> int:
        while len(text.ids) < until:
            place = used % len(self._period)
            text.words.append((len(text.ids), place))
            text.ids.append(self._period[place])
            used += 1
        return used


def _needle(loaded: Loaded, name: str, rng: Random) -> Needle:
    digits = str(rng.randrange(1000, 10_000))
    parts = (f" The secret code of {name} is", f" {digits}", ".")
    return Needle(*(loaded.ids(part, special=False) for part in parts))


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def reading(loaded: Loaded, text: Text, inside: int, name: str) -> dict[str, Any]:
    """What one forward pass shows of a text: codes that come back, and, past the range, the likelihood of its words."""
    words = sampled(text.words, inside) if name == "past" else []
    wanted = {index for index, _ in words} | {ask.at + step for ask in text.asks for step in range(len(ask.code))}
    row = {index: number for number, index in enumerate(sorted(wanted or {len(text.ids) - 1}))}
    keep = loaded.torch.tensor([index - 1 for index in row], device=loaded.model.device)
    logits = loaded.logits(text.ids, keep=keep)  # (K, V): a row foretells the token after its own
    found: dict[str, Any] = {f"{name}_finite": bool(logits.isfinite().all())}
    best = logits.argmax(dim=-1).tolist()
    shares = {
        ask: _foretold(loaded, ask, [best[row[ask.at + step]] for step in range(len(ask.code))]) for ask in text.asks
    }
    for group in ("far", "near"):
        right = [share == 1.0 for ask, share in shares.items() if ask.far == (group == "far")]
        found |= {f"{name}_{group}_asked": len(right), f"{name}_{group}_right": sum(right)}
    found[f"{name}_recall"] = " ".join(
        f"{ask.distance}:{share:.2f}" for ask, share in sorted(shares.items(), key=lambda pair: pair[0].distance)
    )
    if words:
        rows = logits[loaded.torch.tensor([row[index] for index, _ in words], device=logits.device)]
        targets = loaded.torch.tensor([text.ids[index] for index, _ in words], device=logits.device)
        losses = loaded.torch.nn.functional.cross_entropy(rows, targets, reduction="none").tolist()
        found |= likelihood([(*word, loss) for word, loss in zip(words, losses, strict=True)], inside)
    return found


def _foretold(loaded: Loaded, ask: Ask, best: Sequence[int]) -> float:
    """Share of a code's tokens that were the most likely ones; a bare space among them does not count."""
    scored = [step for step, token in enumerate(ask.code) if loaded.tokenizer.decode([token]).strip()]
    return sum(best[step] == ask.code[step] for step in scored) / max(1, len(scored))


def sampled(words: Sequence[tuple[int, int]], inside: int) -> list[tuple[int, int]]:
    """All words past the edge and in the last two stretches before it, and some of each stretch before those."""
    width = max(1, inside // STRETCHES)
    by_stretch: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for word in words:
        if word[0] > 0:  # nothing foretells the first token
            by_stretch[min(word[0] // width, STRETCHES)].append(word)
    found = []
    for stretch, members in by_stretch.items():
        step = 1 if stretch >= STRETCHES - 2 else max(1, len(members) // SPARSE_SAMPLES)
        found += members[::step]
    return found


def likelihood(losses: Sequence[tuple[int, int, float]], inside: int) -> dict[str, Any]:
    """Negative log-likelihood by position, and how much it changes: over the edge, and over the stretch before it.

    `losses` has (index, place in the period, nats). A change is the mean over the places of the period, each compared
    with itself, so that hard and easy words weigh alike on both sides.
    """
    width = max(1, inside // STRETCHES)
    stretches: dict[int, list[float]] = defaultdict(list)
    places: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for index, place, loss in losses:
        stretch = min(index // width, STRETCHES)
        stretches[stretch].append(loss)
        places[stretch][place].append(loss)
    found: dict[str, Any] = {
        "nll_by_position": " ".join(
            f"{stretch * width}:{fmean(some):.3f}" for stretch, some in sorted(stretches.items())
        )
    }
    for name, (left, right) in zip(
        ("nll_slope", "nll_step"), pairwise(range(STRETCHES - 2, STRETCHES + 1)), strict=True
    ):
        common = sorted(places[left].keys() & places[right].keys())
        changes = [fmean(places[right][place]) - fmean(places[left][place]) for place in common]
        if len(changes) > 1:
            found |= {
                f"{name}_mean": round(fmean(changes), 4),
                f"{name}_sd": round(stdev(changes), 4),
                f"{name}_count": len(changes),
            }
    if stretches[STRETCHES - 1] and stretches[STRETCHES]:
        found |= {
            "nll_inside": round(fmean(stretches[STRETCHES - 1]), 4),
            "nll_past": round(fmean(stretches[STRETCHES]), 4),
        }
    return {key: value for key, value in found.items() if not (isinstance(value, float) and not math.isfinite(value))}
