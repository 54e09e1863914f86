"""Judges one stream against what the undisturbed target said: exactly one name, all that was seen, who notices; pure.

    no stream ─▶ UNSENT, REFUSED, UNREACHED, GARBLED, HTTP_ERROR, RESET, CUT, TIMED_OUT_BEFORE_FIRST
    its text  ─▶ FOREIGN > CORRUPTED > DUPLICATED > MISSING
    its end   ─▶ RESET > CUT > HALF_OPEN > TIMED_OUT > TWO_TERMINALS > ERROR_FRAME > NO_TERMINAL
    the rest  ─▶ USAGE_WRONG > STALLED > OPEN_AFTER_END > VARIED > INTACT

The name is the first that fits in this order: wrong text outweighs a missing end, for it may be used before anybody
sees the end. Only the text is compared, not how it was cut into events or reads. A beginning of the text that ends
cleanly is MISSING where finish_reason or `[DONE]` still came (events were lost), and CUT where neither did.
See `alignment` for what equal neighbouring events leave open.

Where the bytes are known to be those that the target sent (`Sample.as_sent`), another text is the target's doing and no
damage on the way: VARIED, as greedy answers may with the batch that they were computed in.

A target may give several texts for one request: each is admissible, but for one that is another with events lost or
repeated in its middle, for no model does that. Where there are more than `MAX_VARIANTS`, or a text is unlike each of
several variants to its very end, it is not compared, and `compared` says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from contextlab.analysis.alignment import SAME, Differences, differences
from contextlab.analysis.quantiles import value_at
from contextlab.analysis.replies import answered, succeeded
from contextlab.experiment import Ending, Sample

MAX_VARIANTS = 3
STALL_S = 0.5
STALL_FACTOR = 5.0
"""A stall is a time between contents above both `STALL_S` and that many times the control's p99 of it."""
OPEN_S = 0.25
"""A connection that stays open longer than that after `[DONE]` (and twice as long as in the control) is named."""
FOREIGN_CHARS = 8
"""Shorter texts of another request are found in any text."""


class Integrity(StrEnum):
    """What became of one stream."""

    INTACT = "intact"
    VARIED = "another text than undisturbed, as the target sent it"
    OPEN_AFTER_END = "open after its end"
    STALLED = "stalled"
    USAGE_WRONG = "usage wrong"
    NO_TERMINAL = "no terminal"
    ERROR_FRAME = "error frame"
    TWO_TERMINALS = "two terminals"
    TIMED_OUT = "timed out while it came"
    HALF_OPEN = "half-open"
    CUT = "cut"
    RESET = "reset"
    MISSING = "events missing"
    DUPLICATED = "events duplicated"
    CORRUPTED = "corrupted"
    FOREIGN = "text of another request"
    TIMED_OUT_BEFORE_FIRST = "timed out before its first content"
    HTTP_ERROR = "HTTP error"
    GARBLED = "not HTTP"
    UNREACHED = "unreached"
    REFUSED = "refused"
    UNSENT = "unsent"


class Noticed(StrEnum):
    """Who tells a reader that something is wrong: the first of these that does."""

    NOTHING = "nothing is wrong"
    TRANSPORT = "transport"
    """The connection was refused or reset, or HTTP was cut off before the end that it promised."""
    PROTOCOL = "protocol"
    """An HTTP error, an error frame, no finish_reason, no `[DONE]`, two ends, JSON or UTF-8 that is none."""
    TIMEOUT = "a time limit of its own"
    NOBODY = "nobody"
    """Only the reference shows it."""


TEXT = (Integrity.FOREIGN, Integrity.CORRUPTED, Integrity.DUPLICATED, Integrity.MISSING)
"""Harm to the text itself, the worst first."""
DAMAGE = frozenset(
    {
        *TEXT,
        Integrity.RESET,
        Integrity.CUT,
        Integrity.HALF_OPEN,
        Integrity.TWO_TERMINALS,
        Integrity.NO_TERMINAL,
        Integrity.USAGE_WRONG,
    }
)
"""What damages a stream that began and did not come whole. An error frame is the target's own word, not damage."""
_ORDER = (
    *TEXT,
    Integrity.RESET,
    Integrity.CUT,
    Integrity.HALF_OPEN,
    Integrity.TIMED_OUT,
    Integrity.TWO_TERMINALS,
    Integrity.ERROR_FRAME,
    Integrity.NO_TERMINAL,
    Integrity.USAGE_WRONG,
    Integrity.STALLED,
    Integrity.OPEN_AFTER_END,
    Integrity.VARIED,
)
_BY_TRANSPORT = frozenset({Ending.RESET, Ending.FIN, Ending.GARBLED})
_BY_TIMEOUT = frozenset({Integrity.HALF_OPEN, Integrity.TIMED_OUT, Integrity.STALLED, Integrity.OPEN_AFTER_END})
_BY_PROTOCOL = frozenset({Integrity.TWO_TERMINALS, Integrity.ERROR_FRAME, Integrity.NO_TERMINAL})

Variants = Sequence[Sequence[str]]
"""The texts that the undisturbed target gave for one request, each as its events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """What is usual without faults. `usage`: the completion_tokens counted for a text, by (request, text)."""

    stall_s: float = STALL_S
    open_s: float = OPEN_S
    usage: Mapping[tuple[int, str], frozenset[int]] = field(default_factory=dict)


USUAL = Norms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of one stream. `where`: the place, in words. `begun`: an HTTP success came. `whole`: all of the
    text and one proper end came. `compared`: its text was held against a reference."""

    name: Integrity
    seen: frozenset[Integrity] = frozenset()
    where: str = ""
    noticed: Noticed = Noticed.NOTHING
    begun: bool = True
    whole: bool = False
    compared: bool = True

    @property
    def damaged(self) -> bool:
        """Whether a stream that began lost, repeated or changed something."""
        return self.begun and not self.whole and self.name in DAMAGE


INTACT = Reading(name=Integrity.INTACT, seen=frozenset({Integrity.INTACT}), whole=True)
_INTACT_UNCOMPARED = Reading(
    name=Integrity.INTACT, seen=frozenset({Integrity.INTACT}), whole=True, compared=False, where="text not compared"
)


# ── what is usual ────────────────────────────────────────────────────────────────────────────────


def norms(control: Iterable[Sample]) -> Norms:
    """What is usual, from the requests of an arm (or a phase) without faults."""
    gaps: list[float] = []
    open_s: list[float] = []
    usage: dict[tuple[int, str], set[int]] = {}
    for sample in control:
        if not answered(sample):
            continue
        times = sample.content_s
        gaps += [later - earlier for earlier, later in pairwise(times)]
        if sample.open_after_end_s is not None:
            open_s.append(sample.open_after_end_s)
        if sample.usage is not None and sample.usage.completion_tokens is not None:
            usage.setdefault((sample.mixed, "".join(sample.pieces)), set()).add(sample.usage.completion_tokens)
    return Norms(
        stall_s=max(STALL_S, STALL_FACTOR * value_at(sorted(gaps), 0.99)) if gaps else STALL_S,
        open_s=max(OPEN_S, 2 * max(open_s, default=0.0)),
        usage={key: frozenset(counts) for key, counts in usage.items()},
    )


def references_of(samples: Iterable[Sample], num_requests: int) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """For each request of the mix the texts of its whole answers, the most frequent first, as `Trial.references`."""
    found: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(num_requests)]
    for sample in samples:
        if answered(sample) and 0 <= sample.mixed < num_requests:
            found[sample.mixed][sample.pieces] += 1
    variants = []
    for counter in found:
        by_text: dict[str, tuple[str, ...]] = {}
        for pieces, _ in counter.most_common():
            by_text.setdefault("".join(pieces), pieces)
        variants.append(tuple(by_text.values()))
    return tuple(variants)


# ── judging ──────────────────────────────────────────────────────────────────────────────────────


def admissible(variants: Variants) -> tuple[Sequence[str], ...]:
    """The variants that can be told apart by their text and are not each other's damage, in their order."""
    kept: list[Sequence[str]] = []
    for variant in variants:
        found = [differences(variant, other) for other in kept]
        if any(one == SAME or (one.begins is None and one.rejoins and not one.changed) for one in found):
            continue
        kept.append(variant)
    return tuple(kept)


def judge_all(samples: Iterable[Sample], references: Sequence[Variants], usual: Norms = USUAL) -> dict[int, Reading]:
    """The reading of each sample by its index; `references` as in `Trial`."""
    allowed = [admissible(variants) for variants in references]
    return {sample.index: judge(sample, allowed, usual) for sample in samples}


def judge(sample: Sample, references: Sequence[Variants], usual: Norms = USUAL) -> Reading:
    """What became of one stream. `references`: for each request of the mix its `admissible` variants."""
    mixed = sample.mixed
    if (reading := _no_stream(sample)) is not None:
        return reading
    variants = references[mixed] if 0 <= mixed < len(references) else ()
    difference = _best(sample.pieces, variants) if 0 < len(variants) <= MAX_VARIANTS else None
    if difference is not None and len(variants) > 1 and _unlike(difference):
        difference = None
    varied = bool(sample.as_sent) and difference is not None and _differs(difference)
    if varied and not _is_of_another("".join(sample.pieces), mixed, references):
        difference = None
    seen = set(_of_text(sample, difference, mixed, references)) | ({Integrity.VARIED} if varied else set())
    seen |= _of_end(sample, difference, usual)
    if not _usage_right(sample, mixed, usual):
        seen.add(Integrity.USAGE_WRONG)
    compared = difference is not None
    if not seen:
        return INTACT if compared else _INTACT_UNCOMPARED
    name = next(one for one in _ORDER if one in seen)
    harm = seen & {*TEXT, Integrity.TWO_TERMINALS, Integrity.USAGE_WRONG}
    return Reading(
        name=name,
        seen=frozenset(seen),
        where=_where(sample, difference, name),
        noticed=_noticed(sample, seen),
        whole=not harm and answered(sample) and difference in (None, SAME),
        compared=compared,
    )


def _no_stream(sample: Sample) -> Reading | None:
    """The name of a request that got no stream at all; None where one began."""
    if sample.ending is Ending.UNSENT and not succeeded(sample):
        return Reading(name=Integrity.UNSENT, begun=False, compared=False, seen=frozenset({Integrity.UNSENT}))
    if succeeded(sample):
        if sample.ending is not Ending.TIMEOUT or sample.content_s or sample.error_frames or sample.num_done:
            return None
        name, noticed = Integrity.TIMED_OUT_BEFORE_FIRST, Noticed.TIMEOUT
    elif sample.status is not None:
        name, noticed = Integrity.HTTP_ERROR, Noticed.PROTOCOL
    else:
        name, noticed = {
            Ending.REFUSED: (Integrity.REFUSED, Noticed.TRANSPORT),
            Ending.UNREACHED: (Integrity.UNREACHED, Noticed.TRANSPORT),
            Ending.RESET: (Integrity.RESET, Noticed.TRANSPORT),
            Ending.GARBLED: (Integrity.GARBLED, Noticed.TRANSPORT),
            Ending.TIMEOUT: (Integrity.TIMED_OUT_BEFORE_FIRST, Noticed.TIMEOUT),
        }.get(sample.ending, (Integrity.CUT, Noticed.TRANSPORT))
    seen = {name} | ({Integrity.HALF_OPEN} if name is Integrity.TIMED_OUT_BEFORE_FIRST else set())
    where = "before its first content" if succeeded(sample) else "before the answer"
    return Reading(
        name=name,
        seen=frozenset(seen),
        where=f"HTTP {sample.status}" if name is Integrity.HTTP_ERROR else where,
        noticed=noticed,
        begun=succeeded(sample),
        compared=False,
    )


def _best(pieces: Sequence[str], variants: Variants) -> Differences:
    """How it differs from the variant that it is most like; a beginning of one counts before anything that differs."""
    text = "".join(pieces)
    if any(text == "".join(variant) for variant in variants):
        return SAME
    found = [differences(pieces, variant) for variant in variants]
    return min(found, key=lambda one: (one.begins is None, one.cost))


def _unlike(difference: Differences) -> bool:
    """Whether a text differs from where it does to its very end: a variant of its own, for all that can be told."""
    return difference.begins is None and not difference.rejoins and difference.cost > 1


def _differs(difference: Differences) -> bool:
    """Whether a text is more than cut short."""
    return bool(
        difference.added or difference.changed or difference.repeated or (difference.lost and difference.begins is None)
    )


def _of_text(
    sample: Sample, difference: Differences | None, mixed: int, references: Sequence[Variants]
) -> Iterable[Integrity]:
    if len(set(sample.reply_ids)) > 1:
        yield Integrity.FOREIGN
    if sample.num_bad_json or sample.num_bad_utf8 or sample.ending is Ending.GARBLED:
        yield Integrity.CORRUPTED
    if difference is None or difference == SAME:
        return
    strange = [*difference.added, *(text for _, text in difference.changed)]
    if any(_is_of_another(text, mixed, references) for text in [*strange, "".join(sample.pieces)]):
        yield Integrity.FOREIGN
    if strange:
        yield Integrity.CORRUPTED
    if difference.repeated:
        yield Integrity.DUPLICATED
    if difference.lost and (difference.begins is None or sample.finish_reason is not None or sample.num_done):
        yield Integrity.MISSING


def _is_of_another(text: str, mixed: int, references: Sequence[Variants]) -> bool:
    """Whether a text is found in what another request is answered with, and not in the answers to this one."""
    if len(text) < FOREIGN_CHARS or any(text in "".join(variant) for variant in references[mixed]):
        return False
    others = (variant for number, variants in enumerate(references) if number != mixed for variant in variants)
    return any(text in "".join(variant) for variant in others)


def _of_end(sample: Sample, difference: Differences | None, usual: Norms) -> set[Integrity]:
    """What is wrong with how it ended and with the time that it took."""
    seen: set[Integrity] = set()
    done, finished = sample.num_done > 0, sample.finish_reason is not None
    proper = answered(sample)
    if sample.ending is Ending.RESET:
        seen.add(Integrity.RESET)
    elif sample.ending is Ending.FIN:
        seen.add(Integrity.CUT)
    elif sample.ending in (Ending.TIMEOUT, Ending.UNSENT) and not proper and not sample.error_frames:
        seen.add(Integrity.HALF_OPEN if _silence_s(sample) > usual.stall_s else Integrity.TIMED_OUT)
    if sample.num_done > 1 or len(sample.error_frames) > 1 or (sample.error_frames and finished):
        seen.add(Integrity.TWO_TERMINALS)
    if sample.error_frames:
        seen.add(Integrity.ERROR_FRAME)
    elif sample.ending is Ending.WHOLE and not proper:
        cut_short = difference is not None and difference.begins is not None and not finished and not done
        seen.add(Integrity.CUT if cut_short else Integrity.NO_TERMINAL)
    if proper and _is_open(sample, usual):
        seen.add(Integrity.OPEN_AFTER_END)
    if _longest_gap_s(sample) > usual.stall_s:
        seen.add(Integrity.STALLED)
    return seen


def _silence_s(sample: Sample) -> float:
    """How long nothing had come when it ended."""
    if sample.ended_s is None:
        return math.inf
    return sample.ended_s - (sample.content_s[-1] if sample.content_s else sample.sent_s or sample.due_s)


def _is_open(sample: Sample, usual: Norms) -> bool:
    return sample.ending is Ending.TIMEOUT or (sample.open_after_end_s or 0.0) > usual.open_s


def _longest_gap_s(sample: Sample) -> float:
    """The longest time between contents, and from the last to a proper end (less the time it was held open)."""
    times = sample.content_s
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if times and answered(sample) and sample.ended_s is not None and sample.ending is Ending.WHOLE:
        gaps.append(sample.ended_s - times[-1] - (sample.open_after_end_s or 0.0))
    return max(gaps, default=0.0)


def _usage_right(sample: Sample, mixed: int, usual: Norms) -> bool:
    """Whether the tokens that it was told to have are what the same text had without faults; True if unknown."""
    counts = usual.usage.get((mixed, "".join(sample.pieces)))
    if counts is None or not answered(sample):
        return True
    return sample.usage is not None and sample.usage.completion_tokens in counts


def _noticed(sample: Sample, seen: set[Integrity]) -> Noticed:
    if seen == {Integrity.VARIED}:
        return Noticed.NOTHING
    if sample.ending in _BY_TRANSPORT:
        return Noticed.TRANSPORT
    if sample.num_bad_json or sample.num_bad_utf8 or seen & _BY_PROTOCOL or (Integrity.CUT in seen):
        return Noticed.PROTOCOL
    return Noticed.TIMEOUT if seen & _BY_TIMEOUT else Noticed.NOBODY


def _where(sample: Sample, difference: Differences | None, name: Integrity) -> str:
    """The place of what gave the stream its name, in words; events count from 0."""
    if name is Integrity.FOREIGN and len(set(sample.reply_ids)) > 1:
        return "more than one reply id"
    if name is Integrity.CORRUPTED and (difference is None or not (difference.changed or difference.added)):
        return "in its framing"
    if name in TEXT and difference is not None:
        return f"from event {difference.first}"
    if name is Integrity.USAGE_WRONG:
        counted = sample.usage.completion_tokens if sample.usage else None
        return f"{'no' if counted is None else counted} completion_tokens for a text that has others"
    if name is Integrity.STALLED:
        return f"{_longest_gap_s(sample):.3g} s without content"
    if name in (Integrity.TWO_TERMINALS, Integrity.OPEN_AFTER_END):
        return "at its end"
    if not sample.content_s:
        return "before its first content"
    if sample.num_done:
        return "after [DONE]"
    if sample.finish_reason is not None:
        return "before [DONE]"
    if difference == SAME:
        return "before finish_reason"
    return f"after event {len(sample.content_s) - 1}"
