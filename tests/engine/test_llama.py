"""A real llama.cpp server with a real model, at its window: what the tool must name, owned and by URL.

Where the engine alone decides it is given the model's first layers: the same vocabulary, and tokens five times as soon.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from contextlab import registry
from contextlab.lab.server import OwnedServer
from contextlab.targets.gguf import smollm2_file
from tests.command import contextlab
from tests.engine.models import first_layers

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(280),
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or smollm2_file() is None,
        reason="needs the extra `llama` and the model: pip install 'contextlab[llama]'; contextlab models add smollm2",
    ),
]


def overflow(target: str, *words: str, cwd: Path) -> dict[str, Any]:
    """One run's document."""
    return contextlab("overflow", target, *words, "--json", cwd=cwd, timeout_s=270).document


def sets(**settings: object) -> list[str]:
    """Settings as the command line takes them."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]


def outcomes(document: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """Outcomes by scenario and probe."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in document["findings"]:
        found.setdefault((one["scenario"], one["probe"]), set()).add(one["outcome"])
    return found


def named(document: dict[str, Any]) -> set[str]:
    """All outcomes of a run."""
    return {one["outcome"] for one in document["findings"]}


EDGE = ["-s", "find-limit", "-s", "prompt-too-long", "-s", "reply-past-window", "-s", "conversation-growth"]


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The edge scenarios on a server of ours with one slot."""
    return overflow("smollm2", *sets(context=250, slots=1), *EDGE, cwd=tmp_path_factory.mktemp("owned"))


@pytest.fixture(scope="module")
def few_layers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first four layers of the same model, as a target."""
    whole = smollm2_file()
    assert whole is not None
    return f"gguf:{first_layers(whole, tmp_path_factory.mktemp('model') / 'four-layers.gguf', 4)}"


def test_the_window_is_what_the_server_says(owned: dict[str, Any]) -> None:
    assert owned["model"] == "SmolLM2-135M-Instruct.Q4_1"
    assert owned["limits"]["context_tokens"] == 256  # 250 were asked for; llama.cpp rounds up
    [edge] = [one for one in owned["findings"] if one["probe"].startswith("edge-")]
    assert edge["evidence"]["measured_tokens"] == 255


def test_a_prompt_of_the_window_is_rejected_in_the_servers_own_words(owned: dict[str, Any]) -> None:
    full = [one for one in owned["findings"] if one["probe"].endswith(("-full", "-one-over", "-twice"))]
    assert len(full) == 12
    for finding in full:
        assert finding["outcome"] == "REJECTED"
        assert finding["evidence"]["status"] == 400
        assert finding["evidence"]["error_type"] == "exceed_context_size_error"
    fits = [one for one in owned["findings"] if one["probe"].endswith("-fits")]
    assert {one["outcome"] for one in fits} == {"OK"}
    assert {one["evidence"]["prompt_tokens_sent"] for one in fits} == {255}


def test_a_reply_past_the_window_is_capped(owned: dict[str, Any]) -> None:
    past = [one for one in owned["findings"] if one["scenario"] == "reply-past-window"]
    assert {one["outcome"] for one in past} == {"CAPPED"}
    assert {one["evidence"]["finish_reason"] for one in past} == {"length"}
    assert owned["verdict"] == "PASS"


def test_the_same_server_by_its_url_gives_the_same_outcomes(
    owned: dict[str, Any], few_layers: str, tmp_path: Path
) -> None:
    """And so does a model that foretells next to nothing: what was accepted, cut and counted is the engine's doing."""
    command = registry.server_command(registry.parse_target(few_layers, ["context=250", "slots=1", "kv_unified=true"]))
    assert command is not None
    with OwnedServer(command, log=tmp_path / "server.log") as server:
        by_url = overflow(server.url, *EDGE, cwd=tmp_path)
    assert by_url["model"] == "four-layers"
    assert outcomes(by_url) == outcomes(owned)
    assert by_url["flavour"] == owned["flavour"] == "llama-server"


def test_a_context_shift_is_named_with_what_was_lost(few_layers: str, tmp_path: Path) -> None:
    settings = sets(context=256, slots=1, kv_unified=True, context_shift=True)
    shifted = overflow(few_layers, *settings, "-s", "reply-past-window", cwd=tmp_path)
    [finding] = [one for one in shifted["findings"] if one["probe"] == "max-tokens-past"]
    assert finding["outcome"] == "SHIFTED"
    assert finding["evidence"]["n_discard"] == 127
    assert "oldest tokens" in finding["why"]
    assert named(shifted) == {"SHIFTED", "RUNAWAY"}


def test_one_pool_for_all_slots_lets_a_prompt_end_a_neighbour_and_split_pools_do_not(
    few_layers: str, tmp_path: Path
) -> None:
    storm = ["-s", "kv-exhaustion", "-s", "after-the-storm"]
    unified = overflow("smollm2", *sets(context=256, slots=4, kv_unified=True), *storm, cwd=tmp_path)
    assert "NEIGHBOUR_ABORTED" in named(unified)
    [first] = [one for one in unified["findings"] if "small stream was ended" in one["why"]][:1]
    assert first["layer"] == "KV cache"
    assert "kv_unified=false" in first["remedy"]
    assert outcomes(unified)["after-the-storm", "calm"] == {"OK"}
    split = overflow(few_layers, *sets(context=1024, slots=4, kv_unified=False), *storm, cwd=tmp_path)
    assert named(split) <= {"OK", "CAPPED"}
    assert split["limits"]["context_tokens"] == 256
