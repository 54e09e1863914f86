"""The page in a real browser: it draws, filters, obeys the keyboard, loads nothing, and is accessible.

Driven by Playwright with the Chromium of the system (Debian: chromium); axe-core looks for what is not accessible.
"""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from contextlab.model import Run
from contextlab.reports import html
from tests.reports import chaos_sample, gate_sample, html_sample, pareto_sample, sample

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
PAGES: dict[str, Callable[[], Run]] = {
    "overflow": html_sample.answered,
    "chaos": chaos_sample.beside,
    "short": chaos_sample.undecided,
    "gate": gate_sample.regressed,
    "pareto": pareto_sample.whole,
    "empty": sample.empty,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed here (Debian: chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (extra `dev`)")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as files, as they are opened from a disk; two runs side by side too."""
    found = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (found / f"{name}.html").write_text(html.page(make()), encoding="utf-8")
    with (found / "pair.html").open("w", encoding="utf-8") as out:
        html.write_pair((chaos_sample.loss(), chaos_sample.killed()), out)
    return found


@contextmanager
def opened(browser: Browser, path: Path, width: int = 1280, **how: Any) -> Iterator[Page]:
    """The page, without a network; any word on its console and any request but for itself fails the test."""
    options: dict[str, Any] = {"color_scheme": "light", "reduced_motion": "reduce", "offline": True, **how}
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    odd: list[str] = []
    page.on("console", lambda message: odd.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: odd.append(f"error: {error}"))
    page.on("request", lambda asked: odd.append(f"request: {asked.url[:80]}") if _goes_out(asked.url, path) else None)
    page.goto(path.as_uri())
    try:
        yield page
        assert odd == []
    finally:
        context.close()


def _goes_out(url: str, path: Path) -> bool:
    return not url.startswith("data:") and url.partition("#")[0] != path.as_uri()


def shown_rows(page: Page) -> int:
    return page.locator("[data-row]:visible").count()


# ── how it looks ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*(name for name in PAGES if name != "chaos"), "pair"])
def test_nothing_is_inaccessible_or_too_wide(browser: Browser, folder: Path, name: str) -> None:
    """At both widths, light and dark; at one of each width with everything open that can be opened."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (extra `dev`)")
    with opened(browser, folder / f"{name}.html") as page:
        for width in WIDTHS:
            for scheme in SCHEMES:
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                is_open = (width == WIDTHS[0]) is (scheme == SCHEMES[0])
                page.evaluate(
                    f"document.querySelectorAll('details').forEach((one) => {{ one.open = {str(is_open).lower()} }})"
                )
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                found = axe.Axe().run(page).response["violations"]
                told = [(each["id"], each["nodes"][0]["html"][:200]) for each in found]
                assert told == [], f"{name} at {width}, {scheme}"


def test_charts_are_there_and_fit(browser: Browser, folder: Path) -> None:
    for name, least in (("overflow", 1), ("chaos", 4), ("pareto", 1), ("pair", 1)):
        for width, which in ((1280, "wide"), (390, "narrow")):
            with opened(browser, folder / f"{name}.html", width) as page:
                charts = page.locator(f"svg.{which}:visible")
                assert charts.count() >= least
                assert page.locator("svg[role=img]:visible").count() == charts.count()
                for box in (charts.nth(place).bounding_box() for place in range(charts.count())):
                    assert box is not None
                    assert box["width"] > 200
                    assert box["height"] > 60
                    assert box["x"] >= 0
                    assert box["x"] + box["width"] <= width


def test_paper_shows_the_report_and_no_buttons(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "chaos.html") as page:
        page.emulate_media(media="print")
        assert not page.locator("button:visible, a.button:visible").count()
        assert page.locator("h1").is_visible()


# ── without scripts ──────────────────────────────────────────────────────────────────────────────


def test_it_reads_without_scripts(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "overflow.html", java_script_enabled=False) as page:
        text = page.locator("body").inner_text()
        for said in ("FAILED", "breaks at its window of 512 tokens", "NEIGHBOUR_ABORTED", "What to change", "seed 7"):
            assert said in text
        assert not page.locator("button:visible, input:visible").count()
        details = page.locator("details", has_text="as a table").first
        details.locator("summary").click()
        assert details.locator("table").is_visible()
        assert page.locator("svg.wide").first.is_visible()
        assert page.locator("a[download]").is_visible()


# ── with them ────────────────────────────────────────────────────────────────────────────────────


def test_details_open_by_keyboard(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "overflow.html") as page:
        details = page.locator("details", has_text="The exact request").first
        for _ in range(60):
            page.keyboard.press("Tab")
            if details.locator("> summary").evaluate("(one) => one === document.activeElement"):
                break
        page.keyboard.press("Enter")
        assert details.get_attribute("open") is not None
        assert details.locator("pre").first.is_visible()


def test_filters_narrow_and_stand_in_the_address(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "overflow.html") as page:
        page.locator("#judged > summary").click()
        everything = shown_rows(page)
        page.get_by_role("button", name="failed", exact=False).first.click()
        assert page.url.endswith("#verdict=failed")
        failed = shown_rows(page)
        assert 0 < failed < everything
        assert page.locator("#num-shown").inner_text() == f"{failed} of {everything} judgements shown"
        page.get_by_role("button", name="SHIFTED").click()
        assert shown_rows(page) == 1
        assert page.locator("article.finding:visible").count() == 1
        address = page.url
    with opened(browser, folder / "overflow.html") as page:
        page.goto(address)
        assert shown_rows(page) == 1
        assert page.get_by_role("button", name="SHIFTED").get_attribute("aria-pressed") == "true"
        page.get_by_role("button", name="SHIFTED").click()
        page.locator("#query").fill("emoji")
        assert shown_rows(page) == 1
        page.locator("#query").fill("no such words")
        assert shown_rows(page) == 0


def test_keys(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "overflow.html") as page:
        focused = "document.activeElement.id || document.activeElement.className"
        page.keyboard.press("j")
        first = page.evaluate("document.activeElement.dataset.outcome")
        page.keyboard.press("j")
        second = page.evaluate("document.activeElement.dataset.outcome")
        assert (first, second) == ("NEIGHBOUR_ABORTED", "SHIFTED")
        page.keyboard.press("k")
        assert page.evaluate("document.activeElement.dataset.outcome") == first
        page.keyboard.press("f")
        assert "verdict=failed" in page.url
        page.keyboard.press("f")
        assert "verdict" not in page.url
        page.keyboard.press("/")
        assert page.evaluate(focused) == "query"
        page.keyboard.type("jkft?")
        assert page.locator("#query").input_value() == "jkft?"
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        assert page.locator("#keys").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#keys").is_visible()


def test_the_theme_turns_and_is_kept(browser: Browser, folder: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, folder / "overflow.html") as page:
        light = page.evaluate(paper)
        page.keyboard.press("t")
        dark = page.evaluate(paper)
        assert light != dark
        page.reload()
        assert page.evaluate(paper) == dark
        page.get_by_role("button", name="Light").click()
        assert page.evaluate(paper) == light
    with opened(browser, folder / "overflow.html", color_scheme="dark") as page:
        assert page.evaluate(paper) == dark


def test_a_chart_can_be_enlarged(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "chaos.html") as page:
        page.get_by_role("button", name="Enlarge: The fault arm over time").click()
        drawn = page.locator("#zoom svg")
        whole = drawn.get_attribute("viewBox")
        page.keyboard.press("+")
        page.keyboard.press("ArrowRight")
        assert drawn.get_attribute("viewBox") != whole
        page.keyboard.press("0")
        assert drawn.get_attribute("viewBox") == whole
        page.keyboard.press("Escape")
        assert not page.locator("#zoom").is_visible()


def test_the_command_can_be_copied(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "overflow.html", permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator("#provenance [data-copy]").click()
        page.get_by_role("button", name="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == "contextlab overflow smollm2 --set context=512 --set kv_unified=true --seed 7"


def test_the_record_can_be_saved(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "chaos.html") as page:
        with page.expect_download() as saved:
            page.get_by_role("link", name="Save the record").click()
        assert saved.value.suggested_filename == "run.jsonl.gz"
        lines = gzip.decompress(Path(saved.value.path()).read_bytes()).splitlines()
        assert [msgspec.json.decode(line) for line in lines] == list(PAGES["chaos"]().records)


def test_a_script_in_a_reply_stays_text(browser: Browser, folder: Path) -> None:
    with opened(browser, folder / "overflow.html") as page:
        page.locator("summary", has_text="The exact request").first.click()
        assert page.locator("pre.reply").first.inner_text() == html_sample.SCRIPT
        assert page.evaluate("typeof window.pwned") == "undefined"
    evil = replace(chaos_sample.hostile(html_sample.SCRIPT), path=html_sample.SCRIPT)
    path = folder / "hostile.html"
    path.write_text(html.page(evil), encoding="utf-8")
    with opened(browser, path, 390) as page:
        assert html_sample.SCRIPT in page.locator("body").inner_text()
        assert page.evaluate("typeof window.pwned") == "undefined"
        assert page.evaluate("document.scripts.length") == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.alone
def test_a_large_record_is_soon_a_page_and_opens_at_once(browser: Browser, tmp_path: Path) -> None:
    run, path = html_sample.large(100_000), tmp_path / "large.html"
    begin = time.process_time()
    text = html.page(run)
    assert time.process_time() - begin < 10
    assert len(text.encode()) < html.MOST_BYTES
    path.write_text(text, encoding="utf-8")
    begin = time.monotonic()
    with opened(browser, path) as page:
        assert page.locator("svg.wide").first.is_visible()
        assert time.monotonic() - begin < 2
