"""Sections into one file: Jinja2 with autoescape and strict names, and a policy that lets nothing in.

Content-Security-Policy: nothing from anywhere; the style sheet and the script by their hashes; images as data
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from contextlab.model import Verdict
from contextlab.reports.page.section import Section
from contextlab.reports.parts.wording import COUNTED_AS, MARKS, clean

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent.parent / "templates"
_LOOKS = {Verdict.PASS: "held", Verdict.UNKNOWN: "unknown", Verdict.FAIL: "failed"}


def rendered(title: str, sections: Sequence[Section]) -> str:
    """The page. Raises jinja2.UndefinedError where a template asks for what its section does not say."""
    style, script = ((TEMPLATES / name).read_text(encoding="ascii") for name in ("page.css", "page.js"))
    page = _environment().get_template("page.html.j2")
    text: str = page.render(
        title=clean(title),
        sections=[(section, _template(section)) for section in sections],
        style=style,
        script=script,
        policy=policy(style, script),
    )
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _printable(thing: object) -> object:
    """The last look at what goes out: a control character that a section let through becomes its escape."""
    if type(thing) is not str or thing.isprintable():  # (what is markup already is a type of its own)
        return thing
    return "\n".join(map(clean, thing.split("\n")))


def policy(style: str, script: str) -> str:
    """What the browser may load: nothing but these two texts and images that are in the page itself."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _template(section: Section) -> str:
    return f"{section.facts.get('template', section.name)}.html.j2"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    made.filters |= {"sign": MARKS.__getitem__, "look": _LOOKS.__getitem__, "counted": COUNTED_AS.__getitem__}
    return made
