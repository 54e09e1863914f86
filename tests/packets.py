"""Whether packets can be touched here; tests that lose some are skipped with the reason where they cannot."""

from __future__ import annotations

from functools import cache

import pytest

from contextlab.experiment import Placed
from contextlab.lab.link.engines import choose_engine
from contextlab.model import UnableError


@cache
def why_not() -> str:
    """Why no engine can lose packets on this machine; "" where one can."""
    try:
        choose_engine([Placed(name="loss", start_s=0.0, length_s=1.0)])
    except UnableError as error:
        return error.message
    return ""


needs_packets = pytest.mark.skipif(bool(why_not()), reason=why_not() or "packets can be lost here")
