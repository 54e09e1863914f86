"""The page as text: whole, self-contained, honest about what is missing, and deaf to what a target says."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import msgspec
import pytest
from typer.testing import CliRunner

from contextlab.cli import app
from contextlab.lab.journal import Journal
from contextlab.model import Run
from contextlab.reports import html
from contextlab.reports.page import embedding, evidence, provenance
from contextlab.reports.page.rendering import rendered
from contextlab.reports.page.section import Section
from tests.reports import chaos_sample, gate_sample, html_sample, pareto_sample, sample

VOID = {"meta", "link", "input", "br", "img"}
LOADS = {"src", "srcset", "data", "action", "poster", "background", "xlink:href"}


class Reader(HTMLParser):
    """Reads a page and keeps what a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.raw: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice: {attrs}"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("style", "script"):
            self.raw[self._open[-1]] = self.raw.get(self._open[-1], "") + data
        else:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every element of that name."""
        return [attributes for name, attributes in self.tags if name == tag]


@cache
def page_of(name: str) -> str:
    """The page of a run of `html_sample.RUNS`, made once."""
    return html.page(html_sample.RUNS[name]())


def read(run: Run) -> Reader:
    return Reader(html.page(run))


# ── every kind of run ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", html_sample.RUNS)
def test_a_page_is_whole_and_needs_nothing(name: str) -> None:
    text = page_of(name)
    page = Reader(text)
    assert len(page.all("h1")) == 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        assert not LOADS & attributes.keys(), tag
        assert not [each for each in attributes if each.startswith("on") or each == "style"], tag
        address = attributes.get("href", "#")
        assert address.startswith(("#", "data:")), address
        assert not address.startswith("#") or len(address) == 1 or address[1:] in ids, address
        assert set(attributes.get("aria-labelledby", "").split()) <= set(ids)
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert "url(" not in page.raw["style"]
    assert "@import" not in page.raw["style"]
    assert len(text.encode()) < html.MOST_BYTES
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text)


@pytest.mark.parametrize("name", html_sample.RUNS)
def test_a_chart_says_what_it_shows_twice(name: str) -> None:
    text = page_of(name)
    for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL):
        drawings = re.findall(r"<svg class=\"(?:wide|narrow)\".*?</svg>", figure, re.DOTALL)
        assert len(drawings) == 2
        for drawing in drawings:
            assert re.search(r"<title id=.*?>.+</title>\n<desc id=.*?>.+\.</desc>", drawing)
            assert "nan" not in drawing.lower().replace("tenant", "")
    if name.startswith("pareto") and "<figure" in text:  # its table stands beside it, not in it
        assert 'aria-label="Settings"' in text


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (sample.bare, "the run was killed before it could finish"),
        (sample.empty, "no scenario can run here"),
        (sample.killed, "Stopped in prompt-too-long/chat-512"),
        (chaos_sample.bare, "No experiment began: exit 5: nothing was measured."),
        (chaos_sample.empty, "Nothing was measured: the run ended before its first arm."),
        (chaos_sample.gate, "The faults were not tried: there was no steady state without them."),
        (gate_sample.bare, "No gate is on record:"),
        (gate_sample.damaged, "cannot be read"),
        (gate_sample.empty, "No block was measured:"),
        (pareto_sample.bare, "No sweep began: exit 5: the server did not start."),
        (pareto_sample.empty, "Nothing was measured: exit 3: the host is contended"),
    ],
)
def test_where_there_is_nothing_it_says_why(run: object, why: str) -> None:
    assert callable(run)
    assert why in read(run()).text


@pytest.mark.parametrize("name", ["chaos-loss", "pareto-whole", "overflow-failing"])
def test_a_record_that_is_cut_anywhere_still_has_a_page(name: str) -> None:
    whole = html_sample.RUNS[name]()
    for share in (0.0, 0.01, 0.3, 0.7, 0.99):
        records = whole.records[: int(len(whole.records) * share)]
        assert "killed before it could finish" in read(replace(whole, records=records, end=None)).text


def test_a_damaged_record_is_told_and_not_fatal() -> None:
    broken = (
        {**each, "sample": {"index": "no"}} if each["kind"] == "sample" else each
        for each in chaos_sample.loss().records
    )
    assert "damaged" in read(replace(chaos_sample.loss(), records=tuple(broken))).text


# ── what stands in it ────────────────────────────────────────────────────────────────────────────


def test_it_begins_with_the_verdict_and_what_to_do() -> None:
    text = read(sample.failing()).text
    parts = ["FAILED", "breaks at its window of 512 tokens", "What to do next", "--no-kv-unified", "contextlab replay"]
    parts += ["Limits by layer", "Outcomes", "Findings", "Provenance", "To make it again", "seed 7", "Linux x86_64"]
    at = text.index("✗ FAILED")  # past the links to the sections
    for part in parts:
        at = text.index(part, at)


def test_chaos_tells_phases_bounds_recovery_and_deaths() -> None:
    text = html.page(chaos_sample.beside())
    for said in ("pause", "died", "recovered", "p90 ttft &lt; 800ms", "backlog", "stopped by pause at 10.0 s"):
        assert said in text
    assert 'class="window"' in text
    assert 'class="deed"' in text
    heads = re.search(r'<table class="phases">.*?</thead>', text, re.DOTALL)
    assert heads is not None
    assert re.findall(r">(control|before|during|after|during / control)<", heads[0]) == [
        *("control", "before", "during", "after", "during / control")
    ]


def test_a_profile_beside_the_record_becomes_a_chart(tmp_path: Path) -> None:
    run = chaos_sample.loss()
    records = tuple(
        {**each, "measured": {"profile": "matmul 75%", "profile_file": "../profile.txt"}}
        if each["kind"] == "trial"
        else each
        for each in run.records
    )
    named = replace(run, records=records, path=str(tmp_path))
    assert "py-spy" not in html.page(named)  # it is gone
    (tmp_path / "profile.txt").write_text("main;matmul 75\nmain;<script>x</script> 25\n", encoding="utf-8")
    text = html.page(named)
    assert "100 samples; most of them ended in matmul, 75%." in text
    assert "<script>x" not in text


def test_a_sweep_names_what_was_chosen_and_where_the_slo_breaks() -> None:
    page = html.page(pareto_sample.whole())
    assert 'class="best"' in page
    assert 'class="broken"' in page
    assert "best under the SLO: slots=4 concurrency=4" in page
    assert "the server refused it: HTTP 500 at start" in page


def test_a_gate_shows_each_metric_against_its_margin() -> None:
    text = html.page(gate_sample.regressed())
    assert "Change for the worse, against the margin" in text
    assert 'class="effect failed"' in text
    assert Reader(text).text.count("REGRESSED") > 2
    assert "Every block:" in text
    assert "2026" in Reader(html.page(gate_sample.stored())).text
    assert "Noise of a pair" in html.page(gate_sample.calibrated())


def test_the_request_and_the_reply_are_shown_as_text() -> None:
    text = html.page(html_sample.answered())
    assert "POST /v1/completions" in text
    assert "&lt;script&gt;window.pwned = 1&lt;/script&gt;" in text
    assert html_sample.SCRIPT not in text
    assert "characters left out here" in text
    assert len(Reader(text).all("script")) == 1
    assert not Reader(text).all("img")


@pytest.mark.parametrize("make", [sample.hostile, chaos_sample.hostile, pareto_sample.hostile])
def test_no_text_from_outside_becomes_markup(make: object) -> None:
    assert callable(make)
    page = read(make(f"'\">{html_sample.SCRIPT}<!-- </style> {{{{ 7*7 }}}} \x1b[31m"))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert "49" not in re.findall(r"\{\{ .*? \}\}|49 \\x1b", page.text)
    assert "\\x1b[31m" in page.text


def test_long_words_keep_their_beginning_and_their_end() -> None:
    assert evidence.block("a\r\n\x00b") == "a\\r\n\\x00b"
    shown = evidence.block("x" * 5000 + "END")
    assert shown.endswith("END")
    assert "4003 characters left out" in shown


def test_the_policy_names_the_style_and_the_script() -> None:
    page = read(sample.held())
    policy = next(each["content"] for each in page.all("meta") if "http-equiv" in each)
    for name in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.raw[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")


def test_a_template_may_not_ask_for_what_is_not_there() -> None:
    with pytest.raises(jinja2.UndefinedError):
        rendered("x", [Section(name="limits", title="Limits", facts={"facts": []})])


# ── the record inside ────────────────────────────────────────────────────────────────────────────


def test_the_record_comes_back_whole() -> None:
    run = chaos_sample.loss()
    page = read(run)
    address = next(each["href"] for each in page.all("a") if "download" in each)
    data = gzip.decompress(base64.b64decode(address.removeprefix("data:application/gzip;base64,")))
    assert [msgspec.json.decode(line) for line in data.splitlines()] == list(run.records)
    assert html.page(run) == html.page(chaos_sample.loss())


def test_a_record_that_is_too_large_stays_in_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_BYTES", 100), ("MOST_RAW_BYTES", 1000)):
        with monkeypatch.context() as patch:
            patch.setattr(embedding, name, most)
            page = read(chaos_sample.loss())
        assert not [each for each in page.all("a") if "download" in each]
        assert "too large to stand in this page" in page.text


def test_a_page_over_the_cap_leaves_the_record_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = html.page(chaos_sample.loss())
    monkeypatch.setattr(html, "MOST_BYTES", len(whole.encode()) - 1)
    assert "too large to stand in this page" in html.page(chaos_sample.loss())


@pytest.mark.parametrize("make", [sample.failing, chaos_sample.loss, pareto_sample.whole])
def test_a_usual_run_is_small(make: object) -> None:
    assert callable(make)
    assert len(html.page(make()).encode()) < 300_000


# ── two runs ─────────────────────────────────────────────────────────────────────────────────────


def pair(one: Run, other: Run) -> str:
    out = io.StringIO()
    html.write_pair((one, other), out)
    Reader(out.getvalue())
    return out.getvalue()


def test_two_runs_stand_side_by_side() -> None:
    text = pair(sample.failing(), sample.held())
    assert "FAILED against HELD" in text
    row = re.search(
        r'<tr class="differs"><td class="wordy">reply-past-window</td><td class="wordy">SHIFTED.*?</tr>', text
    )
    assert row is not None
    assert "✗ 1 failed" in row[0]
    assert '<tr><td class="wordy">engine</td><td class="wordy">n_batch</td>' in text
    counted = re.findall(r"(\d+ probes?), such as: ", text)  # and not `13 × 64 prompt tokens were not read`
    assert counted
    assert not re.search(r"\d × \d", text)


def test_two_chaos_runs_share_their_experiments() -> None:
    text = pair(chaos_sample.loss(), chaos_sample.loss())
    assert "A, during" in text
    assert "differs" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert "no experiment of the same name" in pair(chaos_sample.loss(), chaos_sample.damaged())


def test_two_sweeps_are_compared_as_frontiers() -> None:
    assert "hypervolume:" in pair(pareto_sample.whole(), pareto_sample.decided())
    assert "different objectives" in pair(pareto_sample.whole(), pareto_sample.three())


@pytest.mark.parametrize("name", html_sample.RUNS)
def test_any_run_beside_another(name: str) -> None:
    run = html_sample.RUNS[name]()
    assert "Verdicts" in pair(run, sample.failing())


# ── written ──────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_that_cannot_say_it_gets_references() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    html.write(sample.failing(), out)
    out.flush()
    assert Reader(raw.getvalue().decode("ascii")).text == read(sample.failing()).text


def test_the_command_writes_one_page_or_two(tmp_path: Path) -> None:
    for name, run in (("one", sample.failing()), ("two", sample.held())):
        with Journal(tmp_path / name, lambda: 0.0) as journal:
            for record in run.records:
                journal.append(str(record["kind"]), **{k: v for k, v in record.items() if k not in ("kind", "at_s")})
    told = [
        CliRunner().invoke(app, ["report", *names, "--as", "html", "--runs", str(tmp_path)])
        for names in (["one"], ["one", "two"])
    ]
    assert [each.exit_code for each in told] == [0, 0]
    assert "A ✗" not in Reader(told[0].stdout).text
    assert "How they were made" in Reader(told[1].stdout).text
    refused = CliRunner().invoke(app, ["report", "one", "two", "--runs", str(tmp_path)])
    assert refused.exception is not None
    assert "shows one run" in str(refused.exception)


def test_many_requests_are_binned_and_the_page_says_so() -> None:
    text = html.page(html_sample.large(6_000))
    assert "3000 requests are drawn in bins of" in text
    assert "6008 records" in text


@pytest.mark.parametrize(
    ("run", "measured"),
    [
        (gate_sample.regressed(), r"\d+ blocks, \d+ records"),
        (pareto_sample.whole(), r"48 measurements, \d+ records"),
        (sample.held(), r"5 probes, \d+ records"),
    ],
)
def test_what_was_measured_is_called_by_its_name(run: Run, measured: str) -> None:
    facts = dict(provenance.section(run).facts["facts"])
    assert re.fullmatch(measured, facts["measured"])
