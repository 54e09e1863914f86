"""What each kind of server is recognised by, and what is learnt of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiohttp import web

from contextlab.model import Api, Gauges, Knowledge, Layer, Limit, Message, UnableError
from contextlab.targets.http import open_target
from contextlab.targets.openai.metrics import Metrics
from tests.targets import scripted
from tests.targets.scripted import Json, Reply, Script, known, models, serving, spec


def learnt(script: Script, **settings: object) -> Knowledge:
    async def opened() -> Knowledge:
        async with serving(script) as server, open_target(spec(server.url, **settings)) as target:
            return target.knowledge

    return asyncio.run(opened())


def counted(script: Script, flavour: str, api: Api, *texts: str, **settings: object) -> tuple[int, Sequence[str]]:
    messages = [Message(role="user", parts=(text,)) for text in texts or ("hey",)]

    async def opened() -> tuple[int, Sequence[str]]:
        async with (
            serving(script) as server,
            open_target(spec(server.url, **settings), known(flavour)) as target,
        ):
            return await target.count_tokens(api, messages), server.paths()

    return asyncio.run(opened())


def gauged(script: Script, flavour: str) -> Gauges:
    async def opened() -> Gauges:
        async with serving(script) as server, open_target(spec(server.url), known(flavour)) as target:
            return await target.gauges()

    return asyncio.run(opened())


def named(limits: Sequence[Limit]) -> dict[tuple[Layer, str], int | None]:
    return {(limit.layer, limit.name): limit.tokens for limit in limits}


BOTH = {"chat", "completions", "serves-many"}


def test_llama_server_binds_by_its_slot() -> None:
    knowledge = learnt(scripted.llama_server())
    assert (knowledge.flavour, knowledge.model, knowledge.version) == ("llama-server", "smol.gguf", "b11434-0c1e")
    limits = knowledge.limits
    assert (limits.context_tokens, limits.pool_tokens, limits.num_slots) == (512, None, 4)
    assert named(limits.declared) == {(Layer.ENGINE, "n_ctx"): 512, (Layer.POSITIONS, "n_ctx_train"): 8192}
    assert limits.declared[0].source == "GET /props default_generation_settings.n_ctx"
    assert knowledge.powers == {*BOTH, "ignores-eos", "counts-tokens", "health", "gauges"}


def test_llama_server_without_props_is_known_by_its_card() -> None:
    script = dict(scripted.llama_server())
    del script["GET /slots"], script["GET /metrics"]
    script["GET /props"] = Reply({"error": {"message": "off", "code": 501}}, 501)
    knowledge = learnt(script)
    assert knowledge.limits.context_tokens == 512
    assert "gauges" not in knowledge.powers
    assert knowledge.gauges is None


def test_vllm_tells_its_pool_in_its_metrics() -> None:
    knowledge = learnt(scripted.vllm(), model="adapter")
    assert (knowledge.flavour, knowledge.model, knowledge.version) == ("vllm", "adapter", "0.33.0")
    assert (knowledge.limits.context_tokens, knowledge.limits.pool_tokens) == (4096, 800)
    assert named(knowledge.limits.declared) == {
        (Layer.ENGINE, "max_model_len"): 4096,
        (Layer.KV_CACHE, "num_gpu_blocks * block_size"): 800,
    }
    assert knowledge.powers == {*BOTH, "ignores-eos", "counts-tokens", "health", "gauges"}


def test_sglang_declares_a_second_limit_for_the_prompt() -> None:
    knowledge = learnt(scripted.sglang())
    assert (knowledge.flavour, knowledge.version) == ("sglang", "0.5.23")
    assert (knowledge.limits.context_tokens, knowledge.limits.pool_tokens) == (32768, 20480)
    assert named(knowledge.limits.declared)[Layer.ENGINE, "max_req_input_len"] == 20474
    assert knowledge.limits.declared[-1].source == "GET /server_info max_total_num_tokens"
    assert knowledge.powers == {*BOTH, "ignores-eos", "counts-tokens", "health", "gauges"}


def test_a_count_for_one_endpoint_alone_is_no_power() -> None:
    async def prompts_only(asked: web.Request) -> web.StreamResponse:
        body = await asked.json()
        return web.json_response({"count": 3} if "prompt" in body else {"detail": "no prompt"}, status=200)

    assert "counts-tokens" not in learnt({**scripted.sglang(), "POST /tokenize": prompts_only}).powers


def test_sglang_context_length_wins_where_it_is_smaller() -> None:
    script = {**scripted.sglang(), "GET /get_server_info": {"context_length": 2048}}
    assert learnt(script).limits.context_tokens == 2048


def test_ollama_is_made_to_load_the_model_that_it_is_asked_about() -> None:
    knowledge = learnt(scripted.ollama(), model="llama3")
    assert (knowledge.flavour, knowledge.model, knowledge.version) == ("ollama", "llama3", "0.33.0")
    assert knowledge.limits.context_tokens == 4096
    assert named(knowledge.limits.declared[1:]) == {
        (Layer.ENGINE, "num_ctx"): 8192,
        (Layer.POSITIONS, "context_length"): 131072,
    }
    assert knowledge.powers == {*BOTH, "health"}


def test_tgi_limits_prompt_and_whole() -> None:
    knowledge = learnt(scripted.tgi())
    assert (knowledge.flavour, knowledge.version) == ("tgi", "3.3.7")
    assert (knowledge.limits.context_tokens, knowledge.limits.pool_tokens) == (2048, 16000)
    assert named(knowledge.limits.declared)[Layer.GATEWAY, "max_input_tokens"] == 1024
    assert knowledge.powers == {*BOTH, "counts-tokens", "health"}


def test_litellm_declares_the_smallest_of_its_deployments() -> None:
    knowledge = learnt(scripted.litellm())
    assert (knowledge.flavour, knowledge.version) == ("litellm", "1.110.2")
    assert knowledge.limits.context_tokens == 8192
    assert [limit.tokens for limit in knowledge.limits.declared] == [16385, 8192]
    assert knowledge.powers == {*BOTH, "counts-tokens", "health"}


def test_litellm_guesses_are_not_counts() -> None:
    assert "counts-tokens" not in learnt(scripted.litellm("openai_tokenizer", "hosted_vllm/llama")).powers
    assert "counts-tokens" in learnt(scripted.litellm("openai_tokenizer", "gpt-4o")).powers


def test_openai_says_nothing() -> None:
    knowledge = learnt(scripted.openai())
    assert (knowledge.flavour, knowledge.model) == ("openai", "gpt-4o")
    assert knowledge.limits.context_tokens is None
    assert knowledge.limits.declared == ()
    assert knowledge.powers == {"chat", "serves-many"}


def test_other_is_tried() -> None:
    knowledge = learnt(scripted.other())
    assert (knowledge.flavour, knowledge.model) == ("other", "mystery")
    assert knowledge.limits.context_tokens == 2048
    assert knowledge.limits.declared[0].source == "GET /v1/models data[].context_window"
    assert knowledge.powers == {"chat", "serves-many"}


def test_other_without_any_endpoint_is_no_target() -> None:
    with pytest.raises(UnableError, match="has neither /v1/chat/completions nor /v1/completions"):
        learnt({"GET /v1/models": models({"id": "m"})})


def test_landmarks_tell_a_server_whose_models_do_not() -> None:
    llama = {**scripted.llama_server(), "GET /v1/models": models({"id": "m"})}
    assert learnt(llama).flavour == "llama-server"
    sgl = {**scripted.sglang(), "GET /v1/models": models({"id": "q"}), "GET /get_model_info": {"model_path": "q"}}
    assert learnt(sgl).flavour == "sglang"
    bare = {question: answer for question, answer in scripted.ollama().items() if question != "GET /v1/models"}
    assert learnt(bare, model="llama3").flavour == "ollama"


def test_the_users_window_overrides_what_is_declared() -> None:
    limits = learnt(scripted.vllm(), window=100).limits
    assert limits.context_tokens == 100
    assert limits.declared[-1] == Limit(layer=Layer.ENGINE, name="window", tokens=100, source="--set window")
    assert len(limits.declared) == 3


@pytest.mark.parametrize("window", [0, -1])
def test_a_declared_window_of_nothing_is_no_window(window: int) -> None:
    with pytest.raises(UnableError, match=f"declares a window of {window} tokens") as error:
        learnt(scripted.llama_server(n_ctx=window))
    assert "--set window" in error.value.next_step
    assert learnt(scripted.llama_server(n_ctx=window), window=64).limits.context_tokens == 64


def test_malformed_details_are_only_missing() -> None:
    script = {
        **scripted.llama_server(),
        "GET /props": Reply("<html>"),
        "GET /slots": {"error": "no"},
        "GET /metrics": Reply("llamacpp:requests_processing NaN\nnonsense {\n"),
        "POST /tokenize": {"tokens": 3},
        "POST /v1/chat/completions/input_tokens": {"input_tokens": True},
        "POST /apply-template": [],
    }
    knowledge = learnt(script)
    assert knowledge.limits.context_tokens == 512
    assert "counts-tokens" not in knowledge.powers
    ill: list[Json] = [{"models": 5}, {"models": [3, {"name": []}]}, []]
    for running in ill:
        assert learnt({**scripted.ollama(), "GET /api/ps": running, "POST /api/show": {"model_info": 3}})


# ── counting ─────────────────────────────────────────────────────────────────────────────────────


def test_llama_server_counts_special_tokens_of_a_prompt() -> None:
    assert counted(scripted.llama_server(), "llama-server", Api.COMPLETIONS, "he", "y") == (4, ["POST /tokenize"])


def test_llama_server_counts_a_chat_with_its_template() -> None:
    number, paths = counted(scripted.llama_server(), "llama-server", Api.CHAT)
    assert (number, paths) == (31, ["POST /v1/chat/completions/input_tokens"])


def test_an_older_llama_server_counts_what_the_template_makes() -> None:
    script = dict(scripted.llama_server())
    del script["POST /v1/chat/completions/input_tokens"]
    number, paths = counted(script, "llama-server", Api.CHAT)
    assert number == len("<user>hello") + 1
    assert paths[1:] == ["POST /apply-template", "POST /tokenize"]


@pytest.mark.parametrize(
    ("script", "flavour", "api", "number"),
    [
        (scripted.vllm(), "vllm", Api.COMPLETIONS, 3),
        (scripted.vllm(), "vllm", Api.CHAT, 11),
        (scripted.sglang(), "sglang", Api.COMPLETIONS, 3),
        (scripted.tgi(), "tgi", Api.COMPLETIONS, 2),
        (scripted.tgi(), "tgi", Api.CHAT, 3),
        (scripted.litellm(), "litellm", Api.CHAT, 11),
        (scripted.litellm(), "litellm", Api.COMPLETIONS, 11),
    ],
)
def test_each_counts_in_its_own_way(script: Script, flavour: str, api: Api, number: int) -> None:
    assert counted(script, flavour, api)[0] == number


def test_who_counts_nothing_says_so_unless_told_to_estimate() -> None:
    with pytest.raises(UnableError, match=r"\(ollama\) does not count the tokens of a chat prompt") as error:
        counted(scripted.ollama(), "ollama", Api.CHAT)
    assert "chars_per_token" in error.value.next_step
    assert counted(scripted.ollama(), "ollama", Api.CHAT, "12345", "6789", chars_per_token=4.0)[0] == 3


# ── gauges ───────────────────────────────────────────────────────────────────────────────────────


def test_gauges_of_each() -> None:
    assert gauged(scripted.llama_server(), "llama-server") == Gauges(busy_slots=1, waiting_requests=3)
    assert gauged(scripted.vllm(), "vllm") == Gauges(
        busy_slots=3, waiting_requests=5, preemptions=7, kv_usage_ratio=0.25
    )
    assert gauged(scripted.sglang(), "sglang") == Gauges(
        busy_slots=4, waiting_requests=1, preemptions=2, kv_usage_ratio=0.5
    )
    assert gauged(scripted.tgi(), "tgi") == Gauges()


def test_llama_server_without_slots_tells_by_its_metrics() -> None:
    script = {**scripted.llama_server(), "GET /slots": Reply({"error": {"code": 501}}, 501)}
    assert gauged(script, "llama-server").busy_slots == 2


def test_an_older_vllm_names_its_cache_usage_otherwise() -> None:
    assert gauged({"GET /metrics": Reply("vllm:gpu_cache_usage_perc 0.5\n")}, "vllm").kv_usage_ratio == 0.5


def test_gauges_of_a_dead_server_are_unknown() -> None:
    async def read() -> Gauges:
        async with open_target(spec("http://127.0.0.1:1"), known("vllm")) as target:
            return await target.gauges()

    assert asyncio.run(read()) == Gauges()


def test_metrics_read_any_number() -> None:
    metrics = Metrics.of('a 1\na{x="1 } 2"} 2.5e+1 1700000000\nb +Inf\nc{l="v"} NaN\nd_total 3\n# a 9\n')
    assert metrics.count("a") == 26
    assert metrics.largest("a") == 25
    assert metrics.count("b") is None
    assert metrics.count("c") is None
    assert metrics.count("d") is None
    assert metrics.labels("c") == {"l": "v"}
    assert metrics.labels("z") == {}
