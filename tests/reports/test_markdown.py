"""Job summary and comment: what they say, what they can never become, and how long they may be."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from contextlab.model import Layer, Outcome, Run, Verdict
from contextlab.reports import comment, markdown
from contextlab.reports.parts.markdown_text import code, prose
from contextlab.reports.parts.wording import clean
from tests.reports import sample
from tests.reports.every import MAKERS, made, written

OURS = {
    *("h3", "h4", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "strong", "b", "em"),
    *("details", "summary"),
}
"""The elements that a summary is made of."""
NASTY = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> [a](javascript:b) ![c](http://d) **e** `f` | g | ~~h~~ "
    "&amp; @octocat #12 http://evil.example www.evil.example :smile: $x$ _i_ __j__ \\k <!-- l --> ]]> snake_case"
)


class Reader(HTMLParser):
    """Collects elements, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        """Text."""
        self.words.append(data)


def rendered(text: str) -> Reader:
    """The Markdown as a page of CommonMark with tables and strikethrough and raw HTML, as GitHub has them."""
    reader = Reader()
    reader.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))
    return reader


def visible(text: str) -> str:
    return html.unescape(text).replace("\u200b", "")


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("write", [markdown.write, comment.write], ids=["summary", "comment"])
def test_no_run_makes_an_element_that_is_not_ours(name: str, write: object) -> None:
    assert callable(write)
    page = rendered(written(write, made(name)))
    assert set(page.tags) <= OURS
    assert page.attributes == []
    assert "\x1b" not in "".join(page.words)


@given(st.text(max_size=80))
@example(NASTY)
@example(sample.HOSTILE)
def test_a_text_is_shown_as_it_is_and_is_nothing_else(text: str) -> None:
    for made_of, around in ((prose(text), []), (code(text), ["code"] if text else [])):
        page = rendered(f"x {made_of} y")
        assert page.tags == ["p", *around]
        assert page.attributes == []
        assert " ".join("".join(page.words).replace("\u200b", "").split()) == " ".join(f"x {clean(text)} y".split())


def test_nobody_is_called_and_nothing_is_linked() -> None:
    text = prose(NASTY)
    assert not re.search(r"https?://|www\.|:smile", text)  # (the source decides what is a link)
    assert not re.search(r"@\w|#\d", html.unescape(text))  # (the page decides who is called)
    assert "&#64;&#8203;octocat" in text
    assert "snake_case" in text


def test_a_cell_stays_one_cell() -> None:
    bad = sample.finding(NASTY, NASTY, Outcome.LEAKED, Verdict.FAIL, NASTY, remedy=NASTY, evidence={NASTY: NASTY})
    for line in written(markdown.write, sample.run(bad, code=1)).splitlines():
        if line.startswith("| ") and "---" not in line:
            assert line.count("|") in (3, 4, 5)


def test_the_verdict_comes_first_then_the_limits_then_what_failed() -> None:
    lines = written(markdown.write, sample.failing()).splitlines()
    assert visible(lines[0]).startswith("### ✗ FAILED: smollm2 (llama-server) breaks at its window of 512 tokens: ")
    heads = [line for line in lines if line.startswith("#")]
    assert heads[1:] == ["#### Limits", "#### Outcomes", "#### Failed", "#### Unknown"]
    text = visible("\n".join(lines))
    assert "**what to change** Start llama-server with --no-kv-unified" in text
    assert lines[-1].startswith("Next: <code>contextlab replay ")


def test_what_is_not_measured_leaves_no_empty_head() -> None:
    for name in ("empty", "bare"):
        text = written(markdown.write, getattr(sample, name)())
        assert "####" not in text.replace("#### Limits", "")
        assert "\n\n\n" not in text


def test_chaos_and_sweeps_have_their_tables() -> None:
    chaos = written(markdown.write, made("chaos-loss"))
    assert "|  | control | before | during | after | ratio |" in chaos
    assert re.search(r"\| TTFT p50 \| [\d.]+ ms \([\d.]+–[\d.]+\) \|", chaos)
    sweep = written(markdown.write, made("pareto-whole"))
    assert "| setting | tokens_per_s | p99 ttft | repeats | stands |" in sweep


def test_a_gate_is_its_table_in_the_summary_and_in_the_comment() -> None:
    for write in (markdown.write, comment.write):
        text = written(write, made("gate-regressed"))
        assert "| ✗ | ttft_p50 ↓ | 123 ms | 142 ms | +15.1% (+13.1% to +17.1%) | 5% |" in text
        assert "#### Outcomes" not in text
    assert "The noise of this place" in written(markdown.write, made("gate-calibrated"))


def test_a_killed_run_says_so() -> None:
    text = written(markdown.write, sample.killed())
    assert "the run was killed before it could finish" in text
    assert "Stopped in <code>prompt-too-long/chat-512</code>." in text


# ── size ─────────────────────────────────────────────────────────────────────────────────────────


def crowded(num_causes: int) -> Run:
    """So many causes, each with a long reason in characters of three bytes."""
    found = [
        sample.finding("s", f"p{n}", Outcome.LEAKED, Verdict.FAIL, "表" * 500, remedy=f"change {n}", layer=Layer.ENGINE)
        for n in range(num_causes)
    ]
    return sample.run(*found, code=1, reason="many")


def test_a_summary_keeps_its_size_and_says_what_is_missing() -> None:
    text = written(markdown.write, crowded(5000))
    assert len(text.encode()) <= markdown.MAX_BYTES
    assert len(text.encode()) > markdown.MAX_BYTES // 2
    [left] = [line for line in text.splitlines() if "left out" in line]
    shown = text.count("**what to change**")
    assert left.startswith(f"**{5000 - shown} parts left out**")
    assert "Where this comes from" in text
    assert rendered(text).tags.count("details") == 1 + shown - 1


def test_a_short_run_leaves_nothing_out() -> None:
    assert "left out" not in written(markdown.write, crowded(3))


# ── the comment ──────────────────────────────────────────────────────────────────────────────────


def test_the_comment_is_one_short_table_under_its_mark() -> None:
    lines = written(comment.write, sample.failing()).splitlines()
    assert lines[0] == "<!-- contextlab: overflow smollm2 -->"
    assert lines[1].startswith("**✗ FAILED** ")
    assert sum(line.startswith("| ✗ ") for line in lines) == 3
    assert sum(line.startswith("| ? ") for line in lines) == 1
    assert lines[-1].startswith("40 probes: 6 failed, 1 unknown")


def test_the_mark_is_the_same_for_every_run_of_a_target_and_ends_where_it_should() -> None:
    assert comment.marker(sample.failing()) == comment.marker(sample.held())
    header = {**sample.HEADER, "target": {"name": "--> <script> --"}}
    assert comment.marker(replace(sample.held(), header=header)) == "<!-- contextlab: overflow script -->"


@pytest.mark.parametrize("name", MAKERS)
def test_the_comment_fits_where_it_goes(name: str) -> None:
    assert len(written(comment.write, made(name))) < 16_000


def test_more_rows_than_fit_are_counted() -> None:
    lines = written(comment.write, crowded(30)).splitlines()
    assert sum(line.startswith("| ✗") for line in lines) == comment.MAX_ROWS
    assert "and 22 more in the report" in lines
