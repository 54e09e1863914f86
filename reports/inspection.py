"""What one look at a target told, as text or as JSON. No writer of runs: it has an Inspection to write, not a run.

On a terminal: columns within its width. Anywhere else: `key: value` rows, one fact a line. The JSON document has
the same keys whether the target could be read or not.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from rich.text import Text

from contextlab.capacity.contradictions import Contradiction
from contextlab.capacity.inspection import Answers, Cache, Inspection, Row, rope_words
from contextlab.capacity.plan import Answer, Choice, Memory, sized
from contextlab.capacity.shape import ModelShape
from contextlab.model import ContextlabError, Limit, Verdict
from contextlab.reports.parts.layout import MARK_CELLS, flowing, grid, labelled, wrapped
from contextlab.reports.parts.output import MAX_PROSE, write_lines
from contextlab.reports.parts.wording import COLOURS, MARKS, clean, num, value

SCHEMA = "contextlab.inspect/1"
MAX_LAYER_CHARS = 400
"""A file may have thousands of kinds of layers."""
_BODY = 12
"""The column at which the body of a finding begins, after its labels."""


def write_text(found: Inspection, out: TextIO) -> None:
    """Write the report; `out` decides between columns and plain text."""
    write_lines(out, lambda width: _lines(found, min(width, MAX_PROSE)), lambda: _plain(found))


# ── what both forms say ──────────────────────────────────────────────────────────────────────────


def _headline(found: Inspection) -> str:
    """The sentence of the first line."""
    count = len(found.findings)
    words = num(count, "finding") if count else "no contradiction"
    return f"{clean(found.subject.target)}: {words}; {_ends(found)}"


def _ends(found: Inspection) -> str:
    limit = found.binding
    if limit is None:
        return "nothing ends a context"
    return f"a context ends at {limit.tokens} tokens ({limit.layer}, {clean(limit.name)})"


def _exit(found: Inspection) -> str:
    return f"exit {found.exit_code}: {found.exit_reason}"


def _facts(found: Inspection) -> Iterator[tuple[str, list[str]]]:
    """The target, its server and its model, as far as they are known."""
    subject, shape, server = found.subject, found.subject.shape, found.subject.server
    yield "target", [subject.target, subject.kind, *([shape.source] if shape else [])]
    if server is not None:
        said = [f"{server.flavour} {server.version}".strip(), server.model]
        if server.num_slots is not None:
            said.append(num(server.num_slots, "slot"))
        if server.template_tokens is not None:
            said.append(f"its chat template takes {num(server.template_tokens, 'token')}")
        yield "server", said
    if shape is not None:
        yield "model", list(_model_words(shape, found.weights_bytes))


def _model_words(shape: ModelShape, weights_bytes: int | None) -> Iterator[str]:
    yield shape.architecture
    layers = shape.describe_layers()
    if len(layers) > MAX_LAYER_CHARS:
        layers = f"{layers[:MAX_LAYER_CHARS]} (and more kinds, in the JSON document)"
    yield f"{num(shape.num_layers, 'layer')}: {layers}"
    rope = shape.rope
    theta = f", theta {rope.theta:g}" if rope is not None and rope.theta is not None else ""
    yield f"{shape.positions.kind} positions{theta}"
    if shape.num_parameters is not None:
        yield f"{shape.num_parameters} parameters"
    if weights_bytes is not None:
        mostly = f", mostly {shape.weights_type}" if shape.weights_type else ""
        yield f"weights {sized(weights_bytes)}{mostly}"


def _tokens(row: Row) -> str:
    return row.words or value(row.limit.tokens)


def _source(limit: Limit, found: Inspection) -> str:
    """Who said so, in short: the path of the model's files stands above the table."""
    shape = found.subject.shape
    if shape is None:
        return limit.source
    if shape.source.endswith(".gguf"):
        return limit.source.replace(shape.source, "GGUF header")
    folder = os.path.dirname(shape.source)
    return limit.source.removeprefix(f"{folder}/") if folder else limit.source


def _stored(cache: Cache) -> str:
    """`f16, as llama.cpp stores it: each slot in steps of 256 tokens`."""
    types = cache.rules.k_type
    if cache.rules.v_type != types:
        types = f"keys {types}, values {cache.rules.v_type}"
    how = "by the formula" if cache.convention.name == "exact" else f"as {cache.convention.name} stores it"
    return f"{types}, {how}: {cache.convention.rounding}"


def _costs(cache: Cache) -> Iterator[tuple[str, int]]:
    """What is paid for, and its bytes."""
    yield "each token", cache.token_bytes
    if cache.growing_bytes != cache.token_bytes:
        yield "each token past the windows", cache.growing_bytes
    if cache.fixed_bytes:
        yield "each sequence, whatever its length", cache.fixed_bytes
    if cache.tokens is not None and cache.context_bytes is not None:
        yield f"one context of {cache.tokens} tokens", cache.context_bytes
    if cache.engine_bytes is not None:
        yield "all that these settings allocate", cache.engine_bytes


def _memories(found: Inspection) -> Iterator[tuple[str, str]]:
    """Each memory in words."""
    if found.budget is not None:
        yield found.budget.name, sized(found.budget.free_bytes)
    around = found.surroundings
    if around is None:
        return
    for memory in (around.host, *around.gpus):
        yield memory.name, _memory_words(memory)
    if around.gpu_note:
        yield "GPU", around.gpu_note


def _memory_words(memory: Memory) -> str:
    total = "" if memory.total_bytes is None else f" free of {sized(memory.total_bytes)}"
    return f"{sized(memory.free_bytes)}{total}{f', {memory.about}' if memory.about else ''}"


def _question(asked: Answers, each: Answer, found: Inspection) -> str:
    """`8 contexts of 32768 tokens in --budget: 24 GiB, 92.1 MiB of them for the weights`."""
    context = "" if asked.context_tokens is None else f" of {num(asked.context_tokens, 'token')}"
    weights = ", weights not counted"
    if found.weights_bytes is not None:
        weights = f", {sized(found.weights_bytes)} of it for the weights"
    where = f"{each.memory.name}: {sized(each.memory.free_bytes)}"
    together = " at once" if asked.num_sequences > 1 else ""
    return f"{num(asked.num_sequences, 'context')}{context}{together} in {where}{weights}"


def _verdict(choice: Choice) -> str:
    return {True: "fits", False: "does not fit", None: "–"}[choice.fits]


def _most(number: int | None, most: int | None = None) -> str:
    """A bound; `most` is where the model itself ends."""
    if number is None:
        return "no limit"
    return f"{number}*" if most is not None and number > most else str(number)


def _past_range(asked: Answers) -> str:
    """What the star in the table means; "" where there is none."""
    limit = asked.range_tokens
    if limit is None:
        return ""
    tokens = (choice.most_tokens for each in asked.answers for choice in each.choices)
    return (
        f"* the model's own positions end at {limit}" if any(one is not None and one > limit for one in tokens) else ""
    )


def _next(found: Inspection) -> str:
    """The command that probes what was looked at; "" where there is none."""
    target = found.subject.next_target
    return f"contextlab overflow {clean(shlex.quote(target))}" if target else ""


def _not_counted(found: Inspection) -> str:
    return "not counted: activations and compute buffers" if found.answers is not None else ""


# ── columns ──────────────────────────────────────────────────────────────────────────────────────


def _lines(found: Inspection, width: int) -> Iterator[Text]:
    yield from _head(found, width)
    yield from _section("limits", _table(found, width))
    if found.cache is not None:
        costs = [_row("", name, sized(cost), f"{cost} bytes") for name, cost in _costs(found.cache)]
        stored = wrapped(Text(_stored(found.cache)), width - MARK_CELLS)
        yield from _section("KV cache", [*_indented(stored), *_table_of(costs, width, right={1})])
    memories = [_row("", name, clean(words)) for name, words in _memories(found)]
    yield from _section("memory", _table_of(memories, width))
    if found.answers is not None:
        yield from _section("does it fit", list(_answer_lines(found, found.answers, width)))
    lines: list[Text] = []
    for finding in found.findings:
        lines += [Text()] if lines else []
        lines += _finding(finding, width)
    yield from _section("findings", lines)
    if next_command := _next(found):
        yield from _section("", labelled(Text("next:", "dim"), [Text(next_command, "bold")], 8))


def _head(found: Inspection, width: int) -> list[Text]:
    held = not found.findings
    word = Text("HELD" if held else "FAILED", "bold green" if held else "bold red")
    rows = [[word, Text(_headline(found), "bold")], [Text(), Text(_exit(found))]]
    rows += [[Text(name, "dim"), Text(" · ".join(map(clean, words)))] for name, words in _facts(found)]
    rows += [[Text("note", "dim"), Text(clean(note))] for note in found.notes]
    return grid(rows, width)


def _table(found: Inspection, width: int) -> list[Text]:
    rows, marks = [_row("dim", "layer", "limit", "tokens", "said by")], [Text()]
    for row in found.rows:
        style = "bold" if row.binding else ""
        limit, source = row.limit, clean(_source(row.limit, found))
        rows.append(_row(style, str(limit.layer), clean(limit.name), _tokens(row), source))
        marks.append(Text("  ▸" if row.binding else "", style))
    return grid(rows, width, right={2}, marks=marks)


def _answer_lines(found: Inspection, asked: Answers, width: int) -> Iterator[Text]:
    for place, each in enumerate(asked.answers):
        yield from [Text()] if place else []
        yield from _indented(wrapped(Text(_question(asked, each, found)), width - MARK_CELLS))
        rows = [_row("dim", "cache", "a token", "in all", "", "longest", "most at once")]
        marks = [Text()]
        for choice in each.choices:
            whole = "–" if choice.cache_bytes is None else sized(choice.cache_bytes)
            longest = _most(choice.most_tokens, asked.range_tokens)
            most = "–" if asked.context_tokens is None else _most(choice.most_sequences)
            rows.append(_row("", choice.cache_type, sized(choice.token_bytes), whole, _verdict(choice), longest, most))
            marks.append(_mark({True: Verdict.PASS, False: Verdict.FAIL, None: Verdict.UNKNOWN}[choice.fits]))
        yield from grid(rows, width, right={1, 2, 4, 5}, marks=marks)
    for words in (_past_range(asked), _not_counted(found)):
        yield from _indented(wrapped(Text(words, "dim"), width - MARK_CELLS))
    if asked.command:
        yield from labelled(Text("    start"), flowing([Text(asked.command)], width - _BODY), _BODY)


def _finding(finding: Contradiction, width: int) -> list[Text]:
    head = Text.assemble((finding.name, f"bold {COLOURS[Verdict.FAIL]}"), f"  {finding.layer}")
    parts = {"why": finding.message, "remedy": finding.remedy}
    body = [
        line
        for name, words in parts.items()
        for line in labelled(Text(f"    {name}", "dim"), wrapped(Text(clean(words)), width - _BODY), _BODY)
    ]
    return [*labelled(_mark(Verdict.FAIL), wrapped(head, width - MARK_CELLS), MARK_CELLS), *body]


def _section(title: str, lines: Sequence[Text]) -> Iterator[Text]:
    if lines:
        yield Text()
        if title:
            yield Text(title.upper(), "bold")
        yield from lines


def _table_of(rows: Sequence[Sequence[Text]], width: int, right: Iterable[int] = ()) -> list[Text]:
    return grid(rows, width, right=set(right), marks=[Text()] * len(rows)) if rows else []


def _indented(lines: Sequence[Text]) -> list[Text]:
    return [line for one in lines for line in labelled(Text(), [one], MARK_CELLS)]


def _row(style: str, *texts: str) -> list[Text]:
    return [Text(text, style) for text in texts]


def _mark(verdict: Verdict) -> Text:
    return Text.assemble("  ", (MARKS[verdict], COLOURS[verdict]))


# ── one fact a line ──────────────────────────────────────────────────────────────────────────────


def _plain(found: Inspection) -> Iterator[str]:
    yield f"{'FAILED' if found.findings else 'HELD'}  {_headline(found)}"
    yield f"ended: {_exit(found)}"
    yield from (f"{name}: {', '.join(map(clean, words))}" for name, words in _facts(found))
    yield from (f"note: {clean(note)}" for note in found.notes)
    yield ""
    for row in found.rows:
        limit, binding = row.limit, ", binding" if row.binding else ""
        tokens = row.words or (f"{limit.tokens} tokens" if limit.tokens is not None else "–")
        yield f"limit: {tokens}, {limit.layer} {clean(limit.name)}, {clean(_source(limit, found))}{binding}"
    if found.cache is not None:
        yield f"cache: {_stored(found.cache)}"
        yield from (f"cache: {name}: {cost} bytes ({sized(cost)})" for name, cost in _costs(found.cache))
    yield from (f"memory: {name}: {clean(words)}" for name, words in _memories(found))
    if found.answers is not None:
        yield ""
        yield from _plain_answers(found, found.answers)
    for finding in found.findings:
        yield ""
        yield f"finding: {finding.name}"
        yield f"  layer: {finding.layer}"
        yield f"  why: {clean(finding.message)}"
        yield f"  remedy: {clean(finding.remedy)}"
    if next_command := _next(found):
        yield ""
        yield f"next: {next_command}"


def _plain_answers(found: Inspection, asked: Answers) -> Iterator[str]:
    for each in asked.answers:
        yield f"question: {_question(asked, each, found)}"
        for choice in each.choices:
            whole = "" if choice.cache_bytes is None else f", {sized(choice.cache_bytes)} in all"
            longest = _most(choice.most_tokens, asked.range_tokens)
            most = "" if asked.context_tokens is None else f", most at once {_most(choice.most_sequences)}"
            yield f"  {choice.cache_type}: {_verdict(choice)}{whole}, longest context {longest}{most}"
    for words in (_past_range(asked), _not_counted(found)):
        if words:
            yield f"note: {words}"
    if asked.command:
        yield f"start: {asked.command}"


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def document(found: Inspection) -> dict[str, Any]:
    """The inspection as a JSON document."""
    subject, server = found.subject, found.subject.server
    return {
        **_frame(subject.target),
        "kind": subject.kind,
        "model": None if subject.shape is None else _model(subject.shape, found.weights_bytes),
        "server": None
        if server is None
        else {
            "url": server.url,
            "flavour": server.flavour,
            "version": server.version,
            "model": server.model,
            "num_slots": server.num_slots,
            "template_tokens": server.template_tokens,
        },
        "limits": [
            {**_limit(row.limit), "words": row.words, "binding": row.binding, "of_memory": row.of_memory}
            for row in found.rows
        ],
        "binding": None if found.binding is None else _limit(found.binding),
        "kv": None if found.cache is None else _kv(found.cache),
        "memory": _memory(found),
        "findings": [_contradiction(finding) for finding in found.findings],
        "answers": None if found.answers is None else _answers(found.answers),
        "notes": list(found.notes),
        "exit": {"code": found.exit_code, "reason": found.exit_reason},
    }


def failure_document(target: str, error: ContextlabError) -> dict[str, Any]:
    """The document of a target that could not be read: the same keys, nothing in them, and `next_step`."""
    return {
        **_frame(target),
        "kind": None,
        "model": None,
        "server": None,
        "limits": [],
        "binding": None,
        "kv": None,
        "memory": None,
        "findings": [],
        "answers": None,
        "notes": [],
        "exit": {"code": error.exit_code, "reason": error.message},
        "next_step": error.next_step,
    }


def _frame(target: str) -> dict[str, Any]:
    return {"schema": SCHEMA, "command": "inspect", "target": target}


def _model(shape: ModelShape, weights_bytes: int | None) -> dict[str, Any]:
    rope = shape.rope
    return {
        "source": shape.source,
        "architecture": shape.architecture,
        "num_layers": shape.num_layers,
        "layers": shape.describe_layers(),
        "num_parameters": shape.num_parameters,
        "weights_bytes": weights_bytes,
        "weights_type": shape.weights_type,
        "positions": {
            "kind": str(shape.positions.kind),
            "name": shape.positions.name,
            "max_tokens": shape.positions.max_tokens,
        },
        "rope": None
        if rope is None
        else {
            "kind": rope.kind,
            "scaling": rope_words(shape),
            "factor": rope.factor,
            "original_tokens": rope.original_tokens,
            "theta": rope.theta,
        },
        "sliding_windows_tokens": list(shape.windows),
    }


def _limit(limit: Limit) -> dict[str, Any]:
    return {"layer": str(limit.layer), "name": limit.name, "tokens": limit.tokens, "source": limit.source}


def _kv(cache: Cache) -> dict[str, Any]:
    return {
        "engine": cache.convention.name,
        "rounding": cache.convention.rounding,
        "k_type": cache.rules.k_type,
        "v_type": cache.rules.v_type,
        "bytes_per_token": cache.token_bytes,
        "growing_bytes_per_token": cache.growing_bytes,
        "fixed_bytes_per_sequence": cache.fixed_bytes,
        "context_tokens": cache.tokens,
        "bytes_per_sequence": cache.context_bytes,
        "allocated_bytes": cache.engine_bytes,
    }


def _memory(found: Inspection) -> dict[str, Any]:
    around = found.surroundings
    return {
        "budget": None if found.budget is None else _memory_of(found.budget),
        "host": None if around is None else _memory_of(around.host),
        "gpus": [] if around is None else [_memory_of(gpu) for gpu in around.gpus],
        "gpu_note": "" if around is None else around.gpu_note,
    }


def _memory_of(memory: Memory) -> dict[str, Any]:
    return {
        "name": memory.name,
        "free_bytes": memory.free_bytes,
        "total_bytes": memory.total_bytes,
        "about": memory.about,
    }


def _contradiction(finding: Contradiction) -> dict[str, Any]:
    return {
        "name": finding.name,
        "layer": str(finding.layer),
        "why": finding.message,
        "evidence": dict(finding.evidence),
        "remedy": finding.remedy,
    }


def _answers(asked: Answers) -> dict[str, Any]:
    return {
        "context_tokens": asked.context_tokens,
        "concurrency": asked.num_sequences,
        "range_tokens": asked.range_tokens,
        "fits": asked.fits,
        "command": asked.command,
        "memories": [
            {
                "memory": each.memory.name,
                "memory_bytes": each.memory.free_bytes,
                "left_for_cache_bytes": each.left_bytes,
                "cache_types": [
                    {
                        "cache_type": choice.cache_type,
                        "bytes_per_token": choice.token_bytes,
                        "cache_bytes": choice.cache_bytes,
                        "fits": choice.fits,
                        "max_context_tokens": choice.most_tokens,
                        "max_concurrency": choice.most_sequences,
                    }
                    for choice in each.choices
                ],
            }
            for each in asked.answers
        ],
    }
