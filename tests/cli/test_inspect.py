"""`contextlab inspect`, from its words to its exit code: files, folders, a server; and what a real engine allocates."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contextlab.capacity.inspection import Inspection, Question
from contextlab.lab.inspect import examine, located
from contextlab.targets import gguf
from tests.capacity.samples import U16, llama_pairs
from tests.capacity.samples import gguf as gguf_file
from tests.cli.inspecting import CONFIG, Command, findings, limits
from tests.targets.scripted import Json, Reply, Script, serving

MODEL = gguf.smollm2_file()
needs_model = pytest.mark.skipif(MODEL is None, reason="needs the model: contextlab models add smollm2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Hugging Face folder with nothing wrong in it."""
    write(tmp_path / "config.json", CONFIG)
    write(tmp_path / "tokenizer_config.json", {"model_max_length": 2048})
    return tmp_path


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command(monkeypatch, capsys)


def write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values), encoding="utf-8")


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@needs_model
@pytest.mark.parametrize("target", ["smollm2", "gguf:FILE", "FILE", "hf:FILE"])
def test_the_model_of_the_preset(target: str, inspect: Command) -> None:
    code, document = inspect.document(target.replace("FILE", str(MODEL)))
    assert code == 0
    assert document["kv"]["bytes_per_token"] == 23_040
    assert document["binding"]["name"] == "llama.context_length"
    assert document["binding"]["tokens"] == 8192
    assert document["model"]["weights_bytes"] == 96_576_768
    assert limits(document)["model_max_length"] is None
    assert ("no server was started" in "".join(document["notes"])) is (target == "smollm2")


@needs_model
def test_settings_show_what_an_engine_would_make_of_them(inspect: Command) -> None:
    code, document = inspect.document(
        "smollm2", "--set", "context=1000", "--set", "slots=3", "--set", "kv_unified=false"
    )
    assert (code, findings(document)) == (1, ["context-not-divisible"])
    assert limits(document)["context per request"] == 512
    assert limits(document)["context of all slots"] == 1536
    assert document["kv"]["allocated_bytes"] == 1536 * 23_040


def test_a_folder_written_by_hand(folder: Path, inspect: Command) -> None:
    for target in (folder, folder / "config.json", f"hf:{folder}"):
        code, document = inspect.document(target)
        assert (code, findings(document)) == (0, [])
        assert document["kv"]["bytes_per_token"] == 1024
        assert document["binding"]["tokens"] == 2048
    code, out, err = inspect(folder)
    assert (code, err) == (0, "")
    assert out.startswith(
        f"HELD  {folder}: no contradiction; a context ends at 2048 tokens (tokenizer, model_max_length)"
    )


def test_a_tokenizer_without_a_limit_contradicts_the_positions(folder: Path, inspect: Command) -> None:
    write(folder / "tokenizer_config.json", {"model_max_length": int(1e30)})
    code, document = inspect.document(folder)
    assert (code, findings(document)) == (1, ["tokenizer-unlimited"])
    assert limits(document)["model_max_length"] == "no limit"
    assert "Set model_max_length to 2048" in document["findings"][0]["remedy"]
    _, out, _ = inspect(folder)
    assert "limit: no limit, tokenizer model_max_length, tokenizer_config.json\n" in out


def test_a_budget(folder: Path, inspect: Command) -> None:
    words = (folder, "--budget", "6MiB", "--weights", "2MiB", "--concurrency", 4, "--context", 2048)
    code, document = inspect.document(*words)
    assert (code, findings(document)) == (1, ["does-not-fit"])
    [answer] = document["answers"]["memories"]
    assert answer["left_for_cache_bytes"] == 4 << 20
    assert [(one["cache_type"], one["fits"]) for one in answer["cache_types"]] == [("f16", False), ("fp8", True)]
    assert answer["cache_types"][0]["max_context_tokens"] == 1024
    assert answer["cache_types"][0]["max_concurrency"] == 2
    assert document["answers"]["command"].endswith("--max-model-len 2048 --max-num-seqs 4 --kv-cache-dtype fp8")
    code, document = inspect.document(*words, "--cache-type", "fp8")
    assert (code, document["answers"]["fits"]) == (0, True)
    code, document = inspect.document(*words, "--engine", "llama.cpp")
    choices = document["answers"]["memories"][0]["cache_types"]
    assert [one["cache_type"] for one in choices] == ["f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
    assert choices[0]["max_context_tokens"] == 1024


def test_free_memory_is_a_limit_without_a_budget(folder: Path, inspect: Command) -> None:
    _, document = inspect.document(folder)
    assert document["memory"]["host"]["free_bytes"] > 0
    assert limits(document)["context that fits"] > 0
    assert document["answers"] is None
    assert "the size of the weights is not known" in document["notes"][0]


def test_a_split_model_is_weighed_by_all_its_parts(tmp_path: Path, inspect: Command) -> None:
    for part in (1, 2):
        (tmp_path / f"m-{part:05}-of-00002.gguf").write_bytes(split_part(part, 2))
    for part in (1, 2):
        code, document = inspect.document(tmp_path / f"m-{part:05}-of-00002.gguf")
        assert code == 0
        assert document["model"]["weights_bytes"] == 2 * 32 * 4
        assert document["model"]["num_parameters"] == 2 * 32
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    _, document = inspect.document(tmp_path / "m-00001-of-00002.gguf")
    assert document["model"]["weights_bytes"] is None
    assert "not all 2 parts" in document["notes"][0]


def split_part(part: int, count: int) -> bytes:
    """One part of a split model: the first has the model's metadata, each has one tensor of 32 f32."""
    tensors = [(f"t{part}", (32,), 0, 0)]
    pairs = llama_pairs() if part == 1 else []
    own = [("split.no", U16, part - 1), ("split.count", U16, count)]
    return gguf_file([*pairs, *own], tensors, data=b"\0" * 128)


# ── what cannot be looked at ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("nope.gguf",), 4, "no such file"),
        (("./nope",), 4, "no such file"),
        (("smolm2",), 2, "did you mean smollm2?"),
        (("",), 2, "names nothing"),
        (("gguf:",), 2, "names nothing"),
        (("fake:rejects",), 2, "inspect starts nothing"),
        (("run:ls",), 2, "inspect starts nothing"),
        (("hf:random/gpt2",), 2, "made in memory"),
        (("127.0.0.1:80",), 2, "did you mean http://127.0.0.1:80?"),
        (("http://[",), 2, "a URL needs"),
        (("http://192.0.2.1:8000",), 2, "--i-own-this"),
        (("http:192.0.2.1:8000",), 2, "--i-own-this"),
        (("http://127.0.0.1:9",), 4, "connection refused"),
        (("DIR", "--cache-type", "q9"), 2, "no cache of that type"),
        (("DIR", "--engine", "ollama"), 2, "choose from: llama.cpp, vllm"),
        (("DIR", "--budget", "many"), 2, "--budget='many'"),
        (("DIR", "--weights", "-1"), 2, "--weights='-1'"),
        (("DIR", "--set", "context=1"), 2, "no settings of an engine"),
        (("DIR/empty",), 4, "no config.json"),
        (("DIR/truncated.gguf",), 4, "truncated"),
        (("DIR/not.gguf",), 4, "not a GGUF file"),
        (("DIR/pipe",), 4, "no regular file"),
        (("DIR/list.json",), 4, "must be a JSON object"),
        (("DIR/negative.json",), 4, "num_hidden_layers = -1"),
    ],
)
def test_it_says_what_is_wrong_as_text_and_as_one_document(
    words: tuple[str, ...], code: int, told: str, folder: Path, inspect: Command
) -> None:
    (folder / "empty").mkdir()
    (folder / "truncated.gguf").write_bytes(split_part(1, 1)[:100])
    (folder / "not.gguf").write_bytes(b"hello")
    write(folder / "list.json", [1])
    write(folder / "negative.json", {**CONFIG, "num_hidden_layers": -1})
    subprocess.run(["mkfifo", str(folder / "pipe")], check=True)
    words = tuple(word.replace("DIR", str(folder)) for word in words)
    ended, out, err = inspect(*words)
    assert (ended, out) == (code, "")
    assert told in err
    ended, document = inspect.document(*words)
    assert ended == code
    assert told in document["exit"]["reason"] + document["next_step"]
    assert (document["schema"], document["limits"], document["findings"]) == ("contextlab.inspect/1", [], [])


def test_one_document_is_printed_and_not_two(folder: Path, inspect: Command) -> None:
    code, document = inspect.document(str(folder), "--sarif")
    assert (code, document["next_step"]) == (2, "leave one of them out")


def test_a_password_in_a_url_is_not_repeated(inspect: Command) -> None:
    ended, out, err = inspect("http://user:hunter22@127.0.0.1:9", "--json")
    assert ended == 4
    assert "hunter22" not in out + err


# ── a running server ─────────────────────────────────────────────────────────────────────────────

VLLM_CARD = {"id": "m", "owned_by": "vllm", "max_model_len": 4096}


def looked_at(script: Script, **question: Any) -> Inspection:
    """What a look at a scripted server gives."""

    async def look() -> Inspection:
        async with serving(script) as server:
            spec = located(server.url)
            return await asyncio.to_thread(examine, spec, Question(**question))

    return asyncio.run(look())


def vllm(root: str) -> Script:
    return {
        "GET /v1/models": {"object": "list", "data": [{**VLLM_CARD, "root": root}]},
        "GET /version": {"version": "0.33.0"},
        "GET /metrics": Reply('vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'),
    }


def llama(path: str, **meta: int) -> Script:
    card: Json = {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 2048, **meta}}
    props = {"default_generation_settings": {"n_ctx": 1024}, "total_slots": 2, "model_path": path}
    return {"GET /v1/models": {"data": [card]}, "GET /props": props}


def test_a_vllm_server_and_the_folder_that_it_names(folder: Path) -> None:
    found = looked_at(vllm(str(folder)))
    assert found.cache is not None
    assert (found.cache.token_bytes, found.cache.convention.name) == (1024, "vllm")
    assert [finding.name for finding in found.findings] == ["window-past-positions", "pool-smaller-than-window"]
    assert found.binding is not None
    assert (found.binding.tokens, found.binding.name) == (1600, "num_gpu_blocks * block_size")
    assert found.subject.server is not None
    assert found.subject.server.version == "0.33.0"


@pytest.mark.parametrize(
    ("root", "note"),
    [
        ("meta-llama/Llama-3.1-8B", "is not on this machine"),
        ("/nowhere/at/all", "is not on this machine"),
        ("/dev/zero", "could not be read"),
        ("/proc", "could not be read"),
        ("\x00", "not on this machine"),
        ("", "does not say which file"),
    ],
)
def test_a_server_whose_model_is_not_here_is_still_looked_at(root: str, note: str) -> None:
    found = looked_at(vllm(root), context_tokens=100)
    assert found.cache is None
    assert note in found.notes[0]
    assert found.binding is not None
    assert found.binding.tokens == 1600


def test_a_file_of_the_same_path_that_is_another_model_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(split_part(1, 1))
    other = looked_at(llama(str(file), n_params=99))
    assert other.cache is None
    assert "has 32 parameters, the server's model 99: not the same" in other.notes[0]
    same = looked_at(llama(str(file), n_params=32))
    assert same.cache is not None
    assert same.cache.token_bytes == 23_040
    assert (same.cache.tokens, same.findings) == (1024, ())
