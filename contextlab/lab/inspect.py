"""What a target can be seen to be without starting it: its files are read, a running server is asked.

    TARGET ─▶ located ─▶ TargetSpec ─▶ look ─┬─ gguf:  the header of the file, its other parts
                                             ├─ hf:    config.json and the files beside it
                                             └─ http:  what the server says; and the file that it names, if it is here

Reading and checking is `capacity`'s, asking is the targets'. Nothing is started, downloaded or loaded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contextlab import registry
from contextlab.capacity.config import read_config
from contextlab.capacity.gguf import read_gguf
from contextlab.capacity.gguf_header import MAGIC
from contextlab.capacity.gguf_shape import from_gguf
from contextlab.capacity.inspection import Inspection, Question, ServerFacts, Subject, inspected
from contextlab.capacity.limits import EngineSettings
from contextlab.capacity.shape import ModelShape
from contextlab.lab.memory import surroundings
from contextlab.model import Api, CountsTokens, Knowledge, Message, Target, TargetSpec, UnableError, UsageError
from contextlab.targets import gguf, http
from contextlab.targets.openai.loose_json import whole, within, words
from contextlab.targets.openai.wire import Address, open_wire, shown

ACCEPTED = "name a .gguf file, a model folder or its config.json, a server's URL, or a preset such as smollm2"
URL_SCHEMES = frozenset({"http", "https"})
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
"""How llama.cpp names the parts of a model that was split."""
_CONVENTIONS = {"llama-server": "llama.cpp", "vllm": "vllm"}
_MODEL_PATHS = {
    "llama-server": ("/props", ("model_path",)),
    "vllm": ("/v1/models", ("data", 0, "root")),
    "sglang": ("/get_model_info", ("model_path",)),
}
"""Where a server says which file or folder it has loaded: the question, and the place in its answer."""


# ── which target is meant ────────────────────────────────────────────────────────────────────────


def located(target: str, assignments: Sequence[str] = ()) -> TargetSpec:
    """The target that the user named, a path as `gguf:` or `hf:`. Raises UsageError for what inspect cannot look at.

    A file's `settings` are empty unless some were given: then they are those that an engine would be started with.
    """
    scheme, colon, address = target.partition(":")
    if not target.strip() or (colon and not address.strip("/ ")):
        raise UsageError(f"target={target!r}: names nothing", ACCEPTED)
    if target in gguf.PRESETS:
        return _gguf(target, target, "", assignments)
    if colon and scheme in URL_SCHEMES:
        spec = registry.parse_target(target, assignments)
        http.check(spec)
        return spec
    if colon and scheme == "gguf":
        return _gguf(target, target, address, assignments)
    if colon and scheme == "hf":
        return _folder(target, address, assignments)
    path = Path(target).expanduser()
    if _is_gguf(path):
        return _gguf(target, f"gguf:{target}", target, assignments)
    if path.exists() or _reads_as_path(target):
        return _folder(target, target, assignments)
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?", target):
        raise UsageError(f"target={target!r}: not a preset and not a path", f"did you mean http://{target}?")
    if colon and scheme in registry.targets():
        raise UsageError(f"target={target!r}: inspect starts nothing, and there is no file to read", ACCEPTED)
    close = get_close_matches(target, gguf.PRESETS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"target={target!r}: no such file, and no preset of that name", f"{hint}{ACCEPTED}")


def _gguf(name: str, target: str, address: str, assignments: Sequence[str]) -> TargetSpec:
    """A GGUF file; the registry, which finds every target, is asked only where there are settings to check."""
    if assignments:
        return replace(registry.parse_target(target, assignments), name=name)
    return TargetSpec(name=name, scheme="gguf", address=address)


def _folder(target: str, address: str, assignments: Sequence[str]) -> TargetSpec:
    if assignments:
        raise UsageError(
            f"--set {assignments[0]!r}: files of a model have no settings of an engine",
            "leave --set out; --context, --concurrency and --cache-type ask what would fit",
        )
    if address.startswith("random/") and not Path(address).exists():
        raise UsageError(f"target={target!r}: this model is made in memory, there is no file to read", ACCEPTED)
    scheme = "gguf" if _is_gguf(Path(address).expanduser()) else "hf"  # transformers reads GGUF files too
    return TargetSpec(name=target, scheme=scheme, address=address)


def _is_gguf(path: Path) -> bool:
    """Whether a path is named or begins like a GGUF file; a folder is not one, whatever its name."""
    with suppress(OSError, ValueError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC or path.suffix == ".gguf"
    return path.suffix == ".gguf" and not path.is_dir()


def _reads_as_path(target: str) -> bool:
    return "/" in target.partition(":")[0] or target.endswith(".json") or target in {".", "..", "~"}


def shown_target(target: str) -> str:
    """A target as it may be printed: a URL without its user and password."""
    return shown(target) if "://" in target else target


# ── looking ──────────────────────────────────────────────────────────────────────────────────────


def examine(spec: TargetSpec, question: Question, *, here: bool = True) -> Inspection:
    """Look at a target and at the memory of this machine, and answer the question; raises what `look` does."""
    return inspected(look(spec, here=here), surroundings() if here else None, question)


def look(spec: TargetSpec, *, here: bool = True) -> Subject:
    """Read, or ask, what `spec` names. `here`: a server is on this machine, and so are its files and memory.

    Raises UnableError, naming file, field and value, for what cannot be read, and for a server that does not answer.
    """
    if spec.scheme in URL_SCHEMES:
        return asyncio.run(_server(spec, here))
    if spec.scheme == "gguf":
        return _gguf_file(spec)
    model = read_config(Path(spec.address).expanduser())
    return Subject(
        target=spec.name,
        kind="Hugging Face model",
        shape=model.shape,
        tokenizer=model.tokenizer,
        generation=model.generation,
        convention="vllm",
        next_target=f"hf:{spec.address}" if find_spec("contextlab.targets.hf") else "",
    )


def _gguf_file(spec: TargetSpec) -> Subject:
    path = Path(spec.address).expanduser() if spec.address else gguf.smollm2_file()
    if path is None:
        raise UnableError(
            f"the model of the preset {spec.name} is not installed", f"install it: contextlab models add {spec.name}"
        )
    shape, notes = read_gguf_model(path)
    if not spec.address:
        more = "" if spec.settings else "; --set shows what its settings would make of it"
        notes = (f"only the file of {spec.name} was read, no server was started{more}", *notes)
    return Subject(
        target=spec.name,
        kind="GGUF file",
        shape=shape,
        engine=_engine(spec, shape) if spec.settings else None,
        convention="llama.cpp",
        next_target=f"gguf:{spec.address}" if spec.address else spec.name,
        notes=notes,
    )


def _engine(spec: TargetSpec, shape: ModelShape) -> EngineSettings:
    """The settings that a `gguf:` target would be started with; a context of 0 is the model's own."""
    settings: Any = spec.settings
    return EngineSettings(
        source="--set",
        engine="llama.cpp",
        context_tokens=settings["context"] or shape.positions.max_tokens,
        num_slots=settings["slots"],
        unified=settings["kv_unified"],
        k_type=settings["cache_type_k"],
        v_type=settings["cache_type_v"],
        flash_attention={"on": True, "off": False}.get(settings["flash_attention"]),
        batch_tokens=settings["batch"],
    )


def read_gguf_model(path: Path) -> tuple[ModelShape, tuple[str, ...]]:
    """The model in a GGUF file, and notes; one that is split is read from its first part and weighed by all."""
    found = _SPLIT.fullmatch(path.name)
    if found is None:
        return from_gguf(read_gguf(path)), ()
    parts = [path.with_name(f"{found[1]}-{part:05}-of-{found[3]}.gguf") for part in range(1, int(found[3]) + 1)]
    first = read_gguf(parts[0] if parts else path)
    shape = from_gguf(first)
    try:
        files = [first, *(read_gguf(part) for part in parts[1:])]
    except UnableError as error:
        return shape, (f"not all {len(parts)} parts of the model can be read: {error.message}",)
    return replace(
        shape,
        weights_bytes=sum(file.weights_bytes for file in files),
        num_parameters=sum(file.num_parameters for file in files),
    ), ()


# ── a running server ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What a server says of the model that it has loaded: where it is, and its number of parameters."""

    path: str = ""
    num_parameters: int | None = None


async def _server(spec: TargetSpec, here: bool) -> Subject:
    async with registry.open_target(spec) as target:
        known = target.knowledge
        template_tokens = await _template_tokens(target)
    subject = Subject(
        target=shown(spec.name),
        kind="server",
        served=known.limits,
        server=ServerFacts(
            url=shown(http.url_of(spec)),
            flavour=known.flavour,
            version=known.version,
            model=known.model,
            num_slots=known.limits.num_slots,
            template_tokens=template_tokens,
        ),
        convention=_CONVENTIONS.get(known.flavour, "exact"),
        here=here,
        next_target=shown(spec.name),
    )
    if not here:
        return replace(subject, notes=("the server is on another machine: its model's file was not looked for",))
    return _with_files(subject, await _loaded(spec, known))


async def _template_tokens(target: Target) -> int | None:
    """Tokens of a chat with one empty message; None where the server does not count those."""
    if not isinstance(target, CountsTokens) or not {"chat", "counts-tokens"} <= target.knowledge.powers:
        return None
    try:
        return await target.count_tokens(Api.CHAT, (Message(role="user", parts=("",)),))
    except UnableError:
        return None


async def _loaded(spec: TargetSpec, known: Knowledge) -> _Loaded:
    """Ask a server which model it has loaded; nothing where it does not say."""
    if known.flavour not in _MODEL_PATHS:
        return _Loaded()
    path, place = _MODEL_PATHS[known.flavour]
    address = Address.of(http.url_of(spec), str(spec.settings.get("api_key_env") or "CONTEXTLAB_API_KEY"))
    try:
        async with open_wire(address, float(spec.settings.get("connect_timeout_s") or 5.0)) as wire:
            answer = (await wire.ask("GET", path)).json
            cards = (await wire.ask("GET", "/v1/models")).json
    except UnableError:  # it answered a moment ago; what it said then is still true
        return _Loaded()
    return _Loaded(
        path=address.clean(words(within(answer, *place))),
        num_parameters=whole(within(cards, "data", 0, "meta", "n_params")),
    )


def _with_files(subject: Subject, loaded: _Loaded) -> Subject:
    """Add the model's own files, where the server's word leads to them and they are those that it has loaded."""
    if not loaded.path:
        return replace(subject, notes=("the server does not say which file it has loaded",))
    path = Path(loaded.path)
    try:
        if not path.exists():
            return _without(subject, f"its model {loaded.path} is not on this machine")
        if path.is_dir():
            model = read_config(path)
            return replace(subject, shape=model.shape, tokenizer=model.tokenizer, generation=model.generation)
        shape, notes = read_gguf_model(path)
    except (UnableError, OSError, ValueError) as error:
        return _without(subject, f"its model's file could not be read: {error}")
    counted = (shape.num_parameters, loaded.num_parameters)
    if None not in counted and counted[0] != counted[1]:
        return _without(
            subject,
            f"{loaded.path} on this machine has {counted[0]} parameters, the server's model {counted[1]}: not the same",
        )
    return replace(subject, shape=shape, notes=notes)


def _without(subject: Subject, why: str) -> Subject:
    return replace(subject, notes=(f"{why}: bytes of its KV cache are not known",))
