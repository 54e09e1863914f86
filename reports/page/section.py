"""What a section of the page is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`name` is its anchor, and its template's name; `facts` is what the template sees as `it`.

    `empty`: why there is nothing to show, in a sentence; "" where there is. `title` "" keeps it out of the contents.
    """

    name: str
    title: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    empty: str = ""
