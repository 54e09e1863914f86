"""The recogniser: what an engine's own words, in an error body or a log line, say about the window.

    signatures.toml ─▶ read_table ─▶ signatures() ─▶ recognise(text) ─▶ Recognised

The table holds what is known of engines; this file only reads it and searches. It looks at nothing but
words: an HTTP status, an exit code or an answer that comes too soon is for a judge to weigh, and an engine
that truncates in silence has no words to recognise.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from contextlab.model import ContextlabError, Layer

FLAVOURS = (
    "llama-server",
    "vllm",
    "sglang",
    "ollama",
    "tgi",
    "litellm",
    "openai",
    "anthropic",
    "tensorrt-llm",
    "lmdeploy",
    "transformers",
    "mlx",
    "exllama",
    "other",
)
"""The engines that signatures and remedies know by name; "llama-server" stands for all of llama.cpp."""

KINDS: Mapping[str, str] = {
    "overflow": "the request was refused: the prompt, or the prompt with its reply, is over a limit",
    "pool": "the KV cache that requests share is full, or cannot hold even one window",
    "shift": "the window slid while replying",
    "capped": "the reply was stopped, or its budget cut, at the window",
    "truncated": "the prompt was cut before the model read it",
    "preempted": "a running request lost its KV cache and is computed again",
    "dead": "the engine died",
    "out-of-memory": "an allocator got no memory",
    "position": "the text is longer than the positions or the table it is looked up in",
    "adjusted": "the server changed the context that was asked for",
    "not-overflow": "it sounds like an overflow and is none: a quota, a limit of bytes, a deadline",
}
"""What a signature can mean."""

NUMBERS = frozenset(
    {
        "prompt_tokens",
        "reply_tokens",
        "total_tokens",  # prompt and reply together
        "limit_tokens",  # the limit that the words are about
        "asked_tokens",  # what was asked for, where that is no prompt: a context, a truncation, an allocation
        "kept_tokens",  # what is left of what was asked for
        "excess_tokens",
        "available_tokens",
        "batch_tokens",
        "chars",
        "limit_chars",
        "n_keep",  # a shift keeps the first n_keep tokens and drops the n_discard after them
        "n_left",
        "n_discard",
        "num_requests",
        "num_messages",
    }
)
"""The names under which a pattern may capture a number."""

MAX_CHARS = 64 * 1024
"""Text beyond this is not looked at."""

MAX_LINE_CHARS = 500
"""A longer line is quoted around the words that matched."""

_ESCAPES = {r"\"": '"', r"\n": "\n", r"\u0026": "&", r"\u0027": "'", r"\u003c": "<", r"\u003e": ">"}
_ESCAPED = re.compile("|".join(re.escape(escape) for escape in _ESCAPES))
_NUMBER = r"(?P<{}>[0-9]{{1,3}}(?:,[0-9]{{3}})+|[0-9]{{1,40}})"
_PLACEHOLDER = re.compile(r"(?<!\?P)<(\w+)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One entry of the table; the head of `signatures.toml` explains its fields.

    `where` tells where the words were seen, for readers: servers log what they answer, so matching ignores it.
    `expression` is searched rather than matched from the start. `words`: one of these, in lower case, is in every text
    that it matches; none: it must be tried on all.
    """

    id: str
    engine: str
    kind: str
    layer: Layer
    expression: str
    means: str
    example: str
    also: tuple[str, ...] = ()
    where: str = "both"
    lower_bound: bool = False
    cut: str = ""
    generic: bool = False
    words: tuple[str, ...] = ()

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled when it is first needed: most never are."""
        return _compiled(self.expression)

    def speaks_for(self, flavour: str | None) -> bool:
        """Whether that engine is known to use these words."""
        return flavour is not None and (flavour == self.engine or flavour in self.also)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What some text was recognised as.

    `engine` is the flavour that was given, if it uses these words, else whose words they are: a gateway may
    repeat those of the engine behind it. `numbers` holds what the text quotes (see `NUMBERS`) and nothing else.
    `lower_bound`: the quoted count is "at least". `cut` is the end of the prompt that is lost ("head", "tail"),
    for the kind "truncated" only. `line` is the line that matched, or the part of it around the words.
    """

    id: str
    engine: str
    kind: str
    layer: Layer
    numbers: Mapping[str, int] = field(default_factory=dict)
    lower_bound: bool = False
    cut: str = ""
    means: str = ""
    line: str = ""


def recognise(text: str, *, flavour: str | None = None) -> Recognised | None:
    """What one error message says, or None if nothing in it is known. Never raises.

    The first to match wins, in this order: what `flavour` says, what other engines say, words that nobody
    owns; among the last, those that only sound like an overflow come before loose words for one. Of a text
    of many lines only the best match is told: give a log to `recognise_lines`.
    """
    text = _unescaped(text[:MAX_CHARS])
    lowered = text.lower()
    for word, signature in _in_order(flavour if flavour in FLAVOURS else None):
        if word in lowered and (match := signature.pattern.search(text)):
            return Recognised(
                id=signature.id,
                engine=flavour if flavour and signature.speaks_for(flavour) else signature.engine,
                kind=signature.kind,
                layer=signature.layer,
                numbers={name: int(digits.replace(",", "")) for name, digits in match.groupdict().items() if digits},
                lower_bound=signature.lower_bound,
                cut=signature.cut,
                means=signature.means,
                line=_line(text, match),
            )
    return None


def recognise_lines(lines: Iterable[str], *, flavour: str | None = None) -> tuple[Recognised, ...]:
    """What each line of a log says, in the order of the lines; lines that say nothing known are left out.

    A line that comes again is told again: how often a window slid is evidence.
    """
    seen = (recognise(line, flavour=flavour) for line in lines)
    return tuple(found for found in seen if found is not None)


@cache
def signatures() -> tuple[Signature, ...]:
    """All signatures, in the order of the table; read once, when first asked for."""
    return _read(files("contextlab.analysis").joinpath("signatures.toml").read_text("utf-8"))


@cache
def _in_order(flavour: str | None) -> tuple[tuple[str, Signature], ...]:
    """The signatures in the order in which they are tried, each behind its words ("" is in every text): sorting keeps
    the table's order among equals."""
    ordered = sorted(signatures(), key=lambda one: (one.generic, not one.speaks_for(flavour)))
    return tuple((word, one) for one in ordered for word in one.words or ("",))


def _unescaped(text: str) -> str:
    """`text` with what JSON escapes as it was meant, for bodies and logs that are handed on undecoded."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def _line(text: str, match: re.Match[str]) -> str:
    """The line, or lines, of `text` that hold a match, on one line and not too long."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    end = len(text) if end < 0 else end
    if end - start > MAX_LINE_CHARS:
        start = max(start, match.start() - MAX_LINE_CHARS // 5)
        end = min(end, start + MAX_LINE_CHARS)
    return " ".join(text[start:end].split())


# ── reading the table ────────────────────────────────────────────────────────────────────────────

_REQUIRED = ("engine", "kind", "layer", "pattern", "means", "example")
_CHOICES: Mapping[str, frozenset[str]] = {
    "engine": frozenset(FLAVOURS),
    "kind": frozenset(KINDS),
    "layer": frozenset(Layer),
    "where": frozenset({"http", "log", "both"}),
    "cut": frozenset({"head", "middle", "tail"}),
}
_FIELDS = {"id", "also", "lower_bound", "generic", *_REQUIRED, *_CHOICES}


def read_table(table: str) -> tuple[Signature, ...]:
    """The signatures of a table in TOML; raises ContextlabError naming the id of the entry that is broken."""
    read = _read(table)
    for one in read:
        try:
            if strangers := sorted(one.pattern.groupindex.keys() - NUMBERS):
                raise ValueError(f"<{strangers[0]}> is not a name of a number")
        except (ValueError, re.error) as error:
            raise _broken(one.id, error) from error
    return read


def _read(table: str) -> tuple[Signature, ...]:
    """The same without a look at the expressions: compiling them takes longer than all the rest."""
    try:
        entries = tomllib.loads(table).get("signature", [])
    except tomllib.TOMLDecodeError as error:
        raise ContextlabError(f"signatures.toml: {error}", "mend it there") from error
    read: dict[str, Signature] = {}
    for num, entry in enumerate(entries, 1):
        name = str(entry.get("id", f"(entry {num})"))
        try:
            if name in read:
                raise ValueError("this id is taken twice")
            read[name] = _signature(entry)
        except ValueError as error:
            raise _broken(name, error) from error
    return tuple(read.values())


def _broken(name: str, error: Exception) -> ContextlabError:
    return ContextlabError(f"signature id={name}: {error}", "mend signatures.toml")


def _signature(entry: Mapping[str, Any]) -> Signature:
    """One entry, checked but for its expression; raises ValueError saying what is wrong with it."""
    if missing := [key for key in ("id", *_REQUIRED) if not entry.get(key)]:
        raise ValueError(f"{missing[0]} is missing")
    if unknown := sorted(entry.keys() - _FIELDS):
        raise ValueError(f"{unknown[0]} is no field of a signature")
    for key, choices in _CHOICES.items():
        if key in entry and entry[key] not in choices:
            raise ValueError(f"{key}={entry[key]}; it must be one of {', '.join(sorted(choices))}")
    if strangers := sorted(set(entry.get("also", ())) - set(FLAVOURS)):
        raise ValueError(f"also={strangers[0]} is no flavour")
    if (entry["kind"] == "truncated") != ("cut" in entry):
        raise ValueError('cut belongs to kind="truncated", and to no other')
    expression = _expression(entry["pattern"])
    return Signature(
        **{
            **{key: value for key, value in entry.items() if key != "pattern"},
            "expression": expression,
            "layer": Layer(entry["layer"]),
            "also": tuple(entry.get("also", ())),
            "words": _words(expression),
        }
    )


def _expression(pattern: str) -> str:
    """A pattern of the table as a regular expression: `<name>` is a whole number, a space any white space."""
    return _PLACEHOLDER.sub(lambda found: _NUMBER.format(found[1]), pattern).replace(" ", r"\s+")


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE | re.ASCII)


# ── what to look for before a search: a log of a million lines says nothing in most of them ──────

_LEAST_WORD = 4
_PIECE = re.compile(
    r"""
    (?P<look>\(\?<?[=!]) | (?P<open>\((?:\?:|\?P<\w+>)?) | (?P<close>\)) | (?P<either>\|)
    | (?P<charset>\[\^?\]?(?:\\.|[^\]])*\]) | (?P<kind>\\[A-Za-z0-9]) | (?P<any>[.^$])
    | (?P<repeat>[*+?]\??|\{[0-9,]+\}\??)
    | \\(?P<escaped>.) | (?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def _words(expression: str) -> tuple[str, ...]:
    """Words, in lower case, one of which is in every text that the regular expression matches; () where it has none
    that are long enough to tell one text from another."""
    return _alternatives(iter(list(_PIECE.finditer(expression))))


def _alternatives(pieces: Iterator[re.Match[str]]) -> tuple[str, ...]:
    """The same of a group, to the bracket that closes it: the words of all its alternatives together."""
    sets, run = list[tuple[str, ...]](), ""  # of the alternative that is read: what each of its parts has
    found: list[tuple[str, ...]] = []
    last = False  # whether the last part may be left out, as far as a repeat behind it says
    for piece in pieces:
        letter = piece["escaped"] or piece["plain"]
        if letter is not None:
            run += letter
            last = False
            continue
        if piece["repeat"]:
            if last:
                sets.pop()
            run, last = run[:-1], False
        sets.append((run.lower(),))
        run = ""
        if piece["open"] or piece["look"]:
            inside = _alternatives(pieces)
            sets.append(inside if piece["open"] else ())
            last = True
        elif piece["either"] or piece["close"]:
            found.append(_best(sets))
            sets, last = [], False
            if piece["close"]:
                return _together(found)
        elif not piece["repeat"]:
            last = False
    found.append(_best([*sets, (run.lower(),)]))
    return _together(found)


def _best(sets: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Of words for each part of a sequence those whose shortest is longest."""
    return max(sets, key=lambda words: min(map(len, words), default=0), default=())


def _together(alternatives: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """All of them; () where one alternative has none."""
    found = list(alternatives)
    if any(min(map(len, words), default=0) < _LEAST_WORD for words in found):
        return ()
    return tuple(dict.fromkeys(word for words in found for word in words))
