"""Runs llama.cpp's own HTTP server out of the `xllamacpp` wheel, in a process of its own.

    python -m contextlab.targets.servers.llama_server '{"model": "FILE.gguf", "context": 512, …}'

Prints `READY http://127.0.0.1:PORT` and serves until SIGTERM. Its log, llama.cpp's own words, goes to standard
error. `gguf.py` declares the settings and starts this; next to nothing of contextlab is imported here.
"""

import json
import os
import signal
import sys
import time

from contextlab.targets.servers import own_port


def serve(settings: dict[str, object]) -> None:
    """Start the server with these settings (see `gguf.SETTINGS`) and wait for a signal."""
    import xllamacpp

    kinds = {
        "f32": "F32",
        "f16": "F16",
        "bf16": "BF16",
        "q8_0": "Q8_0",
        "q5_1": "Q5_1",
        "q5_0": "Q5_0",
        "q4_1": "Q4_1",
        "q4_0": "Q4_0",
    }
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = own_port(int(str(settings["port"])))
    params.n_ctx = settings["context"]
    params.n_parallel = settings["slots"]
    params.kv_unified = settings["kv_unified"]
    params.n_batch = settings["batch"]
    params.n_ubatch = settings["ubatch"]
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kinds[str(settings['cache_type_k'])]}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kinds[str(settings['cache_type_v'])]}")
    flash = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = {
        "auto": flash.LLAMA_FLASH_ATTN_TYPE_AUTO,
        "on": flash.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": flash.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    }[str(settings["flash_attention"])]
    params.ctx_shift = settings["context_shift"]
    params.n_keep = settings["keep"]
    params.cache_prompt = settings["cache_prompt"]
    params.cache_ram_mib = settings["cache_ram_mib"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.endpoint_metrics = params.endpoint_slots = True
    params.ui = False
    params.fit_params = False  # it would change the asked context to fit the memory, and costs a second at the start
    params.n_gpu_layers = settings["gpu_layers"]
    params.verbosity = 3
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(f"llama.cpp could not start: {error}")
    # One write, and a line of its own: llama.cpp's logger writes to the same file from another thread.
    os.write(1, f"\nREADY {server.listening_address}\n".encode())
    while True:
        time.sleep(1)


if __name__ == "__main__":
    # On an abort ggml would start a debugger to print a backtrace, which takes seconds and says nothing here.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(json.loads(sys.argv[1]))
