"""The hf target: its models, its events, its limits, and what it says of a folder it cannot load."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import warnings
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contextlab.analysis import prompts
from contextlab.analysis.exchanges import answered, fold
from contextlab.model import (
    Api,
    Event,
    Exchange,
    Kind,
    Knowledge,
    Layer,
    Message,
    Request,
    Target,
    TargetSpec,
    UnableError,
)
from contextlab.registry import runs_in_child
from contextlab.targets.hf import HfTarget, open_target
from contextlab.targets.hf import known as known_of
from contextlab.targets.inside.load import Loaded, find
from contextlab.targets.inside.random_models import ARCHITECTURES
from tests.targets.hf_models import WINDOW, model, settings

pytestmark = [
    pytest.mark.hf,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra hf"),
    pytest.mark.filterwarnings("ignore"),
]


def target(loaded: Loaded) -> HfTarget:
    """An open target around a model that is loaded already."""
    one = HfTarget(loaded.source, loaded.settings)
    one.__dict__["_loaded"] = loaded
    return one


def request(tokens: int, **fields: Any) -> Request:
    """A request of exactly so many tokens: the special first one, and words of one token each."""
    text = prompts.filler(tokens - 1, Random(0))
    return Request(name="r", messages=(Message(role="prompt", parts=(text,)),), **fields)


def exchange(one: Target, asked: Request) -> Exchange:
    """What comes back."""

    async def events() -> Sequence[Event]:
        async with aclosing(one.stream(asked)) as stream:
            return [event async for event in stream]

    return fold(asked, [(0.0, Event(kind=Kind.SENT)), *((1.0, event) for event in asyncio.run(events()))])


# ── models ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_answers_inside_its_window(name: str) -> None:
    one = target(model(name))
    got = exchange(one, request(40, reply_tokens=6, ignore_eos=True))
    assert answered(got)
    assert got.finish_reason == "length"
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.truncated) == (40, 6, False)
    assert len(got.token_s) == 6
    assert exchange(one, request(40, reply_tokens=6, ignore_eos=True)).text == got.text


def test_limits_and_powers() -> None:
    known = target(model("gpt2")).knowledge
    assert known.flavour == "transformers"
    assert known.limits.context_tokens == WINDOW
    assert {"completions", "counts-tokens", "tasks", "memory-tasks", "host-memory"} <= known.powers
    loaded = model("gpt2")
    elsewhere = replace(loaded, settings={**loaded.settings, "device": "cuda"})
    assert "host-memory" not in known_of(elsewhere).powers, "what a device holds is not the host's memory"
    assert not {"chat", "serves-many", "window"} & known.powers
    limits = {(limit.layer, limit.name): limit.tokens for limit in known.limits.declared}
    assert limits == {(Layer.TOKENIZER, "model_max_length"): WINDOW, (Layer.POSITIONS, "n_positions"): WINDOW}
    control = target(model("bloom")).knowledge
    assert control.limits.context_tokens is None
    assert [(limit.name, limit.tokens) for limit in control.limits.declared] == [
        ("model_max_length", None),
        ("seq_length (ALiBi: no range)", None),
    ]
    small = target(model("llama", cache="static", max_cache_len=32)).knowledge
    assert small.limits.context_tokens == 32
    sliding = target(model("mistral")).knowledge
    assert {limit.tokens for limit in sliding.limits.declared if limit.layer is Layer.ATTENTION} == {WINDOW // 4}
    assert runs_in_child(TargetSpec(name="hf:x", scheme="hf", address="x"))


def test_a_window_of_the_users_choice() -> None:
    one = target(model("gpt2", window=200))
    assert one.knowledge.limits.context_tokens == 200
    assert answered(exchange(one, request(200, reply_tokens=1)))


@pytest.mark.parametrize("text", ["The secret code of HEAD is 7391.", "héllo 😀 — 漢字", " time\n\ttime", ""])
def test_the_tokenizer_made_in_code_loses_nothing(text: str) -> None:
    tokenizer = model("llama").tokenizer
    ids = model("llama").ids(text, special=False)
    assert tokenizer.decode(ids) == text
    assert model("llama").ids(text, special=True)[1:] == ids


def test_a_word_of_the_filler_is_one_token() -> None:
    one = target(model("llama"))
    for count in (1, 50):
        message = Message(role="prompt", parts=(prompts.filler(count, Random(3)),))
        assert asyncio.run(one.count_tokens(Api.COMPLETIONS, [message])) == 1 + count


# ── events ───────────────────────────────────────────────────────────────────────────────────────


def test_learned_positions_end_in_the_librarys_own_exception() -> None:
    one = target(model("gpt2"))
    assert answered(exchange(one, request(WINDOW, reply_tokens=1)))
    over = exchange(one, request(WINDOW + 1, reply_tokens=1))
    assert over.failure is not None
    assert (over.failure.where, over.failure.error_type) == ("exception", "IndexError")
    assert over.failure.message == "index out of range in self"
    late = exchange(one, request(WINDOW - 4, reply_tokens=20, ignore_eos=True))
    assert late.failure is not None
    assert len(late.token_s) == 5  # the fifth token is given, and cannot be read


def test_rope_goes_past_its_range_without_an_error() -> None:
    got = exchange(target(model("llama")), request(2 * WINDOW, reply_tokens=4, ignore_eos=True))
    assert answered(got)
    assert got.usage is not None
    assert got.usage.evaluated_tokens == 2 * WINDOW


def test_a_static_cache_ends_where_it_is_full() -> None:
    got = exchange(
        target(model("llama", cache="static", max_cache_len=32)), request(30, reply_tokens=9, ignore_eos=True)
    )
    assert got.failure is not None
    assert "index_copy_(): index 32 is out of bounds" in got.failure.message


def test_no_max_tokens_ends_at_the_window_or_where_the_library_would() -> None:
    got = exchange(target(model("llama")), request(100, reply_tokens=None, ignore_eos=True))
    assert got.usage is not None
    assert got.usage.completion_tokens == WINDOW - 100
    control = exchange(target(model("bloom")), request(100, reply_tokens=None, ignore_eos=True))
    assert control.usage is not None
    assert control.usage.completion_tokens == 20


def test_a_quantised_cache_answers() -> None:
    assert answered(exchange(target(model("llama", cache="quantised")), request(40, reply_tokens=4, ignore_eos=True)))
    with pytest.raises(UnableError, match="cache=quantised cannot be made"):
        model("mistral", cache="quantised")


def test_tasks_by_name() -> None:
    one = target(model("llama"))

    async def perform(task: str) -> list[Any]:
        async with aclosing(one.perform(task, {"max_tokens": 64, "way": "length"})) as stream:
            return [evidence async for evidence in stream]

    assert asyncio.run(perform("tokenizer-truncation"))[-1] == {"special_tokens_lost": 0}
    with pytest.raises(UnableError, match="nonsense"):
        asyncio.run(perform("nonsense"))


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as `save_pretrained` writes it."""
    folder = tmp_path_factory.mktemp("saved")
    model("llama").model.save_pretrained(folder)
    model("llama").tokenizer.save_pretrained(folder)
    return folder


def opened(folder: Path, **chosen: Any) -> Knowledge:
    """Open a folder and ask what it is, which loads it."""

    async def ask() -> Knowledge:
        async with open_target(
            TargetSpec(name="hf", scheme="hf", address=str(folder), settings=settings(**chosen))
        ) as it:
            return it.knowledge

    return asyncio.run(ask())


def test_a_saved_folder_opens(saved: Path) -> None:
    assert opened(saved).limits.context_tokens == WINDOW
    assert opened(saved, window=64).limits.context_tokens == 64
    assert opened(saved, dtype="bfloat16", attention="eager").model == saved.name


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("config.json", b"{nope", "config.json: not JSON"),
        ("config.json", {"hidden_size": -4}, "hidden_size = -4"),
        ("config.json", {"num_hidden_layers": 4}, "model.layers.2.input_layernorm.weight is not in the weights"),
        ("config.json", {"hidden_size": 128}, "(417, 64) in the weights, (417, 128) by config.json"),
        ("config.json", {"model_type": "zzz"}, "model_type = 'zzz'"),
        ("config.json", {"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "cannot be loaded: KeyError"),
        ("tokenizer.json", b"\x00", "tokenizer.json: not JSON"),
        ("tokenizer.json", b'{"model": {}}', "its tokenizer cannot be loaded"),
        ("tokenizer_config.json", {"model_max_length": -5}, "model_max_length = -5"),
        ("model.safetensors", b"\x10", "the file has 1 bytes"),
        ("model.safetensors", None, "has no weights"),
        ("tokenizer.json", None, "has no tokenizer"),
    ],
)
def test_a_broken_folder_is_named(
    saved: Path, tmp_path: Path, file: str, change: bytes | dict[str, Any] | None, words: str
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(saved, folder)
    if change is None:
        (folder / file).unlink()
    elif isinstance(change, bytes):
        (folder / file).write_bytes(change)
    else:
        old = json.loads((folder / file).read_text(encoding="utf-8"))
        (folder / file).write_text(json.dumps(old | change), encoding="utf-8")
    with pytest.raises(UnableError) as raised:
        opened(folder)
    assert words in raised.value.message
    assert str(folder) in raised.value.message


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(UnableError) as raised:
            find("random/gpt2")
    assert "tokenizers" in raised.value.message
    assert "pip install 'contextlab[hf]'" in raised.value.next_step


def test_a_device_that_is_not_there(saved: Path) -> None:
    if model("llama").torch.cuda.is_available():
        pytest.skip("it is there")
    with pytest.raises(UnableError, match="device=cuda"):
        opened(saved, device="cuda")
