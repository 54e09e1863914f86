"""A transformers model in this process, with its tokenizer: found, checked, loaded, and asked the smallest questions.

    DIR, FILE.gguf, random/ARCHITECTURE ─▶ shape (contextlab.capacity) ─▶ tokenizer, weights ─▶ Loaded

Files are checked before the library sees them; whatever it still cannot load is told in its own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextlab.capacity.config import read_config, tokenizer_limit
from contextlab.capacity.config_shape import from_config
from contextlab.capacity.gguf import check_gguf, read_gguf
from contextlab.capacity.gguf_shape import from_gguf
from contextlab.capacity.shape import GenerationDefaults, ModelShape, TokenizerLimit
from contextlab.model import Api, ContextlabError, Message, Settings, UnableError, UsageError
from contextlab.targets.gguf import smollm2_file
from contextlab.targets.inside import random_models
from contextlab.targets.inside.files import check_tokenizer, check_weights
from contextlab.targets.inside.library import library, start_torch, words_of

RANDOM = "random/"
SMOLLM2 = "smollm2"
RANDOM_SEED = 0


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from: a folder, a GGUF file, or (path None) code; `shape` is what its files declare."""

    name: str
    shape: ModelShape
    path: Path | None = None
    generation: GenerationDefaults | None = None
    truncation_side: str = ""

    @property
    def arguments(self) -> tuple[str, dict[str, Any]]:
        """Folder and options for the library's `from_pretrained`."""
        if self.path is None or self.path.is_dir():
            return str(self.path), {}
        return str(self.path.parent), {"gguf_file": self.path.name}


@dataclass(slots=True, kw_only=True)
class Loaded:
    """A model ready to run. `settings` as in `hf.SETTINGS`; every forward pass is without gradients."""

    source: Source
    settings: Settings
    torch: Any
    tokenizer: Any
    model: Any
    special_ids: frozenset[int] = field(default_factory=frozenset)

    @property
    def shape(self) -> ModelShape:
        """What the files declare."""
        return self.source.shape

    @property
    def vocab(self) -> int:
        """Number of different tokens."""
        return int(self.model.get_input_embeddings().num_embeddings)

    @property
    def tokenizer_limit(self) -> TokenizerLimit:
        """What the tokenizer itself says, now that it is loaded: the file may leave it out."""
        return tokenizer_limit(
            self.tokenizer.model_max_length, f"{self.source.name}: tokenizer", self.source.truncation_side
        )

    def prompt_ids(self, api: Api, messages: Sequence[Message]) -> list[int]:
        """The tokens of a prompt, the chat template or the special tokens included."""
        if api is Api.CHAT:
            chat = [{"role": message.role, "content": message.text} for message in messages]
            text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            return self.ids(text, special=False)
        return self.ids("".join(message.text for message in messages), special=True)

    def ids(self, text: str, *, special: bool) -> list[int]:
        """The tokens of a text, as long as it is: nothing is cut here."""
        return list(self.tokenizer(text, add_special_tokens=special, truncation=False, verbose=False)["input_ids"])

    def tensor(self, ids: Sequence[int]) -> Any:
        """A batch of one, (1, T), where the model is."""
        return self.torch.tensor([list(ids)], dtype=self.torch.long, device=self.model.device)

    def logits(self, ids: Sequence[int], *, cache: Any = None, keep: Any = 1, **options: Any) -> Any:
        """Logits (K, V) in float32: of the last `keep` positions, of all with 0, or of those in an index tensor."""
        if cache is not None:
            options |= {"cache": cache}
        with self.torch.inference_mode():
            out = self.model(input_ids=self.tensor(ids), use_cache=cache is not None, logits_to_keep=keep, **options)
        return out.logits[0].float()

    def dynamic_cache(self) -> Any:
        """A cache that grows; layers with a sliding window keep the window only."""
        return library("transformers").DynamicCache(config=self.model.config)

    def static_cache(self, tokens: int) -> Any:
        """A cache of fixed length."""
        return library("transformers").StaticCache(config=self.model.config, max_cache_len=tokens)

    def usual_cache(self, tokens: int) -> Any:
        """The cache of the settings; `tokens` is the length of a static one where none is set."""
        kind = self.settings.get("cache")
        if kind == "static":
            return self.static_cache(int(self.settings.get("max_cache_len") or tokens))
        if kind == "quantised":
            return library("transformers").QuantizedCache(backend="fp8", config=self.model.config)
        return self.dynamic_cache()


# ── finding and checking ─────────────────────────────────────────────────────────────────────────


def find(address: str, window: int | None = None) -> Source:
    """The source that an address names, its files checked. Raises UsageError or UnableError; imports no torch."""
    if address.startswith(RANDOM):
        name = address.removeprefix(RANDOM)
        fields = random_models.fields_of(name, window or random_models.DEFAULT_WINDOW)
        return Source(name=address, shape=from_config(fields, f"hf:{address}"))
    if not address:
        names = ", ".join(random_models.ARCHITECTURES)
        raise UsageError(
            "target='hf:': which model?",
            f"name a folder, a .gguf file, hf:{SMOLLM2}, or hf:{RANDOM}NAME with {names}",
        )
    path = _smollm2() if address == SMOLLM2 else Path(address).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".gguf":
        check_gguf(path)
        return Source(name=path.stem, shape=from_gguf(read_gguf(path)), path=path)
    if path.exists():
        raise UnableError(f"{path}: neither a model folder nor a .gguf file", "Name the folder that holds config.json.")
    raise UnableError(f"{path}: there is no such folder or file", "Check the path; nothing is downloaded.")


def _smollm2() -> Path:
    file = smollm2_file()
    if file is None:
        raise UnableError("the model smollm2 is not installed", "install it: contextlab models add smollm2")
    return file


def _folder(path: Path) -> Source:
    found = read_config(path)
    check_weights(path)
    check_tokenizer(path)
    side = found.tokenizer.truncation_side if found.tokenizer else ""
    return Source(
        name=path.name or str(path), shape=found.shape, path=path, generation=found.generation, truncation_side=side
    )


# ── loading ──────────────────────────────────────────────────────────────────────────────────────


def load(source: Source, settings: Settings) -> Loaded:
    """The model on its device, in its type, ready to run. Raises UnableError in the library's words where it cannot."""
    torch = start_torch(int(settings.get("threads") or 1))
    transformers = library("transformers")
    transformers.utils.logging.disable_progress_bar()
    library("tqdm").tqdm.monitor_interval = 0  # a thread that would outlive its bars: it could not be forked
    device = str(settings.get("device") or "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise UnableError("device=cuda: torch finds no CUDA device here", "leave it out to run on the CPU")
    options: dict[str, Any] = {"dtype": getattr(torch, str(settings.get("dtype") or "float32"))}
    if settings.get("attention"):
        options["attn_implementation"] = settings["attention"]
    with _told(source, "its tokenizer cannot be loaded"):
        tokenizer = _tokenizer(source, settings, transformers)
    with _told(source, "the model cannot be loaded"):
        model = _model(source, settings, transformers, options).eval().to(device)
    loaded = Loaded(
        source=source,
        settings=settings,
        torch=torch,
        tokenizer=tokenizer,
        model=model,
        special_ids=frozenset(tokenizer.all_special_ids),
    )
    with _told(source, f"cache={settings.get('cache')} cannot be made for it"):
        loaded.usual_cache(8)
    return loaded


def _tokenizer(source: Source, settings: Settings, transformers: Any) -> Any:
    if source.path is None:
        return random_models.tokenizer_of(source.name.removeprefix(RANDOM), _window(settings))
    place, options = source.arguments
    return transformers.AutoTokenizer.from_pretrained(place, local_files_only=True, **options)


def _model(source: Source, settings: Settings, transformers: Any, options: dict[str, Any]) -> Any:
    if source.path is None:
        config = random_models.config_of(source.name.removeprefix(RANDOM), _window(settings))
        return random_models.model_of(config, RANDOM_SEED, **options)
    place, where = source.arguments
    if where:  # packed weights are slow in anything but float32: unpack them
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        place,
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are refused below, by name
        **where,
        **options,
    )
    _check_report(source, report)
    return model


def _check_report(source: Source, report: Mapping[str, Any]) -> None:
    """Raise UnableError where the library had to make up weights that its config asks for and its files do not have."""
    advice = "The weights do not belong to this config.json: download both again."
    for name, there, asked in sorted(report.get("mismatched_keys") or ()):
        shapes = f"{tuple(there)} in the weights, {tuple(asked)} by config.json"
        raise UnableError(f"{source.path}: {name} = {shapes}: must be the same", advice)
    missing = sorted(report.get("missing_keys") or ())
    if missing:
        raise UnableError(f"{source.path}: {missing[0]} is not in the weights, and {len(missing) - 1} more", advice)


def _window(settings: Settings) -> int:
    return int(settings.get("window") or random_models.DEFAULT_WINDOW)


@contextmanager
def _told(source: Source, what: str) -> Iterator[None]:
    """Turn whatever the library raises into an UnableError with its own words."""
    try:
        yield
    except ContextlabError:
        raise
    except Exception as error:
        words = words_of(error)
        raise UnableError(
            f"{source.path or source.name}: {what}: {words['error_type']}: {words['error']}",
            "check the folder's files and the settings; nothing is downloaded",
        ) from error
