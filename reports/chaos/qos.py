"""Who was served how well: a row for each kind of request and phase in which something was lost, who lost first, and
whether the others were told when to come again; pure.

wide      kind  phase  asked  served whole  cut  refused  timed out  TTFT p50       a table
          prompt-1, during: 27 of 60 served whole, …                                sentences, where that does not fit
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from contextlab.analysis.qos import Fate, Loss, Quality, losses, qualities
from contextlab.experiment import Phase
from contextlab.reports.chaos.figures import Shown, Unit, quantile
from contextlab.reports.chaos.table import cell
from contextlab.reports.chaos.words import percent, seconds
from contextlab.reports.parts.facts import Fact
from contextlab.reports.parts.layout import GAP, grid
from contextlab.reports.parts.wording import clean, listed, num

LABEL = "QoS"
MOST_LOSERS = 4
"""So many kinds are named in the order in which they lost something; the rest are counted."""
_HEADS = ("served badly", "phase", "asked", "served whole", "cut", "refused", "timed out", "TTFT p50")


def suffered(one: Shown) -> list[Quality]:
    """The kinds and phases in which something was lost."""
    return [each for each in qualities(one.trial) if each.share_served < 1]


def table(one: Shown, width: int) -> list[Text]:
    """A table of at most `width` cells; no lines where nothing was lost, or where it does not fit."""
    found = suffered(one)
    if not found:
        return []
    rows: list[list[Text]] = [[Text(head, "bold") for head in _HEADS]]
    last = ""
    for each in found:
        kind = clean(each.kind)
        cells = ("" if kind == last else kind, str(each.phase), str(each.n), *_figures(each))
        rows.append([Text(words, "yellow" if each.phase is Phase.DURING else "") for words in cells])
        last = kind
    needed = sum(max(row[column].cell_len for row in rows) for column in range(len(_HEADS))) + GAP * (len(_HEADS) - 1)
    return grid(rows, width, right=range(2, len(_HEADS))) if needed <= width else []


def _figures(each: Quality) -> tuple[str, ...]:
    counts = [each.fates.get(fate, 0) for fate in (Fate.CUT, Fate.REFUSED, Fate.TIMED_OUT)]
    return (percent(round(each.share_served, 4)), *map(str, counts), _ttft(each))


def _ttft(each: Quality) -> str:
    return cell(quantile(each.ttft_p50), Unit.SECONDS)[0]


def sentences(one: Shown) -> list[Fact]:
    """The rows of the table in words."""
    return [Fact(label=LABEL, text=_row_words(each)) for each in suffered(one)]


def _row_words(each: Quality) -> str:
    lost = [f"{each.fates[fate]} {fate}" for fate in (Fate.CUT, Fate.REFUSED, Fate.TIMED_OUT) if each.fates.get(fate)]
    served = f"{each.fates.get(Fate.SERVED, 0)} of {each.n} served whole"
    return f"{clean(each.kind)}, {each.phase}: {', '.join((served, *lost))}; TTFT p50 {_ttft(each)}"


def facts(one: Shown) -> list[Fact]:
    """Who lost first and until when, who lost nothing, and what was said to those that were refused."""
    lost, everyone = losses(one.trial), qualities(one.trial)
    found = []
    if lost:
        found.append(Fact(label=LABEL, text=f"lost first: {_losers(lost)}"))
        num_lost, last_s = sum(each.num_lost for each in lost), max(each.last_s for each in lost)
        when = f"the last of them {seconds(last_s)} after the disturbance began"
        text = f"{num_lost} of {_num_asked(everyone)} requests lost, {when}"
        found.append(Fact(label=LABEL, text=text))
        kinds = {each.mixed for each in lost}
        spared = dict.fromkeys(each.kind for each in everyone if each.mixed not in kinds)
        if spared:
            found.append(Fact(label=LABEL, text=f"nothing lost: {listed(list(spared), MOST_LOSERS)}"))
    refused = sum(each.fates.get(Fate.REFUSED, 0) for each in everyone)
    if refused:
        clear, rule = sum(each.num_clear for each in everyone), "429 or 503 with Retry-After"
        text = f"{clear or 'none'} of {num(refused, 'refusal')} said when to come again ({rule})"
        found.append(Fact(label=LABEL, text=text))
    return found


def _losers(lost: Sequence[Loss]) -> str:
    """`prompt-1, refused after 0.2 s; prompt-2, cut after 0.4 s`: since the first disturbance began."""
    named = [f"{clean(each.kind)}, {each.first_fate} after {seconds(each.first_s)}" for each in lost[:MOST_LOSERS]]
    more = f"; and {len(lost) - MOST_LOSERS} more" if len(lost) > MOST_LOSERS else ""
    return "; ".join(named) + more


def _num_asked(everyone: Sequence[Quality]) -> int:
    return sum(each.n for each in everyone if each.phase in (Phase.DURING, Phase.AFTER))
