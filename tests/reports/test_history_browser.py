"""The history page in a real browser: nothing inaccessible, nothing wider than the screen, with everything opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contextlab.reports.history import page as history_page
from tests.reports.history_sample import HISTORIES
from tests.reports.test_html_browser import SCHEMES, WIDTHS, browser, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]  # the fixture


@pytest.mark.parametrize("name", ["stepped", "hostile"])
def test_nothing_is_inaccessible_or_too_wide(name: str, browser: Browser, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (extra `dev`)")
    path = tmp_path / f"{name}.html"
    path.write_text(history_page.page(HISTORIES[name]()), encoding="utf-8")
    for width, scheme in zip(WIDTHS, SCHEMES, strict=True):
        with opened(browser, path, width, color_scheme=scheme) as page:
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            found = axe.Axe().run(page).response["violations"]
            assert [each["id"] for each in found] == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
