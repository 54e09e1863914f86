"""`contextlab inspect` beside real engines: its bytes are those that they allocate, in their own words."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.lab.server import OwnedServer
from contextlab.targets import gguf
from tests.cli.inspecting import CONFIG, Command, limits, sets

pytestmark = [pytest.mark.engine, pytest.mark.timeout(280)]

needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or gguf.smollm2_file() is None,
    reason="needs the extra `llama` and the model: pip install 'contextlab[llama]'; contextlab models add smollm2",
)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None,
    reason="needs torch and transformers",
)
TALKATIVE = """
import json, signal, sys, os, xllamacpp
from contextlab.targets.servers import llama_server
start = xllamacpp.Server
def talkative(params):
    params.verbosity = 4  # from here on it logs what it allocates
    return start(params)
xllamacpp.Server = talkative
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
llama_server.serve(json.loads(sys.argv[1]))
"""
KV_SIZE = re.compile(r"llama_kv_cache: size = +([\d.]+) MiB")


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command(monkeypatch, capsys)


@contextmanager
def running(log: Path, *assignments: str) -> Iterator[OwnedServer]:
    """A real llama.cpp server that logs what it allocates."""
    command = gguf.server(registry.parse_target("smollm2", assignments))
    argv = (command.argv[0], "-c", TALKATIVE, command.argv[-1])
    with OwnedServer(replace(command, argv=argv), log=log) as server:
        yield server


def allocated_mib(log: Path, timeout_s: float = 20.0) -> float:
    """Size of the KV cache in MiB, in llama.cpp's own words; it prints two digits, and from a thread of its own."""
    until = time.monotonic() + timeout_s
    while not (found := KV_SIZE.findall(log.read_text(encoding="utf-8"))) and time.monotonic() < until:
        time.sleep(0.05)
    [mib] = found
    return float(mib)


@needs_llama
@pytest.mark.parametrize(
    ("cache_type", "context", "slots", "unified"),
    [
        ("f16", 512, 1, False),
        ("q8_0", 512, 1, False),
        ("f16", 8192, 1, False),
        ("q4_0", 1000, 3, False),
        ("f16", 1024, 4, True),
    ],
)
def test_bytes_are_what_llama_cpp_allocates(
    cache_type: str, context: int, slots: int, unified: bool, tmp_path: Path, inspect: Command
) -> None:
    settings = [
        f"context={context}",
        f"slots={slots}",
        f"kv_unified={str(unified).lower()}",
        f"cache_type_k={cache_type}",
        f"cache_type_v={cache_type}",
        "flash_attention=on",
    ]
    log = tmp_path / "server.log"
    with running(log, *settings):
        mib = allocated_mib(log)
    _, document = inspect.document("smollm2", *sets(*settings))
    kv = document["kv"]
    assert kv["bytes_per_token"] == {"f16": 23_040, "q8_0": 12_240, "q4_0": 6480}[cache_type]
    assert kv["allocated_bytes"] / 2**20 == pytest.approx(mib, abs=0.0051)
    if slots == 1:
        assert context * kv["bytes_per_token"] / 2**20 == pytest.approx(mib, abs=0.0051)


@needs_llama
def test_a_running_server_and_its_file_in_one_table(tmp_path: Path, inspect: Command) -> None:
    with running(tmp_path / "server.log", "context=1024", "slots=2", "kv_unified=false") as server:
        code, document = inspect.document(server.url)
        text = inspect(server.url)[1]
    assert code == 0
    assert document["server"]["flavour"] == "llama-server"
    assert (document["server"]["num_slots"], document["server"]["template_tokens"]) == (2, 30)
    assert limits(document)["llama.context_length"] == 8192
    assert limits(document)["n_ctx"] == 512
    assert document["binding"]["name"] == "n_ctx"
    assert document["kv"]["bytes_per_token"] == 23_040
    assert "limit: 512 tokens, engine n_ctx, GET /props default_generation_settings.n_ctx, binding\n" in text
    assert "limit: 8192 tokens, positions llama.context_length, GGUF header\n" in text


MEASURE = """
import json, sys
import torch, transformers
torch.set_num_threads(1)
for folder, values in json.loads(sys.argv[1]).items():
    config = transformers.AutoConfig.for_model(**values)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    with torch.no_grad():
        cache = model(torch.zeros((1, 100), dtype=torch.long), use_cache=True).past_key_values
    print(sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values)))
    print(sum(p.nbytes for p in model.parameters()))
"""
KINDS: dict[str, dict[str, object]] = {"full": {}, "sliding": {"model_type": "mistral", "sliding_window": 64}}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, int, int]]:
    """For each kind of layer a model's folder, and the bytes of its cache and its weights: measured in one process."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    values = {str(folder): {**CONFIG, "vocab_size": 100, **KINDS[kind]} for kind, folder in folders.items()}
    argv = [sys.executable, "-c", MEASURE, json.dumps(values)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=True)
    numbers = list(map(int, done.stdout.split()))
    return {
        kind: (folder, cache_bytes, weights_bytes)
        for (kind, folder), cache_bytes, weights_bytes in zip(folders.items(), numbers[::2], numbers[1::2], strict=True)
    }


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_what_transformers_keeps(kind: str, kept: dict[str, tuple[Path, int, int]], inspect: Command) -> None:
    folder, cache_bytes, weights_bytes = kept[kind]
    code, document = inspect.document(folder, "--engine", "transformers", "--context", 100, "--budget", "1GiB")
    assert code == 0
    [answer] = document["answers"]["memories"]
    assert answer["cache_types"][0]["cache_bytes"] == cache_bytes
    assert document["model"]["weights_bytes"] == pytest.approx(weights_bytes, rel=0.02), "and a header"
