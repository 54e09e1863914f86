"""What proves that a disk was full, read-only or slow; what it does is in tests/lab/host/test_disks.py."""

from __future__ import annotations

import pytest

from contextlab import registry
from contextlab.faults.disk import Disk
from contextlab.model import UsageError


def test_nothing_refused_and_nothing_slower_is_not_proven() -> None:
    full, slow = Disk(dir="/x"), Disk(dir="/x", what="slow")
    assert full.landed({}, {}).proven is False
    assert full.landed({"tried": 3, "refused": 2}, {}).proven is False
    assert full.landed({"tried": 3, "refused": 3}, {}).proven is True
    tally = {"tried": 2, "waited_s": 0.8, "before_s": 0.1, "tried_bytes": 5e5}
    assert slow.landed(tally, {}).proven is True
    assert slow.landed(tally | {"waited_s": 0.6}, {}).proven is False


def test_it_must_be_said_which_folder() -> None:
    with pytest.raises(UsageError, match="dir=''"):
        registry.make_fault(registry.parse_fault("disk:what=full", start_s=0.0, length_s=1.0))
