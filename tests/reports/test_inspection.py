"""The report of one look at a target: golden pages, and what must hold whatever was read."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from contextlab import registry
from contextlab.capacity.inspection import (
    Inspection,
    Question,
    ServerFacts,
    Subject,
    Surroundings,
    inspected,
)
from contextlab.capacity.limits import EngineSettings
from contextlab.capacity.plan import Memory
from contextlab.capacity.shape import (
    FullAttention,
    GenerationDefaults,
    LayerCache,
    ModelShape,
    PositionKind,
    Positions,
    RecurrentState,
    Rope,
    SlidingAttention,
    TokenizerLimit,
)
from contextlab.model import Layer, Limit, Limits, UnableError
from contextlab.reports import inspection
from contextlab.reports.json import write_document
from tests.reports.streams import Terminal, surroundings

GOLDEN = Path(__file__).parent / "golden"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
GIB = 1 << 30
AROUND = Surroundings(
    host=Memory(name="host", free_bytes=22 * GIB, total_bytes=24 * GIB, about="limited by its cgroup"),
    gpus=(Memory(name="GPU 0", free_bytes=139 * GIB, total_bytes=140 * GIB, about="NVIDIA H200"),),
)
HOSTILE = "a\x1b[31m[red]\nb\u202ec\udcff"
FULL = FullAttention(kv_heads=8, head_dim_k=128, head_dim_v=128)
SLIDING = SlidingAttention(kv_heads=8, head_dim_k=128, head_dim_v=128, window_tokens=1024)
STATE = RecurrentState(conv_elements=1000, state_elements=9000)


def shape(*layers: LayerCache, source: str = "/models/llama.gguf") -> ModelShape:
    return ModelShape(
        source=source,
        architecture="llama",
        layers=layers or (FULL,) * 32,
        positions=Positions(kind=PositionKind.ROTARY, max_tokens=131_072, name="llama.context_length"),
        rope=Rope(kind="llama3", factor=8.0, original_tokens=8192, theta=500_000.0),
        hidden=4096,
        num_heads=32,
        vocab=128_256,
        num_parameters=8_030_261_248,
        weights_bytes=5 * GIB,
        weights_type="q4_k",
    )


def quiet() -> Inspection:
    """A file with nothing wrong, and nothing asked."""
    subject = Subject(
        target="/models/llama.gguf", kind="GGUF file", shape=shape(), convention="llama.cpp", next_target="gguf:x y"
    )
    return inspected(subject, AROUND, Question())


def asked() -> Inspection:
    """A folder with contradictions, a mixed cache, and a question whose answer is no."""
    source = "/models/mixed/config.json"
    subject = Subject(
        target="/models/mixed",
        kind="Hugging Face model",
        shape=shape(*(FULL,) * 8, *(SLIDING,) * 16, *(STATE,) * 8, source=source),
        tokenizer=TokenizerLimit(source="/models/mixed/tokenizer_config.json", unlimited=True),
        generation=GenerationDefaults(source="/models/mixed/generation_config.json", max_length=4096),
        convention="vllm",
        notes=("a note",),
    )
    budget = Memory(name="--budget", free_bytes=24 * GIB)
    return inspected(subject, AROUND, Question(budget=budget, context_tokens=262_144, num_sequences=16))


def server() -> Inspection:
    """A running server with its file, on a machine without a GPU."""
    facts = ServerFacts(
        url="http://127.0.0.1:8080",
        flavour="llama-server",
        version="b7126",
        model="llama",
        num_slots=4,
        template_tokens=30,
    )
    declared = (
        Limit(layer=Layer.ENGINE, name="n_ctx", tokens=8192, source="GET /props default_generation_settings.n_ctx"),
    )
    subject = Subject(
        target="http://127.0.0.1:8080",
        kind="server",
        shape=shape(),
        served=Limits(context_tokens=8192, num_slots=4, declared=declared),
        server=facts,
        convention="llama.cpp",
        next_target="http://127.0.0.1:8080",
    )
    around = replace(AROUND, gpus=(), gpu_note="NVML finds none: Driver Not Loaded")
    return inspected(subject, around, Question(context_tokens=65_536))


def hostile() -> Inspection:
    """Words that nobody should print as they are."""
    engine = EngineSettings(source=HOSTILE, engine="llama.cpp", context_tokens=1000, num_slots=3)
    subject = Subject(
        target=HOSTILE,
        kind="GGUF file",
        shape=replace(shape(source=HOSTILE), architecture=HOSTILE, weights_type=HOSTILE),
        engine=engine,
        server=ServerFacts(url=HOSTILE, flavour=HOSTILE, version=HOSTILE, model=HOSTILE),
        convention="llama.cpp",
        next_target=HOSTILE,
        notes=(HOSTILE,),
    )
    return inspected(subject, replace(AROUND, gpu_note=HOSTILE), Question(context_tokens=1 << 30))


LOOKS = {"quiet": quiet, "asked": asked, "server": server, "hostile": hostile}


def piped(found: Inspection) -> str:
    out = io.StringIO()
    inspection.write_text(found, out)
    return out.getvalue()


def shown(found: Inspection, columns: int, **environ: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        surroundings(patch, columns=columns, **environ)
        out = Terminal()
        inspection.write_text(found, out)
        return out.getvalue()


def compare(name: str, text: str, config: pytest.Config) -> None:
    path = GOLDEN / f"inspect-{name}.txt"
    if config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; `pytest --update-golden` writes it anew"


@pytest.mark.parametrize("name", LOOKS)
def test_piped_report_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare(f"{name}-piped", piped(LOOKS[name]()), pytestconfig)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", LOOKS)
def test_terminal_report_is_the_golden_one(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    compare(f"{name}-{columns}", shown(LOOKS[name](), columns, NO_COLOR="1"), pytestconfig)


@pytest.mark.parametrize("columns", [40, 61, 80, 100, 140])
@pytest.mark.parametrize("name", LOOKS)
def test_every_line_fits(name: str, columns: int) -> None:
    text, _, _ = ANSI.sub("", shown(LOOKS[name](), columns)).partition("next:")
    assert [line for line in text.splitlines() if cell_len(line) > columns or line != line.rstrip()] == []


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_messages_and_remedies_stay_whole(columns: int) -> None:
    found = asked()
    words = " ".join(shown(found, columns, NO_COLOR="1").split())
    assert found.findings
    for finding in found.findings:
        assert finding.message in words
        assert finding.remedy in words


def test_colour_is_only_added() -> None:
    coloured = shown(asked(), 80)
    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured) == shown(asked(), 80, NO_COLOR="1")


def test_a_dumb_terminal_and_a_stream_without_unicode() -> None:
    assert shown(asked(), 80, TERM="dumb") == piped(asked())
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    inspection.write_text(asked(), out)
    out.flush()
    assert b"16 contexts of 262144 tokens" in raw.getvalue()


@pytest.mark.parametrize("text", [piped(hostile()), shown(hostile(), 80, NO_COLOR="1")], ids=["piped", "terminal"])
def test_nothing_that_was_read_reaches_the_terminal_as_it_is(text: str) -> None:
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"a\x1b[31m" in text
    text.encode()


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def decoded(found: Inspection) -> dict[str, object]:
    out = io.StringIO()
    write_document(inspection.document(found), out)
    assert out.getvalue().isascii()
    document = json.loads(out.getvalue())
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("name", LOOKS)
def test_a_document_has_the_same_keys_whatever_was_found(name: str) -> None:
    document = decoded(LOOKS[name]())
    failed = inspection.failure_document("x", UnableError("no", "look"))
    assert document.keys() | {"next_step"} == failed.keys()
    assert (failed["schema"], failed["exit"], failed["next_step"]) == (
        "contextlab.inspect/1",
        {"code": 4, "reason": "no"},
        "look",
    )


def test_what_the_document_says() -> None:
    document = decoded(asked())
    assert document["schema"] == "contextlab.inspect/1"
    assert document["binding"] == {
        "layer": "KV cache",
        "name": "context that fits, 16 at once",
        "tokens": 20_432,
        "source": "--budget: 24 GiB",
    }
    kv, answers, memory = document["kv"], document["answers"], document["memory"]
    assert isinstance(kv, dict)
    assert isinstance(answers, dict)
    assert isinstance(memory, dict)
    assert (kv["engine"], kv["bytes_per_token"], kv["growing_bytes_per_token"]) == ("vllm", 24 * 4096, 8 * 4096)
    assert kv["fixed_bytes_per_sequence"] == 8 * (2 * 1000 + 4 * 9000)
    assert (answers["context_tokens"], answers["concurrency"], answers["fits"]) == (262_144, 16, False)
    assert [one["cache_type"] for one in answers["memories"][0]["cache_types"]] == ["f16", "fp8"]
    assert [one["name"] for one in memory["gpus"]] == ["GPU 0"]
    assert document["exit"] == {
        "code": 1,
        "reason": "tokenizer-unlimited, context-past-positions, does-not-fit",
    }


def test_this_is_no_writer_of_runs() -> None:
    assert "inspection" not in registry.writers()


TEXTS = st.text(st.characters(codec=None), max_size=60) | st.sampled_from([HOSTILE, "", "[/]", "x" * 300])


@settings(deadline=None, max_examples=60)
@given(text=TEXTS, tokens=st.none() | st.integers(1, 1 << 40), columns=st.integers(20, 160))
def test_whatever_was_read_is_written(text: str, tokens: int | None, columns: int) -> None:
    declared = (Limit(layer=Layer.GATEWAY, name=text, tokens=tokens, source=text),)
    subject = Subject(
        target=text,
        kind="server",
        shape=replace(shape(source=text), architecture=text),
        served=Limits(context_tokens=tokens, declared=declared),
        server=ServerFacts(url=text, flavour=text, model=text),
        notes=(text,),
        next_target=text,
    )
    found = inspected(subject, AROUND, Question(context_tokens=tokens))
    for written in (piped(found), shown(found, columns, NO_COLOR="1")):
        assert "\x1b" not in written
        written.encode()
    decoded(found)
