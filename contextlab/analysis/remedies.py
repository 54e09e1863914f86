"""What to change after an outcome, by the name that the engine in question gives to the setting.

One table, most particular first: (flavour, outcome, about) → a sentence or two. `about` is a signature's id, a
scenario's name or a cause (see `_abouts`). A remedy is advice for the common case: it cannot know how a server was
started, and it never says that an outcome was right or wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextlab.model import Evidence, Layer, Outcome

ANY = ""
"""The flavour of advice that holds for every engine."""

POOL, MEMORY, POSITIONS = "pool", "memory", "positions"
"""Causes: the shared KV cache, memory as such, the model's positions."""

_CAUSES = {Layer.KV_CACHE: POOL, Layer.ATTENTION: MEMORY, Layer.POSITIONS: POSITIONS}
_CAUSE_OF_SCENARIO = {"kv-exhaustion": POOL}


def remedy(
    outcome: Outcome,
    *,
    flavour: str,
    scenario: str = "",
    layer: Layer | None = None,
    evidence: Evidence | None = None,
    signature: str = "",
) -> str:
    """What to change after this outcome; "" for OK only, and never a guess at an engine that is not known.

    `flavour` is one of `signatures.FLAVOURS`; any other gets the advice that holds for every engine.
    Of `evidence` only `out_of_memory` and `kind` (of a recognised signature) are looked at: with `layer`
    they tell a want of memory from a want of window. `signature`: the id of the message that was recognised.
    """
    abouts = [*([signature] if signature else []), *_abouts(scenario, layer, evidence or {})]
    for whose in (flavour, ANY):
        for about in abouts:
            if (whose, outcome, about) in REMEDIES:
                return REMEDIES[whose, outcome, about]
    return ""


def _abouts(scenario: str, layer: Layer | None, evidence: Evidence) -> Iterator[str]:
    """What the remedy should be about, from the most particular to ""."""
    if scenario:
        yield scenario
    if evidence.get("out_of_memory") is True or evidence.get("kind") == "out-of-memory":
        yield MEMORY
    if evidence.get("kind") == "pool":
        yield POOL
    if layer in _CAUSES:
        yield _CAUSES[layer]
    if scenario in _CAUSE_OF_SCENARIO:
        yield _CAUSE_OF_SCENARIO[scenario]
    yield ""


REMEDIES: dict[tuple[str, Outcome, str], str] = {
    # ── every engine ─────────────────────────────────────────────────────────────────────────────
    (ANY, Outcome.OK, ""): "",
    (ANY, Outcome.REJECTED, ""): (
        "Count tokens before sending, chat template included, and keep room for the reply: "
        "prompt + max_tokens must stay inside the window."
    ),
    (ANY, Outcome.CAPPED, ""): (
        "Treat finish_reason=length as an unfinished answer, and keep more room for the reply: "
        "a shorter prompt or a larger window."
    ),
    (ANY, Outcome.REJECTED_BADLY, ""): (
        "Do not rely on the status: read the error's words, also inside a success or a stream, and put a check of "
        "the prompt's tokens in front of the server so that callers get a clear 400."
    ),
    (ANY, Outcome.EMPTY, ""): (
        "Treat a success without content as an error in the client, and keep prompt + max_tokens inside the window; "
        "a reply budget clipped to nothing looks like this."
    ),
    (ANY, Outcome.CUT, ""): (
        "Accept a stream only with its finish_reason and [DONE], and retry one without; "
        "then look in the server's log for what ended it, and at the timeouts of proxies in between."
    ),
    (ANY, Outcome.STREAM_DAMAGED, ""): (
        "Accept a stream only with its finish_reason, [DONE] and valid JSON, and start it over where one is missing, "
        "without joining the pieces; look between client and engine for a proxy that buffers, retries or cuts."
    ),
    (ANY, Outcome.BOUND_BROKEN, ""): (
        "Read which bound broke and in which phase: for errors set timeouts above the longest wait that TCP's repeats "
        "make, for latency and backlog send less at once or refuse early; or correct the bound."
    ),
    (ANY, Outcome.NOT_RECOVERED, ""): (
        "Bound the queue in front of the server and let requests expire in it, so that old work does not keep new work "
        "waiting after the fault; see that clients back off and reconnect."
    ),
    (ANY, Outcome.NOT_RELEASED, ""): (
        "Let clients stream: a server notices a closed stream at its next token, a waiting reply often only at its "
        "end; set a time limit for each request, and watch the server's slots, descriptors and memory."
    ),
    (ANY, Outcome.HEALTH_LIED, ""): (
        "Decide on restarts and traffic by a completion of one token with a deadline, not by the health endpoint "
        "alone, and give that deadline room for a queue that is merely long."
    ),
    (ANY, Outcome.DEGRADED, ""): (
        "Stay below the size from which answers got worse, or run fewer requests at once, "
        "until the same request answers the same."
    ),
    (ANY, Outcome.DEGRADED, POSITIONS): (
        "Do not serve a window longer than the positions the model was trained on, "
        "or set the RoPE scaling that its card gives for that length."
    ),
    (ANY, Outcome.TRUNCATED_HEAD, ""): (
        "Turn silent truncation off or raise the window; until then count tokens before sending, "
        "because the system prompt and the first instructions are what is lost."
    ),
    (ANY, Outcome.TRUNCATED_MIDDLE, ""): (
        "Turn silent truncation off or raise the window, and drop old messages in the client, "
        "where you choose which ones and can say so."
    ),
    (ANY, Outcome.TRUNCATED_TAIL, ""): (
        "Turn silent truncation off or raise the window; until then count tokens before sending, "
        "because the question itself, at the end, is what is lost."
    ),
    (ANY, Outcome.SHIFTED, ""): (
        "Turn the sliding of the window (context shift) off, or bound every reply with max_tokens "
        "so that prompt and reply fit the window."
    ),
    (ANY, Outcome.RUNAWAY, ""): (
        "Set max_tokens on every request and a limit of generated tokens on the server; "
        "a client's timeout frees the client, not always the server."
    ),
    (ANY, Outcome.NEIGHBOUR_ABORTED, ""): (
        "Give every request a KV budget of its own, or admit fewer at once, "
        "so that the sum of their windows fits the KV cache."
    ),
    (ANY, Outcome.NEIGHBOUR_CORRUPTED, ""): (
        "Stop sharing until it is mended: one request at a time, prefix caching off; "
        "then report it to the engine with this run's record, for answers must not depend on neighbours."
    ),
    (ANY, Outcome.LEAKED, ""): (
        "Take the server out of shared use now, turn prefix and KV reuse between clients off, "
        "and report it to the engine with this run's record."
    ),
    (ANY, Outcome.HUNG, ""): (
        "Put a time limit on every request, and probe the server's health with a one-token generation: "
        "a health endpoint can answer while nothing is served."
    ),
    (ANY, Outcome.HUNG, POOL): (
        "Keep the largest accepted prompt below what the KV cache can hold at once, so that no request waits for "
        "space that cannot come; probe health with a one-token generation."
    ),
    (ANY, Outcome.CRASHED, ""): (
        "Refuse such a request in front of the server, run the server under a supervisor that restarts it, "
        "and report the crash to the engine with this run's record."
    ),
    (ANY, Outcome.CRASHED, MEMORY): (
        "Lower the window, the number of requests at once or the precision of the KV cache until weights, KV cache "
        "and the largest prompt's activations fit the memory; leave some of it free."
    ),
    (ANY, Outcome.CRASHED, POSITIONS): (
        "Refuse prompts longer than the model's positions (max_position_embeddings) in front of the model, "
        "the reply counted in."
    ),
    (ANY, Outcome.UNKNOWN, ""): (
        "Run it again alone and with more time; if it stays unknown, look at the record and the server's log: "
        "the evidence did not tell the outcomes apart."
    ),
    # ── llama.cpp ────────────────────────────────────────────────────────────────────────────────
    ("llama-server", Outcome.REJECTED, ""): (
        "Count with /tokenize or /v1/chat/completions/input_tokens before sending; "
        "for more room raise -c (--ctx-size), which is divided by --parallel unless the KV cache is unified."
    ),
    ("llama-server", Outcome.REJECTED, "llama-batch-too-small"): (
        "Raise --ubatch-size (-ub), and --batch-size (-b) with it, to the longest input, or send shorter inputs; a "
        "larger window changes nothing here."
    ),
    ("llama-server", Outcome.CAPPED, ""): (
        "Treat finish_reason=length as an unfinished answer (the native /completion says truncated:true at the "
        "window); for longer ones raise -c (--ctx-size) per slot."
    ),
    ("llama-server", Outcome.REJECTED_BADLY, ""): (
        "Update llama.cpp: current builds answer 400 exceed_context_size_error with both numbers. For embeddings "
        "raise --ubatch-size to the longest input; a longer one gets 500."
    ),
    ("llama-server", Outcome.REJECTED_BADLY, POOL): (
        "Start with --no-kv-unified, or -c of at least slots × window: a 500 for an exhausted KV pool "
        "is no refusal and hits every running request."
    ),
    ("llama-server", Outcome.CUT, POOL): (
        "Start with --no-kv-unified, or -c of at least slots × window; the KV pool ran out in mid-stream. "
        "For a server that contextlab starts: --set kv_unified=false."
    ),
    ("llama-server", Outcome.BOUND_BROKEN, ""): (
        "Give the server as many --parallel slots as streams must run at once (-c is divided by them), leave --threads "
        "below the number of free cores, and send less than it decodes."
    ),
    ("llama-server", Outcome.NOT_RECOVERED, ""): (
        "Look at /slots for work of clients that left, and bound every reply with max_tokens or --predict: "
        "requests wait in a queue without an end, so refuse them in front of it."
    ),
    ("llama-server", Outcome.DEGRADED, ""): (
        "Use --no-kv-unified and fewer --parallel slots so that requests do not share KV cells, "
        "and keep --context-shift off."
    ),
    ("llama-server", Outcome.SHIFTED, ""): (
        "Start without --context-shift and set max_tokens; if the shift is wanted, --keep -1 keeps the prompt. "
        "For a server that contextlab starts: --set context_shift=false."
    ),
    ("llama-server", Outcome.RUNAWAY, ""): (
        "Start with --predict N (or set max_tokens on every request) and without --context-shift, "
        "which lets a reply go on for ever."
    ),
    ("llama-server", Outcome.NEIGHBOUR_ABORTED, ""): (
        "Start with --no-kv-unified, or with -c of at least slots × window, or with fewer --parallel: slots share one "
        "KV pool. For a server that contextlab starts: --set kv_unified=false."
    ),
    ("llama-server", Outcome.NEIGHBOUR_CORRUPTED, ""): (
        "Start with --no-kv-unified and --cache-reuse 0, or --parallel 1, "
        "and do not restore slot files that another build wrote."
    ),
    ("llama-server", Outcome.LEAKED, ""): (
        "Send cache_prompt:false, start with --cache-ram 0 and --no-kv-unified, and do not share --slot-save-path; "
        "then report it with this run's record."
    ),
    ("llama-server", Outcome.HUNG, ""): (
        "Set max_tokens, start without --context-shift, and see that --parallel is at least 1; "
        "watch /slots at most once a second, faster polling delays the check for clients that left."
    ),
    ("llama-server", Outcome.HUNG, POOL): (
        "Start with --no-kv-unified, or with -c of at least slots × window, and set max_tokens: "
        "a full KV pool makes the server retry ever smaller batches."
    ),
    ("llama-server", Outcome.CRASHED, ""): (
        "Read the GGML_ASSERT in the log: keep --ctx-size at 256 or more, --batch-size at least --parallel, and "
        "embedding inputs within --ubatch-size; older builds also abort on a context shift."
    ),
    ("llama-server", Outcome.CRASHED, MEMORY): (
        "Lower -c (--ctx-size) or --parallel, use --cache-type-k q8_0 --cache-type-v q8_0, and bound the host's prompt "
        "cache with --cache-ram; --fit chooses a context that the memory holds."
    ),
    # ── vLLM ─────────────────────────────────────────────────────────────────────────────────────
    ("vllm", Outcome.REJECTED, ""): (
        "Count with /tokenize before sending and keep prompt + max_tokens within --max-model-len; "
        'where the message says "at least", the prompt may be far longer than quoted.'
    ),
    ("vllm", Outcome.CAPPED, ""): (
        "Treat finish_reason=length as an unfinished answer; newer versions clip max_tokens to --max-model-len "
        "without a word, so reserve the reply's room yourself."
    ),
    ("vllm", Outcome.EMPTY, ""): (
        "Keep prompts below --max-model-len and the KV cache's size: the V0 scheduler ignores larger ones with an "
        "empty success. Update to a version with the V1 engine."
    ),
    ("vllm", Outcome.BOUND_BROKEN, ""): (
        "Compare vllm:num_requests_waiting with num_requests_running: raise --max-num-seqs if the KV cache has room, "
        "lower --max-num-batched-tokens where long prompts hold streams up, or send less."
    ),
    ("vllm", Outcome.NOT_RECOVERED, ""): (
        "Watch vllm:num_requests_waiting go down after the fault: if it does not, refuse requests in front of the "
        "server while it is high, and see that those of clients that left are aborted."
    ),
    ("vllm", Outcome.DEGRADED, ""): (
        "Lower --max-num-seqs or --max-model-len, or raise --gpu-memory-utilization, until vllm:num_preemptions stays "
        "flat: preempted requests are computed again."
    ),
    ("vllm", Outcome.DEGRADED, POSITIONS): (
        "Keep --max-model-len within the model's positions, without VLLM_ALLOW_LONG_MAX_MODEL_LEN, "
        "or set the rope scaling of its card with --hf-overrides."
    ),
    ("vllm", Outcome.TRUNCATED_HEAD, ""): (
        "Leave truncate_prompt_tokens out of the request, or set truncation_side to what you mean, "
        "and raise --max-model-len."
    ),
    ("vllm", Outcome.TRUNCATED_TAIL, ""): (
        "Leave truncate_prompt_tokens out of the request, or set truncation_side=left to keep the end, "
        "and raise --max-model-len."
    ),
    ("vllm", Outcome.NEIGHBOUR_ABORTED, ""): (
        "Lower --max-num-seqs or --max-model-len, or raise --gpu-memory-utilization; offline, validate lengths before "
        "LLM.generate, where one bad prompt ends its whole batch."
    ),
    ("vllm", Outcome.NEIGHBOUR_CORRUPTED, ""): (
        "Try --no-enable-prefix-caching and a lower --max-num-seqs so that nothing is preempted or evicted, "
        "and report it with this run's record."
    ),
    ("vllm", Outcome.LEAKED, ""): (
        "Start with --no-enable-prefix-caching or send a cache_salt per client, and report it with this run's record."
    ),
    ("vllm", Outcome.HUNG, ""): (
        "Watch vllm:num_requests_waiting against num_requests_running and probe with a one-token generation, for "
        "/health answers 200 meanwhile; keep --max-model-len ≤ (num_gpu_blocks − 1) × block_size."
    ),
    ("vllm", Outcome.HUNG, POOL): (
        "Keep --max-model-len ≤ (num_gpu_blocks − 1) × block_size, or raise --gpu-memory-utilization: a prompt that "
        "needs more blocks than exist waits for ever at the head of the queue."
    ),
    ("vllm", Outcome.CRASHED, ""): (
        "Set --max-model-len to a number instead of auto, within what the KV cache holds, and restart on "
        "EngineDeadError: /v1/models and /health can outlive the engine."
    ),
    ("vllm", Outcome.CRASHED, MEMORY): (
        "Lower --max-model-len, --max-num-batched-tokens or --max-num-seqs, or use --kv-cache-dtype fp8; "
        "a lower --gpu-memory-utilization leaves more for activations."
    ),
    # ── SGLang ───────────────────────────────────────────────────────────────────────────────────
    ("sglang", Outcome.REJECTED, ""): (
        "Keep prompts below min(--context-length − 1, KV pool) − 5, the scheduler's own limit, "
        "which is smaller than the context length that is advertised."
    ),
    ("sglang", Outcome.CAPPED, ""): (
        "Treat finish_reason=length as an unfinished answer; with --allow-auto-truncate max_new_tokens is clipped "
        "and only the log says so."
    ),
    ("sglang", Outcome.REJECTED_BADLY, ""): (
        "Read the stream's chunks for an error object: with stream=true the refusal may come inside a 200. "
        "Count tokens in front of the server."
    ),
    ("sglang", Outcome.BOUND_BROKEN, ""): (
        "Bound the queue with --max-queued-requests, and raise --max-running-requests only where --mem-fraction-static "
        "leaves room for it; a smaller --chunked-prefill-size keeps streams moving."
    ),
    ("sglang", Outcome.NOT_RECOVERED, ""): (
        "Bound the queue with --max-queued-requests so that old requests do not outlive the fault, "
        "and see that the token usage goes back to what it was."
    ),
    ("sglang", Outcome.DEGRADED, ""): (
        "Raise --schedule-conservativeness or --mem-fraction-static, or lower --max-running-requests, until requests "
        "are no longer retracted."
    ),
    ("sglang", Outcome.TRUNCATED_TAIL, ""): (
        "Remove --allow-auto-truncate, which keeps the head of the prompt and drops the question at its end; "
        "then it is refused with 400."
    ),
    ("sglang", Outcome.NEIGHBOUR_CORRUPTED, ""): (
        "Try --disable-radix-cache and a lower --max-running-requests, and report it with this run's record."
    ),
    ("sglang", Outcome.NEIGHBOUR_ABORTED, ""): (
        "Lower --max-running-requests or raise --mem-fraction-static and --schedule-conservativeness, "
        "so that the KV pool never has to abort a running request."
    ),
    ("sglang", Outcome.LEAKED, ""): "Start with --disable-radix-cache, and report it with this run's record.",
    ("sglang", Outcome.CRASHED, ""): (
        "Set --context-length below the KV pool's size and lower --max-running-requests; "
        "the scheduler takes the whole server down (SIGQUIT) when the pool runs out, so run it under a supervisor."
    ),
    ("sglang", Outcome.CRASHED, POOL): (
        "Raise --mem-fraction-static, or lower --context-length or --max-running-requests, so that the KV pool holds "
        "what is admitted; a smaller --chunked-prefill-size helps prefill."
    ),
    ("sglang", Outcome.CRASHED, MEMORY): (
        "Lower --mem-fraction-static if activations run out of memory, raise it if the KV pool does; "
        "lower --context-length or --chunked-prefill-size."
    ),
    # ── Ollama ───────────────────────────────────────────────────────────────────────────────────
    ("ollama", Outcome.REJECTED, ""): (
        "Raise options.num_ctx (native API or Modelfile; /v1 ignores it) or OLLAMA_CONTEXT_LENGTH, "
        "or send a shorter prompt."
    ),
    ("ollama", Outcome.CAPPED, ""): (
        "Raise options.num_ctx (native API or Modelfile; /v1 ignores it) or OLLAMA_CONTEXT_LENGTH, "
        "and treat done_reason=length as an unfinished answer."
    ),
    ("ollama", Outcome.REJECTED_BADLY, ""): (
        "Raise num_ctx in the Modelfile or OLLAMA_CONTEXT_LENGTH: with tools, dropping old messages can remove the "
        "user's turn, and the error (500, no user query found) hides why."
    ),
    ("ollama", Outcome.TRUNCATED_HEAD, ""): (
        "Raise options.num_ctx (native API or Modelfile; /v1 ignores it) or OLLAMA_CONTEXT_LENGTH, "
        "or send truncate:false and shift:false to get a refusal instead."
    ),
    ("ollama", Outcome.TRUNCATED_MIDDLE, ""): (
        "Raise options.num_ctx (native API or Modelfile; /v1 ignores it) or OLLAMA_CONTEXT_LENGTH: the first num_keep "
        "tokens and the end are kept. truncate:false and shift:false refuse instead."
    ),
    ("ollama", Outcome.TRUNCATED_TAIL, ""): (
        "Send truncate:false to /api/embed, which keeps the head of its input, "
        "or raise options.num_ctx up to what the model was trained on."
    ),
    ("ollama", Outcome.SHIFTED, ""): (
        "Send shift:false (native API), set options.num_predict or max_tokens, and raise options.num_ctx "
        "or OLLAMA_CONTEXT_LENGTH."
    ),
    ("ollama", Outcome.RUNAWAY, ""): (
        "Set options.num_predict (num_predict in the Modelfile, max_tokens on /v1) and send shift:false: "
        "by default a reply may slide through ten windows."
    ),
    ("ollama", Outcome.BOUND_BROKEN, ""): (
        "Raise OLLAMA_NUM_PARALLEL as far as the memory allows, and lower OLLAMA_MAX_QUEUE so that what cannot be "
        "served soon is refused with 503."
    ),
    ("ollama", Outcome.NEIGHBOUR_ABORTED, ""): (
        "Lower OLLAMA_NUM_PARALLEL, or lower num_ctx so that num_ctx × parallel requests fit the memory."
    ),
    ("ollama", Outcome.HUNG, ""): (
        "Set options.num_predict and send shift:false, for a window that slides again and again looks like a hang; "
        "lower OLLAMA_NUM_PARALLEL if requests only wait."
    ),
    ("ollama", Outcome.CRASHED, MEMORY): (
        "Lower num_ctx or OLLAMA_NUM_PARALLEL, or set OLLAMA_KV_CACHE_TYPE=q8_0 with OLLAMA_FLASH_ATTENTION=1."
    ),
    # ── TGI ──────────────────────────────────────────────────────────────────────────────────────
    ("tgi", Outcome.REJECTED, ""): (
        "Raise --max-input-tokens and --max-total-tokens as far as the memory allows, or shorten the prompt; "
        "expect status 422, not 400."
    ),
    ("tgi", Outcome.REJECTED_BADLY, ""): (
        "Treat 422 with error_type=validation as the refusal it is, and 424 and 429 as the server's own trouble; "
        "the limits are --max-input-tokens and --max-total-tokens."
    ),
    ("tgi", Outcome.TRUNCATED_HEAD, ""): (
        "Drop `truncate` from the request, which keeps only the tail of the prompt, "
        "and raise --max-input-tokens and --max-total-tokens."
    ),
    ("tgi", Outcome.CRASHED, MEMORY): (
        "Lower --max-batch-prefill-tokens, --max-batch-total-tokens or --max-total-tokens, "
        "or lower --cuda-memory-fraction to leave some free."
    ),
    ("tgi", Outcome.NEIGHBOUR_ABORTED, ""): (
        "Lower --max-concurrent-requests or --max-batch-total-tokens, so that what is admitted fits the KV cache."
    ),
    # ── TensorRT-LLM ─────────────────────────────────────────────────────────────────────────────
    ("tensorrt-llm", Outcome.REJECTED, ""): (
        "Raise max_num_tokens, a budget of the batch (8192 by default), or turn chunked prefill on; "
        "max_seq_len is the window itself."
    ),
    ("tensorrt-llm", Outcome.DEGRADED, ""): (
        "Raise max_seq_len and max_input_len to what the model was trained on and rebuild the engine: "
        "a request that is paused and computed again is cut to max_input_len."
    ),
    ("tensorrt-llm", Outcome.CRASHED, MEMORY): (
        "Lower max_seq_len, max_num_tokens or max_batch_size, "
        "or kv_cache_config.free_gpu_memory_fraction to leave more for activations."
    ),
    ("tensorrt-llm", Outcome.HUNG, POOL): (
        "Raise kv_cache_config.free_gpu_memory_fraction (or max_tokens of the KV cache) until it holds one whole "
        "max_seq_len, or lower max_seq_len."
    ),
    # ── LMDeploy ─────────────────────────────────────────────────────────────────────────────────
    ("lmdeploy", Outcome.REJECTED, ""): "Raise --session-len, or shorten the prompt: it must stay below session_len.",
    ("lmdeploy", Outcome.CAPPED, ""): (
        "Raise --session-len, and treat finish_reason=length as an unfinished answer: "
        "max_new_tokens is clipped to the room left, and only the log says so."
    ),
    ("lmdeploy", Outcome.EMPTY, ""): (
        "Raise --session-len or shorten the prompt: older versions answer one that fills session_len with an empty "
        "success and finish_reason=length."
    ),
    ("lmdeploy", Outcome.CRASHED, MEMORY): "Lower --cache-max-entry-count, --max-batch-size or --session-len.",
    # ── in-process engines ───────────────────────────────────────────────────────────────────────
    ("transformers", Outcome.REJECTED_BADLY, ""): (
        "Check lengths and types before you call the model: the library does not, and fails somewhere inside; "
        "turn its exception into a clear refusal where callers would see it."
    ),
    ("transformers", Outcome.REJECTED_BADLY, POSITIONS): (
        "Check prompt + max_new_tokens against config.max_position_embeddings (n_positions) before generate(): "
        "learned positions have no row beyond it, and no decoder of the library looks."
    ),
    ("transformers", Outcome.REJECTED_BADLY, POOL): (
        "Make max_cache_len of the static cache at least prompt + max_new_tokens, or use the dynamic cache."
    ),
    ("transformers", Outcome.UNKNOWN, POSITIONS): (
        "Stop at max_position_embeddings: no error says that an answer past it is good. "
        "Measure your own task at that length, with trained weights, before you serve it."
    ),
    ("transformers", Outcome.DEGRADED, ""): (
        "Stop at max_position_embeddings: RoPE models go past it without an error. "
        "With dynamic NTK or longrope scaling, cached and uncached answers differ there; use yarn or a fixed factor."
    ),
    ("transformers", Outcome.DEGRADED, "position-out-of-range"): (
        "Stop at max_position_embeddings, or train for more: RoPE goes past it without an error, and rows that were "
        "added to a table of positions are noise until they are trained."
    ),
    ("transformers", Outcome.DEGRADED, "cache-consistency"): (
        "Use yarn, llama3 or a fixed factor instead of dynamic NTK or longrope, or stay below the length at which they "
        "change their frequencies; an answer must not depend on how its prompt came in."
    ),
    ("transformers", Outcome.DEGRADED, "cache-overflow"): (
        "Make max_cache_len at least prompt + max_new_tokens, and check the length before writing to your own cache."
    ),
    ("transformers", Outcome.DEGRADED, "dtype-mismatch"): (
        "Give caches, masks and layers the model's own dtype, and check a stored cache's dtype before you load it."
    ),
    ("transformers", Outcome.DEGRADED, "tokenizer-truncation"): (
        "Set tokenizer.model_max_length to the model's max_position_embeddings, or pass max_length with "
        "truncation=True; choose a max_length that pad_to_multiple_of divides."
    ),
    ("transformers", Outcome.TRUNCATED_HEAD, ""): (
        'Check lengths instead of truncating: handle_long_generation="hole" and truncation_side="left" '
        "keep the tail only."
    ),
    ("transformers", Outcome.TRUNCATED_TAIL, ""): (
        'Check lengths instead of truncation=True, or set tokenizer.truncation_side="left": '
        "the default keeps the head and drops the question."
    ),
    ("transformers", Outcome.RUNAWAY, ""): "Set max_new_tokens in generate() or in the model's generation_config.",
    ("transformers", Outcome.CRASHED, ""): (
        "Check prompt + max_new_tokens against config.max_position_embeddings and the cache's max_cache_len before "
        "generate(); after a device-side assert, start a new process."
    ),
    ("transformers", Outcome.CRASHED, POOL): (
        "Make max_cache_len of the static cache at least prompt + max_new_tokens, or use the dynamic cache."
    ),
    ("transformers", Outcome.CRASHED, POSITIONS): (
        "Check prompt + max_new_tokens against config.max_position_embeddings before generate(): models with learned "
        "positions fail beyond it; after a device-side assert, start a new process."
    ),
    ("transformers", Outcome.CRASHED, MEMORY): (
        'Use attn_implementation="sdpa" (eager attention needs memory quadratic in the prompt), '
        "a smaller batch, or a quantized or offloaded cache."
    ),
    ("mlx", Outcome.SHIFTED, ""): (
        "Raise or drop max_kv_size: the rotating cache keeps the first 4 tokens and the newest ones, in silence."
    ),
    ("mlx", Outcome.TRUNCATED_MIDDLE, ""): (
        "Raise or drop max_kv_size: the rotating cache keeps the first 4 tokens and the newest ones, in silence."
    ),
    ("mlx", Outcome.RUNAWAY, ""): "Set max_tokens on every request, and --max-tokens on the server as the default.",
    ("mlx", Outcome.CRASHED, ""): (
        "Limit the prompt's tokens in front of the server, which has no check of its own, and set max_kv_size: "
        "its cache grows until Metal runs out of memory."
    ),
    ("exllama", Outcome.REJECTED, ""): (
        "Raise cache_size (a multiple of 256) or lower max_tokens: ceil((prompt + reply) / 256) pages must be free."
    ),
    ("exllama", Outcome.TRUNCATED_HEAD, ""): (
        "Use the dynamic generator, which refuses, instead of the base generator, which keeps the tail of the prompt; "
        "or raise max_seq_len."
    ),
    ("exllama", Outcome.CRASHED, ""): (
        "Raise cache_size (a multiple of 256) to prompt + max_tokens, or refuse longer jobs in front of the generator: "
        "it asserts on a job that needs more pages than there are."
    ),
    ("exllama", Outcome.CRASHED, MEMORY): "Lower cache_size or max_seq_len, or set cache_mode to Q8 or Q4.",
    # ── gateways and providers ───────────────────────────────────────────────────────────────────
    ("litellm", Outcome.REJECTED, ""): (
        "Set enable_pre_call_checks with the model's real max_input_tokens, and context_window_fallbacks to a model "
        "with a larger window."
    ),
    ("litellm", Outcome.REJECTED_BADLY, ""): (
        "Do not wait for ContextWindowExceededError: many engines' words are not in its list and come as "
        "BadRequestError. Set enable_pre_call_checks, or read the message."
    ),
    ("litellm", Outcome.TRUNCATED_HEAD, ""): (
        "Look for trim_messages and set its max_tokens yourself, and check the engine behind the gateway on its own: "
        "the cut may be there."
    ),
    ("openai", Outcome.CAPPED, ""): (
        "Treat finish_reason=length (Responses: incomplete_details) as an unfinished answer, and keep room: "
        "prompt + max_completion_tokens must stay inside the window, hidden reasoning counted in."
    ),
    ("openai", Outcome.TRUNCATED_HEAD, ""): (
        'Send truncation:"disabled" (Responses API): "auto" drops items of the conversation in silence.'
    ),
    ("openai", Outcome.TRUNCATED_MIDDLE, ""): (
        'Send truncation:"disabled" (Responses API): "auto" drops items of the conversation in silence.'
    ),
    ("openai", Outcome.REJECTED_BADLY, ""): (
        "Read the error's code: a huge prompt can get 429 for tokens per minute before 400 context_length_exceeded; "
        "do not retry it as it is."
    ),
    ("anthropic", Outcome.REJECTED, ""): (
        "Count with /v1/messages/count_tokens before sending: prompt + max_tokens must stay inside the window."
    ),
    ("anthropic", Outcome.CAPPED, ""): (
        "Treat stop_reason=max_tokens and model_context_window_exceeded as an unfinished answer, "
        "and keep more room for the reply."
    ),
    ("anthropic", Outcome.REJECTED_BADLY, ""): (
        "Tell 413 request_too_large, a limit of bytes, from 400 prompt is too long: "
        "the first wants smaller attachments, the second fewer tokens."
    ),
}
"""(flavour, outcome, about) → what to change; `ANY` with about "" is there for every outcome."""
