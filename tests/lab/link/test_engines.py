"""Which engine is chosen, and what is said of those that cannot be had."""

from __future__ import annotations

import pytest

from contextlab import registry
from contextlab.experiment import Placed
from contextlab.lab.link import engines, netem
from contextlab.lab.link.engines import NEEDS, Engine, choose_engine, survey
from contextlab.model import UnableError, UsageError
from tests.lab.link.inside import opened


def placed(*texts: str) -> list[Placed]:
    return [registry.parse_fault(text, start_s=0.0, length_s=1.0) for text in texts]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the rights and without netem."""
    monkeypatch.setattr(engines, "why_no_packet_link", lambda: "no rights")
    monkeypatch.setattr(netem, "probe", lambda: "no such qdisc")


@pytest.mark.parametrize("faults", [[], ["cut"], ["cut", "stall"]])
def test_without_packet_faults_the_relay_is_enough(faults: list[str], bare: None) -> None:
    assert choose_engine(placed(*faults)) == "relay"
    assert list(survey(placed(*faults))) == [Engine(name="relay")]


@pytest.mark.parametrize("fault", ["loss:rate=15%", "loss:rate=0%"])
def test_the_packet_link_comes_first(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a fault that does nothing: its two arms are compared over the same path."""
    monkeypatch.setattr(engines, "why_no_packet_link", lambda: "")
    monkeypatch.setattr(netem, "probe", lambda: pytest.fail("nobody asked for netem"))
    assert choose_engine(placed(fault, "cut"), allow_emulation=True) == "packet link"


def test_then_netem(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netem, "probe", lambda: "")
    assert choose_engine(placed("loss"), allow_emulation=True) == "netem"
    assert choose_engine(placed("loss:direction=up"), allow_emulation=True) == "emulated"


def test_emulation_only_where_it_is_allowed(bare: None) -> None:
    assert choose_engine(placed("loss", "delay"), allow_emulation=True) == "emulated"
    with pytest.raises(UnableError) as raised:
        choose_engine(placed("loss", "delay"))
    assert raised.value.exit_code == 4
    assert "packet link: no rights" in raised.value.message
    assert "netem: no such qdisc" in raised.value.message
    assert "emulated" not in raised.value.message
    assert NEEDS["packet link"] in raised.value.next_step
    assert "--allow-emulation" in raised.value.next_step


def test_what_a_relay_cannot_do_is_not_emulated(bare: None) -> None:
    with pytest.raises(UnableError, match="emulated: a relay cannot corrupt or reorder packets"):
        choose_engine(placed("loss", "corrupt", "reorder"), allow_emulation=True)


def test_the_survey_names_all_with_their_reasons(bare: None) -> None:
    assert list(survey(placed("delay:direction=down", "duplicate"))) == [
        Engine(name="packet link", why_not="no rights"),
        Engine(name="netem", why_not="netem has one queue for both directions, delay wants one"),
        Engine(name="emulated", why_not="a relay cannot duplicate packets"),
    ]
    assert set(NEEDS) == {"relay", "packet link", "netem", "emulated"}


def test_a_fault_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="los"):
        choose_engine([Placed(name="los", start_s=0.0, length_s=1.0)])


@pytest.mark.process
def test_here() -> None:
    opened().close()
    assert choose_engine(placed("loss")) == "packet link"
