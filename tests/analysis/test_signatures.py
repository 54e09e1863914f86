"""Real messages of real engines, and what must be made of them."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextlab.analysis.signatures import (
    FLAVOURS,
    KINDS,
    MAX_CHARS,
    MAX_LINE_CHARS,
    NUMBERS,
    Signature,
    read_table,
    recognise,
    recognise_lines,
    signatures,
)
from contextlab.model import ContextlabError, Layer

Numbers = dict[str, int]

VLLM = "This model's maximum context length is 4096 tokens. However, "

MESSAGES: list[tuple[str, str, Numbers, str]] = [
    # id, kind, numbers, the message
    # llama.cpp
    (
        "llama-prompt-too-long", "overflow", {"prompt_tokens": 512, "limit_tokens": 512},
        '{"error":{"code":400,"message":"request (512 tokens) exceeds the available context size (512 tokens), try '
        'increasing it","type":"exceed_context_size_error","n_prompt_tokens":512,"n_ctx":512}}',
    ),
    (
        "llama-prompt-too-long", "overflow", {"prompt_tokens": 700, "limit_tokens": 512},
        " E srv send_error: task id = 4, error: request (700 tokens) exceeds the available context size (512 tokens), "
        "try increasing it",
    ),
    (
        "llama-prompt-too-long-2025", "overflow", {"prompt_tokens": 9001, "limit_tokens": 8192},
        '{"error":{"code":400,"message":"the request exceeds the available context size, try increasing '
        'it","type":"exceed_context_size_error","n_prompt_tokens":9001,"n_ctx":8192}}',
    ),
    (
        "llama-prompt-too-long-2025", "overflow", {},
        "the request exceeds the available context size. try increasing the context size or enable context shift",
    ),
    ("llama-prompt-too-long-type", "overflow", {}, "type: exceed_context_size_error, code: 500"),
    (
        "llama-batch-too-small", "overflow", {"prompt_tokens": 600, "limit_tokens": 512},
        "input (600 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
    ),
    ("llama-batch-too-small", "overflow", {}, "input is too large to process. increase the physical batch size"),
    (
        "llama-pool-exceeded", "pool", {},
        'data: {"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}',
    ),
    (
        "llama-pool-exceeded", "pool", {},
        "E srv update_slots: Context size has been exceeded. off = 0, n_batch = 1, ret = 1",
    ),
    (
        "llama-pool-retry", "pool", {"batch_tokens": 1024},
        "W failed to find free space in the KV cache, retrying with smaller batch size, off = 0, n_batch = 1024, ret "
        "= 1",
    ),
    ("llama-pool-no-slot", "pool", {"batch_tokens": 4}, "W decode: failed to find a memory slot for batch of size 4"),
    ("llama-decode-1", "pool", {}, "RuntimeError: llama_decode returned 1"),
    (
        "llama-cpp-python-prompt-too-long", "overflow", {"prompt_tokens": 1130, "limit_tokens": 512},
        "ValueError: Requested tokens (1130) exceed context window of 512",
    ),
    (
        "llama-shift", "shift", {"n_keep": 1, "n_left": 510, "n_discard": 255},
        "0.05.123.456 W slot operator(): id  0 | task 2 | slot context shift, n_keep = 1, n_left = 510, n_discard = "
        "255",
    ),
    (
        "llama-stopped-at-window", "capped", {"total_tokens": 511},
        "I slot release: id  0 | task 0 | stop processing: n_tokens = 511, truncated = 1",
    ),
    (
        "llama-stopped-at-window", "capped", {"total_tokens": 4095},
        "slot      release: id  0 | task 9 | stop processing: n_past = 4095, truncated = 1",
    ),
    (
        "llama-shift-disabled", "capped", {},
        '{"error":{"code":500,"message":"context shift is disabled","type":"server_error"}}',
    ),
    ("llama-completion-full", "capped", {}, "context full and context shift is disabled => stopping"),
    ("llama-k-shift-unsupported", "dead", {}, 'GGML_ASSERT: false && "Deepseek2 does not support K-shift"'),
    ("llama-k-shift-unsupported", "dead", {}, "The current context does not support K-shift"),
    (
        "llama-assert-ubatch", "dead", {},
        'llama-context.cpp:1787: GGML_ASSERT((cparams.causal_attn || cparams.n_ubatch >= n_tokens_all) && "non-causal '
        'attention requires n_ubatch >= n_tokens") failed',
    ),
    ("llama-assert-batch", "dead", {}, "GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed"),
    ("llama-assert", "dead", {}, "llama-context.cpp:88: GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max) failed"),
    ("llama-sub-batch", "dead", {}, "common.cpp:2245: get_sub_batch: failed to add token 0 at index 1"),
    (
        "llama-rounded-down", "adjusted", {"limit_tokens": 9216},
        "0.10.095.546 W llama_context: n_ctx is not divisible by n_seq_max - rounding down to 9216",
    ),
    (
        "llama-capped-to-training", "adjusted", {"asked_tokens": 2048, "limit_tokens": 512},
        "the slot context (2048) exceeds the training context of the model (512) - capping",
    ),
    (
        "llama-fit-reduced", "adjusted", {"asked_tokens": 32768, "limit_tokens": 4096},
        "common_params_fit_impl: context size reduced from 32768 to 4096 -> need 7252 MiB less memory in total",
    ),
    (
        "llama-over-training", "position", {"asked_tokens": 65536, "limit_tokens": 40960},
        "llama_context: n_ctx_per_seq (65536) > n_ctx_train (40960) -- possible training context overflow",
    ),
    (
        "llama-insufficient-memory", "out-of-memory", {},
        "ggml_aligned_malloc: insufficient memory (attempted to allocate 2880.00 MB)",
    ),
    ("llama-kv-memory", "out-of-memory", {}, "E llama_init_from_model: failed to allocate buffer for kv cache"),
    (
        "llama-device-memory", "out-of-memory", {},
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 5064192000",
    ),
    # Ollama
    (
        "ollama-prompt-too-long", "overflow", {},
        '{"error":"the prompt is longer than the context length currently available to the model; shorten the prompt"}',
    ),
    (
        "ollama-prompt-too-long-by", "overflow", {"excess_tokens": 100918},
        "400 `prompt too long; exceeded max context length by 100918 tokens`",
    ),
    ("ollama-embed-too-long", "overflow", {}, '{"error":"the input length exceeds the context length"}'),
    ("ollama-embed-uncuttable", "overflow", {}, "input after truncation exceeds maximum context length"),
    ("ollama-embed-uncuttable", "overflow", {}, "input exceeds maximum context length and cannot be truncated further"),
    (
        "ollama-prompt-cut", "truncated",
        {"limit_tokens": 8192, "prompt_tokens": 10552, "n_keep": 4, "kept_tokens": 8192},
        'level=WARN source=runner.go:131 msg="truncating input prompt" limit=8192 prompt=10552 keep=4 new=8192',
    ),
    (
        "ollama-messages-cut", "truncated", {"num_messages": 3},
        'level=DEBUG source=prompt.go:77 msg="truncating input messages which exceed context length" truncated=3',
    ),
    (
        "ollama-shift", "shift", {"limit_tokens": 2048, "n_keep": 5, "n_discard": 1021},
        'time=2025-02-26 level=DEBUG source=cache.go:232 msg="context limit hit - shifting" id=0 limit=2048 '
        "input=2048 keep=5 discard=1021",
    ),
    (
        "ollama-shift", "shift", {"limit_tokens": 2048, "n_keep": 4, "n_discard": 1022},
        'msg="context limit hit - shifting" limit=2048 numPast=2048 numKeep=4 numLeft=2044 numDiscard=1022',
    ),
    ("ollama-user-turn-lost", "truncated", {}, '{"error":{"message":"no user query found in messages"}}'),
    (
        "ollama-num-ctx-capped", "adjusted", {"asked_tokens": 65536, "limit_tokens": 40960},
        'msg="requested context size too large for model" num_ctx=65536 n_ctx_train=40960',
    ),
    ("ollama-memory", "out-of-memory", {}, "model requires more system memory (8.1 GiB) than is available (7.3 GiB)"),
    ("ollama-runner-dead", "dead", {}, "llama-server process has terminated: exit status 1"),
    # vLLM
    (
        "vllm-no-cache-blocks", "out-of-memory", {},
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
    ),
    (
        "vllm-prompt-at-least", "overflow", {"limit_tokens": 4096, "prompt_tokens": 4097},
        VLLM + "your prompt contains at least 4097 input tokens, which exceeds this limit even without any output "
        "tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=4097)",
    ),
    (
        "vllm-prompt", "overflow", {"limit_tokens": 4096, "prompt_tokens": 4200},
        VLLM + "your prompt contains 4200 input tokens, which exceeds this limit even without any output tokens.",
    ),
    (
        "vllm-total-at-least", "overflow",
        {"limit_tokens": 4096, "reply_tokens": 4000, "prompt_tokens": 97, "total_tokens": 4097},
        VLLM + "you requested 4000 output tokens and your prompt contains at least 97 input tokens, for a total of "
        "at least 4097 tokens. Please reduce the length of the input prompt or the number of requested "
        "output tokens.",
    ),
    (
        "vllm-chars", "overflow", {"limit_tokens": 4096, "chars": 600000, "limit_chars": 524288},
        VLLM + "your prompt contains 600000 characters (more than 524288 characters, which is the upper bound for "
        "4096 input tokens). Please reduce the length of the input prompt. (parameter=input_text, "
        "value=600000)",
    ),
    (
        "vllm-reply-too-large", "overflow", {"reply_tokens": 32000, "limit_tokens": 65536, "prompt_tokens": 34006},
        "ValueError: 'max_tokens' or 'max_completion_tokens' is too large: 32000.\nThis model's maximum context "
        "length is 65536 tokens and your request has\n34006 input tokens (32000 > 65536 - 34006).",
    ),
    (
        "vllm-prompt-2025", "overflow", {"limit_tokens": 4096, "prompt_tokens": 5000},
        VLLM + "you requested 5000 tokens in the messages, Please reduce the length of the messages.",
    ),
    (
        "vllm-prompt-2025", "overflow", {"limit_tokens": 4096, "prompt_tokens": 4100},
        VLLM + "you requested 4100 tokens in the input for score. Please reduce the length of the input.",
    ),
    (
        "openai-total", "overflow",
        {"limit_tokens": 4096, "total_tokens": 5000, "prompt_tokens": 4000, "reply_tokens": 1000},
        VLLM + "you requested 5000 tokens (4000 in the messages, 1000 in the completion). Please reduce the length "
        "of the messages or completion.",
    ),
    (
        "vllm-truncation-too-large", "overflow", {"asked_tokens": 8192, "limit_tokens": 4096},
        "truncate_prompt_tokens=8192 cannot be greater than max_model_len = 4096. Please request a smaller truncation "
        "size.",
    ),
    (
        "vllm-truncation-too-large", "overflow", {"asked_tokens": 8192, "limit_tokens": 4096},
        "truncate_prompt_tokens value (8192) is greater than max_model_len (4096). Please, select a smaller "
        "truncation size.",
    ),
    (
        "vllm-no-room-for-reply", "overflow", {"prompt_tokens": 512, "limit_tokens": 512},
        "The decoder prompt (length 512) plus the number of requested output tokens (at least 1) is longer than the "
        "maximum model length of 512. Make sure that `max_model_len` is no smaller than the number of text tokens.",
    ),
    (
        "vllm-engine-prompt", "overflow", {"prompt_tokens": 700, "limit_tokens": 512},
        "vllm.exceptions.VLLMValidationError: The encoder prompt (length 700) is longer than the maximum model length "
        "of 512. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
    ),
    (
        "vllm-engine-prompt-responses", "overflow", {"prompt_tokens": 227861, "limit_tokens": 131072},
        '{"message":"The engine prompt length 227861 exceeds the max_model_len 131072. Please reduce prompt."}',
    ),
    (
        "vllm-ignored", "overflow", {"prompt_tokens": 5000, "limit_tokens": 4096},
        "WARNING 05-09 scheduler.py:1107] Input prompt (5000 tokens) is too long and exceeds limit of 4096",
    ),
    (
        "vllm-ignored-block-manager", "overflow", {"prompt_tokens": 3000},
        "WARNING: Input prompt (3000 tokens) + lookahead slots (4) is too long and exceeds the capacity of "
        "block_manager",
    ),
    (
        "vllm-window-over-pool", "pool", {"asked_tokens": 131072, "limit_tokens": 24480},
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored "
        "in KV cache (24480). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
    ),
    (
        "vllm-window-over-memory", "pool", {"asked_tokens": 16384, "limit_tokens": 10240},
        "ValueError: To serve at least one request with the models's max seq len (16,384), (4.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (2.50 GiB). Based on the available memory, the "
        "estimated maximum model length is 10,240. Try increasing `gpu_memory_utilization`",
    ),
    (
        "vllm-window-over-memory", "pool", {"asked_tokens": 40960},
        "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.50 GiB). Try increasing "
        "`gpu_memory_utilization`",
    ),
    (
        "vllm-auto-fit", "adjusted", {"asked_tokens": 262144, "limit_tokens": 15168},
        "INFO Auto-fit max_model_len: reduced from 262144 to 15168 to fit in available KV cache memory (0.52 GiB)",
    ),
    (
        "vllm-over-derived", "position", {"asked_tokens": 32768, "limit_tokens": 4096},
        "User-specified max_model_len (32768) is greater than the derived max_model_len (max_position_embeddings=4096 "
        "or model_max_length=None in model's config.json).",
    ),
    (
        "vllm-preempted", "preempted", {"num_requests": 51},
        "WARNING 05-09 00:49:33 scheduler.py:1057 Sequence group 0 is preempted by PreemptionMode.RECOMPUTE mode "
        "because there is not enough KV cache space. This can affect the end-to-end performance. Increase "
        "gpu_memory_utilization or tensor_parallel_size to provide more KV cache memory. "
        "total_cumulative_preemption_cnt=51",
    ),
    (
        "vllm-preemptions", "preempted", {"num_requests": 12},
        "Engine 000: Avg prompt throughput: 83.1 tokens/s, Running: 8 reqs, Waiting: 3 reqs, Preemptions: 12",
    ),
    (
        "vllm-stuck-queue", "pool", {"num_requests": 3},
        "INFO loggers.py:127] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 "
        "tokens/s, Running: 0 reqs, Waiting: 3 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%",
    ),
    ("vllm-dead", "dead", {}, "ERROR core.py:708] EngineCore encountered a fatal error."),
    (
        "vllm-dead", "dead", {},
        "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.",
    ),
    ("vllm-server-error", "dead", {}, "The server had an error while processing your request. Sorry about that!"),
    # SGLang
    (
        "sglang-input-too-long", "overflow", {"prompt_tokens": 9000, "limit_tokens": 8192},
        "data: {\"error\":{\"object\":\"error\",\"message\":\"The input (9000 tokens) is longer than the model's "
        'context length (8192 tokens).","type":"BadRequest","code":400}}',
    ),
    (
        "sglang-second-limit", "overflow", {"prompt_tokens": 8190, "limit_tokens": 8186},
        "Input length (8190 tokens) exceeds the maximum allowed length (8186 tokens). Use a shorter input or enable "
        "--allow-auto-truncate.",
    ),
    (
        "sglang-total", "overflow",
        {"limit_tokens": 262144, "total_tokens": 270128, "prompt_tokens": 261936, "reply_tokens": 8192},
        "400 litellm.BadRequestError: OpenAIException - Requested token count exceeds the model's maximum context "
        "length of 262144 tokens. You requested a total of 270128 tokens: 261936 tokens from the input messages and "
        "8192 tokens for the completion. Please reduce the number of tokens in the input messages",
    ),
    (
        "sglang-kv-budget", "overflow", {"prompt_tokens": 70000},
        "FINISH_ABORT: Request prompt exceeds the KV memory budget: input_len=70000.",
    ),
    (
        "sglang-input-cut", "truncated", {"prompt_tokens": 9000, "limit_tokens": 8192},
        "The input (9000 tokens) is longer than the model's context length (8192 tokens). Truncating the input.",
    ),
    (
        "sglang-pool-cut", "truncated", {"prompt_tokens": 25000, "limit_tokens": 20000},
        "WARNING: Request length is longer than the KV cache pool size or the max context length. Truncated. "
        "len(req.origin_input_ids)=25000, max_req_input_len=20000.",
    ),
    (
        "sglang-pool-exhausted", "pool", {"asked_tokens": 4096},
        "RuntimeError: Decode out of memory. Try to lower your batch size. Try to allocate 4096 tokens. Available: 12",
    ),
    (
        "sglang-no-space-for-one", "pool", {"available_tokens": 12},
        "AssertionError: No space left for only one request, self.token_to_kv_pool_allocator.available_size()=12",
    ),
    ("sglang-dead", "dead", {}, "Scheduler hit an exception: Traceback (most recent call last):"),
    ("sglang-dead", "dead", {}, "SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
    (
        "sglang-retracted", "preempted", {"num_requests": 2},
        "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 646, #new_token_ratio: 0.09 "
        "-> 0.35",
    ),
    (
        "sglang-reply-clipped", "capped", {"prompt_tokens": 8000, "reply_tokens": 500, "limit_tokens": 8192},
        "WARNING: Requested token count (8000 input + 500 new) exceeds the model's context length (8192 tokens). "
        "Truncating max_new_tokens.",
    ),
    (
        "sglang-over-derived", "position", {"asked_tokens": 65536, "limit_tokens": 32768},
        "Warning: User-specified context_length (65536) is greater than the derived context_length (32768). This may "
        "lead to incorrect model outputs or CUDA errors.",
    ),
    (
        "sglang-static-memory", "out-of-memory", {},
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        "mem_fraction_static=0.7",
    ),
    # TGI and TEI
    (
        "tgi-total", "overflow", {"limit_tokens": 2048, "prompt_tokens": 1900, "reply_tokens": 500},
        '{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1900 `inputs` '
        'tokens and 500 `max_new_tokens`","error_type":"validation"}',
    ),
    (
        "tgi-prompt", "overflow", {"limit_tokens": 1024, "prompt_tokens": 2000},
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    ),
    (
        "tei-chars", "overflow", {"limit_chars": 250000, "chars": 300000},
        "`inputs` must have less than 250000 characters. Given: 300000",
    ),
    (
        "tgi-truncate-too-large", "overflow", {"limit_tokens": 1024, "asked_tokens": 4096},
        "`truncate` must be strictly positive and less than 1024. Given: 4096",
    ),
    (
        "tgi-warm-up-memory", "out-of-memory", {"asked_tokens": 4096},
        "RuntimeError: Not enough memory to handle 4096 prefill tokens.",
    ),
    # providers
    (
        "anthropic-total", "overflow", {"prompt_tokens": 190000, "reply_tokens": 20000, "limit_tokens": 200000},
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or "
        "`max_tokens` and try again",
    ),
    (
        "anthropic-prompt", "overflow", {"prompt_tokens": 213462, "limit_tokens": 200000},
        "prompt is too long: 213462 tokens > 200000 maximum",
    ),
    ("anthropic-stopped-at-window", "capped", {}, '{"stop_reason":"model_context_window_exceeded"}'),
    (
        "openai-prompt", "overflow", {"limit_tokens": 8192, "prompt_tokens": 9000},
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please "
        "reduce the length of the messages.",
    ),
    (
        "openai-total", "overflow",
        {"limit_tokens": 4097, "total_tokens": 4500, "prompt_tokens": 4000, "reply_tokens": 500},
        "This model's maximum context length is 4097 tokens, however you requested 4500 tokens (4000 in your prompt; "
        "500 for the completion). Please reduce your prompt; or completion length.",
    ),
    (
        "openai-total", "overflow",
        {"limit_tokens": 131072, "total_tokens": 140000, "prompt_tokens": 130000, "reply_tokens": 10000},
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (130000 "
        "of text input, 10000 in the output). Please reduce the length of either one.",
    ),
    ("openai-responses", "overflow", {}, "Your input exceeds the context window of this model."),
    (
        "openai-configured-limit", "overflow", {"limit_tokens": 272000, "prompt_tokens": 509178},
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.",
    ),
    ("openai-code", "overflow", {}, '{"error":{"code":"context_length_exceeded","param":"messages"}}'),
    (
        "gemini-prompt", "overflow", {"prompt_tokens": 1196265, "limit_tokens": 1048575},
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    ),
    (
        "mistral-prompt", "overflow", {"prompt_tokens": 40000, "limit_tokens": 32768},
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    ),
    (
        "xai-prompt", "overflow", {"limit_tokens": 131072, "prompt_tokens": 537812},
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    ),
    (
        "cerebras-prompt", "overflow", {"prompt_tokens": 9000, "limit_tokens": 8192},
        "Current length is 9000 while limit is 8192",
    ),
    ("cerebras-no-body", "overflow", {}, "413 status code (no body)"),
    ("kimi-prompt", "overflow", {"limit_tokens": 262144}, "exceeded model token limit: 262144"),
    (
        "kimi-prompt", "overflow", {"limit_tokens": 256000, "prompt_tokens": 310000},
        "Your request exceeded model token limit: 256000 (requested: 310000)",
    ),
    (
        "openai-reply-too-large", "overflow", {"reply_tokens": 10000, "limit_tokens": 4096},
        "max_tokens is too large: 10000. This model supports at most 4096 completion tokens, you provided 10000.",
    ),
    (
        "bedrock-count", "overflow", {"limit_tokens": 8192, "prompt_tokens": 14022},
        "ValidationException: 400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token "
        "count: 14022",
    ),
    (
        "cohere-prompt", "overflow", {"limit_tokens": 4081, "prompt_tokens": 4292},
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.",
    ),
    (
        "copilot-prompt", "overflow", {"prompt_tokens": 5000, "limit_tokens": 4096},
        "prompt token count of 5000 exceeds the limit of 4096",
    ),
    ("dashscope-range", "overflow", {"limit_tokens": 30000}, "Range of input length should be [1, 30000]"),
    ("minimax-prompt", "overflow", {}, "invalid params, context window exceeds limit (2013)"),
    (
        "ds4-prompt", "overflow", {"prompt_tokens": 5000, "limit_tokens": 4096},
        "Prompt has 5000 tokens, but the configured context size is 4096 tokens",
    ),
    # TensorRT-LLM, LMDeploy
    (
        "tensorrt-sum", "overflow", {"prompt_tokens": 72417, "limit_tokens": 69632},
        "The sum of prompt length (72417.0), query length (0) should not exceed max_num_tokens (69632)",
    ),
    (
        "tensorrt-sum", "overflow", {"prompt_tokens": 4000, "reply_tokens": 500, "limit_tokens": 4096},
        "The sum of prompt length (4000.0) and query length (0) max_tokens (500) should not exceed max_seq_len (4096)",
    ),
    (
        "tensorrt-pool-too-small", "pool", {},
        "maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion",
    ),
    ("lmdeploy-prompt", "overflow", {}, "The request exceeds the model context length."),
    (
        "lmdeploy-reply-clipped", "capped",
        {"prompt_tokens": 8000, "reply_tokens": 1024, "limit_tokens": 8192, "kept_tokens": 192},
        "[WARN] ID 7: total sequence length (8000 + 1024) exceeds `session_len` (8192), `max_new_tokens` is truncated "
        "to 192",
    ),
    ("lmdeploy-reply-clipped-2024", "capped", {"kept_tokens": 0}, "lmdeploy - ERROR - Truncate max_new_tokens to 0"),
    # transformers, torch and the rest
    ("transformers-embedding-range", "position", {}, "IndexError: index out of range in self"),
    (
        "transformers-position-table", "position", {"asked_tokens": 64, "limit_tokens": 64},
        "IndexError: index 64 is out of bounds for dimension 0 with size 64",
    ),
    (
        "transformers-static-cache", "position", {"asked_tokens": 32, "limit_tokens": 32},
        "IndexError: index_copy_(): index 32 is out of bounds for dimension 2 with size 32",
    ),
    (
        "transformers-static-cache-cuda", "position", {},
        'IndexKernel.cu:92: operator(): Assertion `idx >= 0 && idx < self_dim_size && "index_copy_(): index out of '
        'bounds"` failed.',
    ),
    (
        "transformers-embedding-range-cuda", "position", {},
        "indexSelectLargeIndex: block: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
    ),
    ("torch-device-assert", "dead", {}, "RuntimeError: CUDA error: device-side assert triggered"),
    (
        "transformers-input-over-max-length", "overflow", {"prompt_tokens": 72, "limit_tokens": 64},
        "ValueError: Input length of input_ids is 72, but `max_length` is set to 64. This can lead to unexpected "
        "behavior.",
    ),
    (
        "transformers-hole", "overflow", {},
        "We cannot use `hole` to handle this generation the number of desired tokens exceeds the models max length",
    ),
    (
        "transformers-predefined-length", "position", {"limit_tokens": 64},
        "the current text generation call has exceeded the model's predefined maximum length (64).",
    ),
    (
        "transformers-tokenizer-length", "position", {"prompt_tokens": 100, "limit_tokens": 64},
        "Token indices sequence length is longer than the specified maximum sequence length for this model (100 > 64).",
    ),
    ("transformers-no-length", "not-overflow", {}, "OverflowError: int too big to convert"),
    (
        "exllama-pages", "overflow", {"limit_tokens": 8192},
        "AssertionError: Job requires 33 pages (only 32 available) and cannot be enqueued. Total cache allocated is "
        "32 * 256 = 8192 tokens",
    ),
    ("exllama-cache-size", "overflow", {}, "AssertionError: Total sequence length exceeds cache size in model.forward"),
    (
        "mlx-kernel-panic", "dead", {},
        'panic(cpu 2 caller 0xfffffe0): "completeMemory() prepare count underflow" @IOGPUMemory.cpp',
    ),
    ("mlx-memory", "out-of-memory", {}, "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
    ("lm-studio-keep", "overflow", {}, "tokens to keep from the initial prompt is greater than the context length"),
    (
        "lm-studio-loaded", "overflow", {"prompt_tokens": 4000, "limit_tokens": 4096},
        "Trying to keep the first 4000 tokens when context overflows. However, the model is loaded with context length "
        "of only 4096 tokens, which is not enough.",
    ),
    (
        "lm-eval-cut", "truncated", {"prompt_tokens": 4100, "reply_tokens": 20, "limit_tokens": 4096},
        "Context length (4100) + continuation length (20) > max_length (4096). Left truncating context.",
    ),
    (
        "litellm-class", "overflow", {},
        "litellm.ContextWindowExceededError: context_window_fallbacks=None. fallbacks=None.",
    ),
    ("langchain-class", "overflow", {}, "langchain_anthropic.AnthropicContextOverflowError"),
    (
        "torch-cpu-memory", "out-of-memory", {},
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 67108864 bytes.",
    ),
    (
        "torch-device-memory", "out-of-memory", {},
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ),
    ("python-memory", "out-of-memory", {}, "Traceback (most recent call last):\nMemoryError"),
    ("cpp-memory", "out-of-memory", {}, "terminate called after throwing an instance of 'std::bad_alloc'"),
    # nobody's words: an engine that the table does not know
    ("generic-maximum-length", "overflow", {"limit_tokens": 32768}, "Error: maximum context length is 32768 tokens"),
    (
        "generic-maximum-length", "overflow", {"limit_tokens": 131072},
        "exceeds the model's maximum context length of 131,072 tokens",
    ),
    (
        "generic-prompt-over-limit", "overflow", {"prompt_tokens": 265330, "limit_tokens": 262144},
        "Input length (265330) exceeds model's maximum context length (262144).",
    ),
    (
        "generic-prompt-over-limit", "overflow", {"prompt_tokens": 300000, "limit_tokens": 262144},
        "Input length 300000 exceeds the maximum allowed input length of 262144 tokens.",
    ),
    (
        "generic-prompt-over-limit", "overflow", {"prompt_tokens": 9000, "limit_tokens": 8192},
        "Prompt too long: 9000 tokens exceeds max context window of 8192 tokens",
    ),
    ("generic-prompt-too-long", "overflow", {}, "ValidationException: Input is too long for requested model."),
    ("generic-over-context", "overflow", {}, "the conversation exceeds the context window"),
    ("generic-context-exceeded", "overflow", {}, "Error: maximum context length exceeded"),
    ("generic-reduce", "overflow", {}, "Please reduce the length of the messages or completion."),
    ("generic-token-limit", "overflow", {}, "too many tokens in the request"),
    # what dies under every engine
    ("glibc-heap-check", "dead", {}, "free(): invalid next size (normal)"),
    ("glibc-heap-check", "dead", {}, "malloc(): corrupted top size"),
    ("python-fatal", "dead", {}, "Fatal Python error: Segmentation fault"),
]  # fmt: skip

NO_OVERFLOW = [
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "429 rate limit exceeded",
    "Rate limit reached for gpt-4 on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000.",
    "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 15041, please reduce your "
    "message size",
    "Too many requests",
    '413 {"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
    "413 Request Entity Too Large",
    "payload too large: attachment exceeds 20MB",
    '{"error":"Model is overloaded","error_type":"overloaded"}',
    "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 80 "
    "instead.",
    'Post "http://localhost:11434/api/chat": context deadline exceeded',
]  # fmt: skip

UNKNOWN = [
    "",
    "model 'llama9' not found, try pulling it first",
    "Incorrect API key provided: sk-1234. You can find your API key in your account.",
    "invalid api key",
    "connection reset by peer",
    "Loading model",
    "Prompt contains invalid tokens",
    "max_tokens must be at least 1, got -5",
    "invalid temperature: exceeds the maximum allowed value",
    "the request count 12 exceeded the limit of 10",
    "please reduce the length of your model name",
    "0.00.203.733 I slot print_timing: id  0 | task 37335 | n_decoded =   5532",
    "I slot release: id  0 | task 0 | stop processing: n_tokens = 30, truncated = 0",
    "I srv  load_model: initializing, n_slots = 4, n_ctx_slot = 2048, kv_unified = 'true'",
    "llama_context: n_ctx_seq (512) < n_ctx_train (8192) -- the full capacity of the model will not be utilized",
    "new prompt, n_ctx_slot = 4096, n_keep = 4, task.n_tokens = 2277",
    'INFO:     127.0.0.1:50000 - "POST /v1/completions HTTP/1.1" 200 OK',
    "Engine 000: Avg prompt throughput: 210.0 tokens/s, Avg generation throughput: 31.0 tokens/s, Running: 4 reqs, "
    "Waiting: 0 reqs, Preemptions: 0, GPU KV cache usage: 12.1%",
    "Decode batch, #running-req: 66, #token: 87282, token usage: 1.00, cuda graph: False, #queue-req: 11",
    "Unable to restore slot: no such file",
]  # fmt: skip

CASES = [pytest.param(*case, id=f"{case[0]}-{num}") for num, case in enumerate(MESSAGES)]
WHOLE = st.sampled_from([message for _, _, _, message in MESSAGES])
NOISE = st.text(alphabet="abcdefgh XYZ|-.", max_size=60)


@pytest.mark.parametrize(("name", "kind", "numbers", "message"), CASES)
def test_a_real_message_is_named_with_its_numbers(name: str, kind: str, numbers: Numbers, message: str) -> None:
    found = recognise(message)
    assert found is not None
    assert (found.id, found.kind, dict(found.numbers)) == (name, kind, numbers)


@pytest.mark.parametrize("message", NO_OVERFLOW)
def test_what_only_sounds_like_an_overflow_is_told_apart(message: str) -> None:
    found = recognise(message)
    assert found is not None
    assert found.kind == "not-overflow"


@pytest.mark.parametrize("message", UNKNOWN)
def test_ordinary_errors_and_log_lines_are_not_recognised(message: str) -> None:
    for flavour in (None, *FLAVOURS):
        assert recognise(message, flavour=flavour) is None


@pytest.mark.parametrize("signature", signatures(), ids=lambda one: one.id)
def test_each_signature_matches_its_own_example_first(signature: Signature) -> None:
    for flavour in (None, signature.engine, *signature.also):
        found = recognise(signature.example, flavour=flavour)
        assert found is not None
        assert found.id == signature.id
        assert found.engine == (flavour or signature.engine)
        assert (found.kind, found.layer, found.means) == (signature.kind, signature.layer, signature.means)


def test_ids_are_unique_and_every_engine_and_kind_is_there() -> None:
    table = signatures()
    assert len({one.id for one in table}) == len(table)
    assert {one.engine for one in table} == set(FLAVOURS)
    assert {one.kind for one in table} == set(KINDS)


def test_every_message_class_of_the_table_has_a_real_message_here() -> None:
    seen = {name for name, _, _, _ in MESSAGES}
    assert {one.id for one in signatures() if one.kind != "not-overflow"} <= seen


def test_a_count_that_is_at_least_is_a_lower_bound_and_an_exact_one_is_not() -> None:
    at_least = recognise(VLLM + "your prompt contains at least 4097 input tokens, which exceeds this limit")
    exact = recognise(VLLM + "your prompt contains 4097 input tokens, which exceeds this limit")
    assert at_least is not None
    assert at_least.lower_bound
    assert exact is not None
    assert not exact.lower_bound


@pytest.mark.parametrize(
    ("message", "end"),
    [
        ('msg="truncating input prompt" limit=2050 prompt=8707 keep=4 new=2050', "head"),
        ("The input (9 tokens) is longer than the model's context length (8 tokens). Truncating the input.", "tail"),
        ("Context length (9) + continuation length (2) > max_length (8). Left truncating context.", "head"),
        ("request (512 tokens) exceeds the available context size (512 tokens)", ""),
    ],
)
def test_a_cut_says_which_end_is_lost(message: str, end: str) -> None:
    found = recognise(message)
    assert found is not None
    assert found.cut == end


def test_the_flavour_decides_between_engines_that_use_the_same_words() -> None:
    message = VLLM + "you requested 5000 tokens (4000 in the messages, 1000 in the completion)."
    for flavour, engine in ((None, "openai"), ("vllm", "vllm"), ("anthropic", "openai")):
        found = recognise(message, flavour=flavour)
        assert found is not None
        assert found.engine == engine


def test_the_words_of_the_engine_behind_a_gateway_win_over_the_gateways_own() -> None:
    wrapped = "litellm.ContextWindowExceededError: prompt is too long: 213462 tokens > 200000 maximum"
    found = recognise(wrapped, flavour="litellm")
    assert found is not None
    assert (found.engine, found.numbers["prompt_tokens"]) == ("anthropic", 213462)


def test_a_quota_wins_over_loose_words_but_not_over_an_engines_own() -> None:
    quota = recognise("Rate limit: please reduce the length of the messages")
    own = recognise("prompt is too long: 9 tokens > 8 maximum (rate limit: 10)")
    assert quota is not None
    assert quota.kind == "not-overflow"
    assert own is not None
    assert own.id == "anthropic-prompt"


def test_a_log_is_told_line_by_line_and_repeats_are_kept() -> None:
    shift = "W slot operator(): slot context shift, n_keep = 0, n_left = 255, n_discard = 127"
    found = recognise_lines([shift, "I srv  update_slots: all slots are idle", shift], flavour="llama-server")
    assert [one.id for one in found] == ["llama-shift", "llama-shift"]
    assert found[0].line == shift


def test_the_line_is_quoted_without_the_rest_and_never_at_length() -> None:
    in_a_stack = recognise("Traceback:\n  File x\n  IndexError: index out of range in self\nmore")
    assert in_a_stack is not None
    assert in_a_stack.line == "IndexError: index out of range in self"
    in_a_long_line = recognise("x" * 9000 + " Context size has been exceeded. " + "y" * 9000)
    assert in_a_long_line is not None
    assert "Context size has been exceeded" in in_a_long_line.line
    assert len(in_a_long_line.line) <= MAX_LINE_CHARS


def test_text_beyond_the_cap_is_not_looked_at() -> None:
    assert recognise(" " * MAX_CHARS + "Context size has been exceeded.") is None


@given(st.text(), st.one_of(st.none(), st.sampled_from(FLAVOURS), st.text()))
def test_any_text_is_read_without_an_error(text: str, flavour: str | None) -> None:
    found = recognise(text, flavour=flavour)
    assert found is None or found.numbers.keys() <= NUMBERS


@given(WHOLE, NOISE, NOISE)
def test_noise_around_a_message_does_not_hide_it(message: str, before: str, after: str) -> None:
    alone = recognise(message)
    noisy = recognise(f"{before}\n{message}\n{after}")
    assert alone is not None
    assert noisy is not None
    assert (noisy.id, noisy.numbers) == (alone.id, alone.numbers)


@given(WHOLE, st.sampled_from(FLAVOURS))
def test_no_flavour_hides_a_message(message: str, flavour: str) -> None:
    alone, told = recognise(message), recognise(message, flavour=flavour)
    assert alone is not None
    assert told is not None
    assert told.kind == alone.kind


@given(WHOLE)
def test_a_message_is_the_same_inside_json(message: str) -> None:
    alone, inside = recognise(message), recognise(json.dumps({"error": {"message": message}}))
    assert alone is not None
    assert inside is not None
    assert (inside.id, inside.numbers) == (alone.id, alone.numbers)


def test_signs_that_go_escapes_in_json_are_read() -> None:
    found = recognise(r'{"error":"prompt is too long: 213462 tokens \u003e 200000 maximum"}')
    assert found is not None
    assert found.id == "anthropic-prompt"


@given(st.integers(0, 10**18), st.integers(0, 10**18), st.booleans())
def test_numbers_survive(prompt: int, limit: int, commas: bool) -> None:
    shape = "," if commas else ""
    found = recognise(f"prompt is too long: {prompt:{shape}} tokens > {limit:{shape}} maximum")
    assert found is not None
    assert found.numbers == {"prompt_tokens": prompt, "limit_tokens": limit}


@given(st.integers(41, 5000))
def test_a_number_of_absurd_length_is_no_error(digits: int) -> None:
    assert recognise(f"the request exceeds the available context size {'9' * digits}") is not None


ENTRY = """
[[signature]]
id = "mine"
engine = "vllm"
kind = "overflow"
layer = "engine"
pattern = 'over <limit_tokens>'
means = "over"
example = "over 5"
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("over <limit_tokens>", "over (", "unterminated"),
        ("<limit_tokens>", "<limit>", "<limit> is not a name of a number"),
        ('"vllm"', '"vlm"', "engine=vlm; it must be one of"),
        ('"overflow"', '"overrun"', "kind=overrun; it must be one of"),
        ('"engine"', '"motor"', "layer=motor; it must be one of"),
        ("means =", "meaning =", "means is missing"),
        ("means =", 'colour = "red"\nmeans =', "colour is no field"),
        ("means =", 'also = ["vlm"]\nmeans =', "also=vlm is no flavour"),
        ("means =", 'cut = "head"\nmeans =', "cut belongs to"),
        ('"overflow"', '"truncated"', "cut belongs to"),
    ],
)
def test_a_broken_table_is_refused_by_the_name_of_its_entry(old: str, new: str, complaint: str) -> None:
    with pytest.raises(ContextlabError, match="signature id=mine: ") as caught:
        read_table(ENTRY.replace(old, new, 1))
    assert complaint in caught.value.message


def test_an_entry_without_an_id_is_named_by_its_place_and_a_double_one_by_its_id() -> None:
    with pytest.raises(ContextlabError, match=r"signature id=\(entry 2\): id is missing"):
        read_table(ENTRY + ENTRY.replace('id = "mine"\n', ""))
    with pytest.raises(ContextlabError, match="signature id=mine: this id is taken twice"):
        read_table(ENTRY + ENTRY)
    with pytest.raises(ContextlabError, match=r"signatures\.toml: "):
        read_table("[[signature]\n")


def test_a_good_table_is_read() -> None:
    (mine,) = read_table(ENTRY)
    assert mine.layer is Layer.ENGINE
    assert mine.pattern.search("over\n1,024")


def test_the_table_lies_beside_the_code() -> None:
    assert files("contextlab.analysis").joinpath("signatures.toml").is_file()


@pytest.mark.parametrize("one", signatures(), ids=lambda one: one.id)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)
@given(data=st.data())
def test_what_a_signature_matches_has_one_of_its_words(one: Signature, data: st.DataObject) -> None:
    """Else a search for the words first, which is all that most lines of a log get, would miss it."""
    text = data.draw(st.from_regex(one.pattern))
    assert not one.words or any(word in text.lower() for word in one.words)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("context length", ("context",)),
        ("out of memory|no memory", ("memory",)),
        ("(?:prompt|input) is (?:too long|over the limit)", ("prompt", "input")),
        ("tokens?", ("token",)),
        ("(?:optional)?cut", ()),
        (r"\d+ tokens", ("tokens",)),
        ("one|tokens", ()),
        (r"free\(\): corrupted", ("corrupted",)),
        ("[abc]{3}window", ("window",)),
        ("(?!never)window", ("window",)),
        ("", ()),
    ],
)
def test_the_words_of_a_pattern(pattern: str, words: tuple[str, ...]) -> None:
    entry = f"""[[signature]]
id = "x"
engine = "other"
kind = "overflow"
layer = "engine"
pattern = '{pattern or "()"}'
means = "m"
example = "e"
"""
    assert read_table(entry)[0].words == words
