"""How the events of a stream differ from those that should have come: lost, repeated, changed, added; pure.

First what needs no search: the same text (however it was cut into events), a beginning of it, one change in one place,
by events and then by characters. Else the cheapest alignment of the events, found in a band around the diagonal.

Ambiguous, and said so here: of equal events in a row it cannot be told which one was lost or repeated, only that one
was; a lost last event is the same as an early end; an event that was changed into its neighbour counts as changed,
although "lost and repeated" would explain it too (the fewer changes win).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_CELLS = 100_000
"""Pairs of events that one alignment looks at (a fifth of a second). Texts too unlike for that are compared event by
event as they stand, and what was found in a narrower band stands where a wider one would be too much."""
_LOST, _ADDED, _REPEATED, _CHANGED = 10, 10, 9, 10  # costs: a repetition is likelier than text from nowhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What differs, in events. `begins`: so many events came and were right, then no more (else None).

    `added`: texts that should not be there and repeat nothing near. `changed`: (should be, is). `first`: the number of
    the first event that is off. `rejoins`: the text finds back to what it should be before its end.
    """

    lost: int = 0
    repeated: int = 0
    changed: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    begins: int | None = None
    first: int | None = None
    rejoins: bool = True

    @property
    def cost(self) -> int:
        """How many events are off; 0 for the same text."""
        return self.lost + self.repeated + len(self.changed) + len(self.added)


SAME = Differences()


def differences(got: Sequence[str], wanted: Sequence[str]) -> Differences:
    """How the events that came differ from those that were to come. Equal texts are `SAME`, whatever their events."""
    text, whole = "".join(got), "".join(wanted)
    if text == whole:
        return SAME
    if whole.startswith(text):
        came = _events_within(wanted, len(text))
        return Differences(lost=max(1, len(wanted) - came), begins=len(got), first=came, rejoins=False)
    head = _common(got, wanted)
    tail = _common(got[head:][::-1], wanted[head:][::-1])
    new, old = got[head : len(got) - tail], wanted[head : len(wanted) - tail]
    if not new or not old or len(new) == len(old) == 1:
        return _merged([_step(got, head, new, old)], head, tail > 0)
    by_text = _by_text(text, whole)
    if by_text is not None:
        return _merged([by_text], head, rejoins=True)
    return _merged(_aligned(new, old, got, head), head, tail > 0)


def _merged(steps: Sequence[Differences], first: int, rejoins: bool) -> Differences:
    return Differences(
        lost=sum(step.lost for step in steps),
        repeated=sum(step.repeated for step in steps),
        changed=tuple(pair for step in steps for pair in step.changed),
        added=tuple(text for step in steps for text in step.added),
        first=first,
        rejoins=rejoins,
    )


def _step(got: Sequence[str], at: int, new: Sequence[str], old: Sequence[str]) -> Differences:
    """One difference in one place: `new` at `got[at]` stands where `old` should."""
    if not new:
        return Differences(lost=len(old))
    if not old:
        return _surplus(got, at, len(new))
    return Differences(changed=tuple(zip(old, new, strict=True)))


def _surplus(got: Sequence[str], at: int, num: int) -> Differences:
    """Events that are too many: a repetition of those right before (or, as the cut may fall, right after) them?"""
    events = list(got[at : at + num])
    if events in (list(got[max(0, at - num) : at]), list(got[at + num : at + 2 * num])):
        return Differences(repeated=num)
    if all(place and got[place - 1] == event for place, event in enumerate(events, at)):
        return Differences(repeated=num)
    return Differences(added=("".join(events),))


def _by_text(text: str, whole: str) -> Differences | None:
    """The one stretch of characters that was lost, repeated or added; None where it takes more than that."""
    head = _common(text, whole)
    tail = _common(text[head:][::-1], whole[head:][::-1])
    new, old = text[head : len(text) - tail], whole[head : len(whole) - tail]
    if not new:
        return Differences(lost=1)
    if not old:
        return Differences(repeated=1) if text[:head].endswith(new) else Differences(added=(new,))
    return None


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items two sequences begin with in common."""
    length = min(len(one), len(other))
    return next((place for place in range(length) if one[place] != other[place]), length)


def _events_within(events: Sequence[str], num_chars: int) -> int:
    """How many whole events fit into that many characters."""
    fit = 0
    for event in events:
        num_chars -= len(event)
        if num_chars < 0:
            break
        fit += 1
    return fit


# ── alignment ────────────────────────────────────────────────────────────────────────────────────


def _aligned(new: Sequence[str], old: Sequence[str], got: Sequence[str], offset: int) -> list[Differences]:
    """The cheapest steps from `old` to `new`, which is `got[offset:…]`; the band is widened until it is surely that."""
    band, widest = abs(len(new) - len(old)) + 8, max(len(new), len(old))
    steps = [_as_they_stand(new, old)]
    while 2 * min(band, widest) * len(old) <= MAX_CELLS:
        cost, steps = _in_band(new, old, got, offset, band)
        if cost < _REPEATED * band or band >= widest:
            break
        band *= 2
    return steps


def _as_they_stand(new: Sequence[str], old: Sequence[str]) -> Differences:
    """Event against event, and what is over on either side."""
    num = min(len(new), len(old))
    return Differences(
        changed=tuple(pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]),
        lost=len(old) - num,
        added=("".join(new[num:]),) if len(new) > num else (),
    )


def _in_band(
    new: Sequence[str], old: Sequence[str], got: Sequence[str], offset: int, band: int
) -> tuple[int, list[Differences]]:
    """The cheapest alignment that leaves the diagonal by at most `band` events: its cost and its steps."""
    far = 1 << 60
    rows: list[dict[int, tuple[int, str]]] = []
    for i in range(len(old) + 1):
        row: dict[int, tuple[int, str]] = {}
        above = rows[-1] if rows else {}
        for j in range(max(0, i - band), min(len(new), i + band) + 1):
            best = (0, "") if i == j == 0 else (far, "")
            if i and j:
                same = old[i - 1] == new[j - 1]
                best = min(best, (above.get(j - 1, (far, ""))[0] + (0 if same else _CHANGED), "=" if same else "~"))
            if j:
                place = offset + j - 1
                again = place > 0 and got[place] == got[place - 1]
                best = min(best, (row.get(j - 1, (far, ""))[0] + (_REPEATED if again else _ADDED), "+"))
            if i:
                best = min(best, (above.get(j, (far, ""))[0] + _LOST, "-"))
            row[j] = best
        rows.append(row)
    steps, i, j, surplus = [], len(old), len(new), 0
    while i or j:
        kind = rows[i][j][1]
        if surplus and kind != "+":
            steps.append(_surplus(got, offset + j, surplus))
            surplus = 0
        if kind in "=~":
            i, j = i - 1, j - 1
            if kind == "~":
                steps.append(Differences(changed=((old[i], new[j]),)))
        elif kind == "+":
            j, surplus = j - 1, surplus + 1
        else:
            i -= 1
            steps.append(Differences(lost=1))
    if surplus:
        steps.append(_surplus(got, offset + j, surplus))
    return rows[-1][len(new)][0], steps
