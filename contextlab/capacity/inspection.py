"""Everything that one look at a target tells: its limits by layer, its cache, the memory, what contradicts what.

    Subject (what was read) ─┐
    memories                ─┼▶ inspected ─▶ Inspection ─▶ a report
    Question (what is asked) ┘

Pure: reading files, asking servers and looking at memory is `lab.inspect`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from contextlab.capacity.contradictions import Contradiction, contradictions
from contextlab.capacity.kv import CacheRules, cache_bytes, fixed_bytes, growing_bytes, token_bytes
from contextlab.capacity.limits import TOKENIZER, WINDOW, EngineSettings, binds, limits_of, memory_limit, reach_tokens
from contextlab.capacity.plan import CONVENTIONS, Answer, Convention, Memory, answer, sized
from contextlab.capacity.shape import GenerationDefaults, ModelShape, PositionKind, TokenizerLimit
from contextlab.model import Layer, Limit, Limits

UNBOUNDED = "no limit"
BESIDE = " beside the running one"
_ORDER = (Layer.TOKENIZER, Layer.POSITIONS, Layer.ATTENTION, Layer.ENGINE, Layer.GATEWAY, Layer.KV_CACHE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A running server as it describes itself. `template_tokens`: what its chat template adds to an empty message."""

    url: str
    flavour: str
    version: str = ""
    model: str = ""
    num_slots: int | None = None
    template_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was read of one target; None where there is nothing of that kind.

    `kind` is "GGUF file", "Hugging Face model" or "server"; `engine`: settings that the user gave for it;
    `served`: what a running server reports. `convention` is how its engine stores the cache. `here`: it uses, or
    would use, the memory of this machine. `next_target` is what a probing command would be given, "" for nothing.
    """

    target: str
    kind: str
    shape: ModelShape | None = None
    tokenizer: TokenizerLimit | None = None
    generation: GenerationDefaults | None = None
    engine: EngineSettings | None = None
    served: Limits | None = None
    server: ServerFacts | None = None
    convention: str = "exact"
    here: bool = True
    next_target: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The memory of this machine; `gpu_note` says why no GPU is listed."""

    host: Memory
    gpus: tuple[Memory, ...] = ()
    gpu_note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the user wants to know beyond the limits; None, or "", leaves it to what was found."""

    budget: Memory | None = None
    context_tokens: int | None = None
    num_sequences: int | None = None
    cache_type: str = ""
    engine: str = ""
    weights_bytes: int | None = None

    @property
    def asked(self) -> bool:
        """Whether there is a question at all."""
        return any(part is not None for part in (self.budget, self.context_tokens, self.num_sequences))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One limit in the table. `words` stand in place of a number that is not there.

    `binding`: contexts end here. `of_memory`: what fits, rather than what somebody declares.
    """

    limit: Limit
    words: str = ""
    binding: bool = False
    of_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What the KV cache costs as the engine stores it.

    `growing_bytes`: what a token adds once every sliding window is full. `tokens`: the context of `context_bytes`,
    None where nothing bounds it. `engine_bytes`: what the engine's settings allocate.
    """

    convention: Convention
    rules: CacheRules
    token_bytes: int
    growing_bytes: int
    fixed_bytes: int
    tokens: int | None
    context_bytes: int | None
    engine_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The question as it was understood, and the answer for each memory.

    `command` starts the engine so that it fits, with a cheaper cache if need be; "" where nothing fits.
    """

    context_tokens: int | None
    num_sequences: int
    answers: tuple[Answer, ...]
    range_tokens: int | None
    command: str

    @property
    def fits(self) -> bool | None:
        """Whether it fits somewhere; None where no context was given and nothing bounds one."""
        every = [each.asked.fits for each in self.answers]
        return None if not every or None in every else any(every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What one look at a target told, for the writers."""

    subject: Subject
    surroundings: Surroundings | None
    weights_bytes: int | None
    rows: tuple[Row, ...]
    cache: Cache | None
    answers: Answers | None
    findings: tuple[Contradiction, ...]
    budget: Memory | None = None
    notes: tuple[str, ...] = ()

    @property
    def binding(self) -> Limit | None:
        """The limit that a context reaches first; of equal ones the first."""
        return next((row.limit for row in self.rows if row.binding), None)

    @property
    def exit_code(self) -> int:
        """1 where something contradicts something, or what was asked for does not fit; else 0."""
        return 1 if self.findings else 0

    @property
    def exit_reason(self) -> str:
        """Why."""
        return ", ".join(dict.fromkeys(found.name for found in self.findings)) or "no contradiction"


def inspected(subject: Subject, surroundings: Surroundings | None, question: Question) -> Inspection:
    """Put together what was read. Raises UsageError for a cache type that the engine does not have."""
    shape, notes = subject.shape, list(subject.notes)
    weights_bytes = question.weights_bytes
    if weights_bytes is None and shape is not None:
        weights_bytes = shape.weights_bytes
    rows = list(_rows(subject))
    cache = answers = None
    findings = list(
        contradictions(
            shape,
            tokenizer=subject.tokenizer,
            generation=subject.generation,
            engine=subject.engine,
            served=subject.served,
            template_tokens=subject.server.template_tokens if subject.server else None,
        )
    )
    if shape is None and question.asked:
        notes.append("what would fit cannot be told: the shape of the model is not known")
    if shape is not None:
        convention = CONVENTIONS[question.engine or subject.convention]
        rules = _rules(subject, convention, question.cache_type)
        memories = _memories(subject, surroundings, question)
        num_sequences = question.num_sequences or (subject.engine.num_slots if subject.engine else 1)
        declared = _smallest(rows)
        rows += _memory_rows(subject, memories, rules, num_sequences, weights_bytes)
        cache = _cache(subject, convention, rules, declared)
        findings += _unstorable(shape, convention, rules)
        if weights_bytes is None and memories:
            notes.append("the size of the weights is not known: memory is counted for the cache alone (--weights SIZE)")
        if question.asked:
            answers = _answers(
                shape,
                memories,
                convention=convention,
                rules=rules,
                context_tokens=question.context_tokens or declared,
                num_sequences=num_sequences,
                weights_bytes=weights_bytes,
            )
            findings += _misfits(shape, question, answers, weights_bytes)
    return Inspection(
        subject=subject,
        surroundings=surroundings,
        weights_bytes=weights_bytes,
        rows=tuple(sorted(_marked(rows, running=subject.server is not None), key=_place)),
        cache=cache,
        answers=answers,
        findings=tuple(findings),
        budget=question.budget,
        notes=tuple(notes),
    )


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def _rows(subject: Subject) -> Iterator[Row]:
    """What is declared, from the tokenizer to the engine; a layer that declares nothing says so."""
    shape, tokenizer, engine = subject.shape, subject.tokenizer, subject.engine
    if tokenizer is not None:
        [limit] = limits_of(tokenizer=tokenizer)
        yield Row(limit=limit, words=UNBOUNDED if tokenizer.unlimited else "")
    elif shape is not None:
        source = "GGUF files have no such field" if subject.kind != "Hugging Face model" else "no tokenizer_config.json"
        yield _silent(Layer.TOKENIZER, TOKENIZER, "", source)
    if shape is not None:
        yield from _shape_rows(shape)
    for limit in limits_of(generation=subject.generation):
        yield Row(limit=limit)
    for limit in limits_of(engine=engine):
        yield Row(limit=limit)
    if subject.served is not None:
        yield from _served_rows(subject)
    elif engine is None:
        yield _silent(Layer.ENGINE, "context per request", "", "no server was asked")


def _shape_rows(shape: ModelShape) -> Iterator[Row]:
    """Positions, their RoPE scaling, and sliding windows, which are named also where there are none."""
    unlimited = UNBOUNDED if shape.positions.kind in {PositionKind.ALIBI, PositionKind.NONE} else ""
    limits = limits_of(shape)
    for limit in limits:
        if limit.layer is Layer.POSITIONS:
            yield Row(limit=limit, words=unlimited if limit.tokens is None else "")
            if limit is limits[0] and shape.positions.kind is PositionKind.ROTARY:
                yield _silent(Layer.POSITIONS, "RoPE scaling", rope_words(shape), shape.source)
    windows = [Row(limit=limit) for limit in limits if limit.layer is Layer.ATTENTION]
    yield from windows or [_silent(Layer.ATTENTION, WINDOW, "none", shape.source)]


def _served_rows(subject: Subject) -> Iterator[Row]:
    served, server = subject.served, subject.server
    source = server.url if server else "the server"
    for limit in limits_of(served=served, served_source=source):
        yield Row(limit=limit)
    if served is None or server is None or served.context_tokens is None or served.pool_tokens is not None:
        return
    if server.flavour == "llama-server":
        slots, window = served.num_slots or 1, served.context_tokens
        apart = f", {window * slots} where each of {slots} slots has a pool of its own" if slots > 1 else ""
        yield _silent(Layer.KV_CACHE, "KV cells of all slots", f"at least {window}", f"the server does not say{apart}")


def _memory_rows(
    subject: Subject, memories: Sequence[Memory], rules: CacheRules, num_sequences: int, weights_bytes: int | None
) -> Iterator[Row]:
    """What fits into each memory beside the weights; beside a running server that is what another one would have."""
    if subject.shape is None:
        return
    for memory in memories:
        left_bytes = memory.free_bytes - (weights_bytes or 0)
        source = f"{memory.name}: {sized(memory.free_bytes)}" + ("" if memory.total_bytes is None else " free")
        limit = memory_limit(subject.shape, left_bytes, source=source, rules=rules, num_sequences=num_sequences)
        if subject.server is not None and memory.total_bytes is not None:
            limit = replace(limit, name=limit.name + BESIDE)
        yield Row(limit=limit, words=UNBOUNDED if limit.tokens is None else "", of_memory=True)


def _marked(rows: Sequence[Row], *, running: bool) -> Iterator[Row]:
    """The same rows, those marked at which contexts end first.

    Memories are alternatives, a model lies in one of them: only the one that holds most can end a context. A
    `running` server has its memory already: what is still free ends none of its contexts.
    """
    ends = _smallest(rows)
    memory = [] if running else [row.limit.tokens for row in rows if row.of_memory]
    bounded = [tokens for tokens in memory if tokens is not None]
    if bounded and len(bounded) == len(memory):
        ends = max(bounded) if ends is None else min(ends, max(bounded))
    for row in rows:
        binding = ends is not None and row.limit.tokens == ends and binds(row.limit)
        yield replace(row, binding=binding and not (running and row.of_memory))


def _place(row: Row) -> int:
    """Where a row stands in the table: from the text that comes in to the memory that it ends in."""
    return _ORDER.index(row.limit.layer)


def _smallest(rows: Sequence[Row]) -> int | None:
    """The smallest declared number at which a context ends."""
    ending = [row.limit for row in rows if binds(row.limit) and not row.of_memory]
    return min((limit.tokens for limit in ending if limit.tokens is not None), default=None)


def _silent(layer: Layer, name: str, words: str, source: str) -> Row:
    return Row(limit=Limit(layer=layer, name=name, tokens=None, source=source), words=words)


def rope_words(shape: ModelShape) -> str:
    """`none`, or `yarn × 4`."""
    rope = shape.rope
    if rope is None or not rope.scaled:
        return "none"
    return rope.kind if rope.factor is None else f"{rope.kind} × {rope.factor:g}"


# ── the cache, and what fits ─────────────────────────────────────────────────────────────────────


def _rules(subject: Subject, convention: Convention, cache_type: str) -> CacheRules:
    """The convention's rules with the element types: asked for, set, or what the engine takes by itself."""
    engine = subject.engine
    if cache_type:
        return convention.rules.typed(convention.checked(cache_type))
    if engine is not None:
        return convention.rules.typed(convention.checked(engine.k_type), convention.checked(engine.v_type))
    if convention.name == "transformers" and subject.shape is not None:
        stored = subject.shape.weights_type
        named = {"float32": "f32", "bfloat16": "bf16"}.get(stored, stored)
        return convention.rules.typed(named if named in convention.cache_types else "f16")
    return convention.rules


def _memories(subject: Subject, surroundings: Surroundings | None, question: Question) -> tuple[Memory, ...]:
    """The memories in question: a budget, or this machine's own."""
    if question.budget is not None:
        return (question.budget,)
    return (surroundings.host, *surroundings.gpus) if surroundings is not None and subject.here else ()


def _cache(subject: Subject, convention: Convention, rules: CacheRules, tokens: int | None) -> Cache:
    shape, engine = subject.shape, subject.engine
    assert shape is not None  # noqa: S101 - the caller has looked
    return Cache(
        convention=convention,
        rules=rules,
        token_bytes=token_bytes(shape, rules),
        growing_bytes=growing_bytes(shape, rules),
        fixed_bytes=fixed_bytes(shape, rules),
        tokens=tokens,
        context_bytes=None if tokens is None else cache_bytes(shape, tokens, rules),
        engine_bytes=None if engine is None else _engine_bytes(shape, engine, rules),
    )


def _engine_bytes(shape: ModelShape, engine: EngineSettings, rules: CacheRules) -> int | None:
    """What the settings allocate; in a unified pool every slot may have all of it."""
    tokens = engine.per_request_tokens
    if tokens is None:
        return None
    if not engine.unified:
        return cache_bytes(shape, tokens, rules, engine.num_slots)
    share = -(-tokens // engine.num_slots)
    return cache_bytes(shape, share, replace(rules, unified=True), engine.num_slots)


def _answers(
    shape: ModelShape,
    memories: Sequence[Memory],
    *,
    convention: Convention,
    rules: CacheRules,
    context_tokens: int | None,
    num_sequences: int,
    weights_bytes: int | None,
) -> Answers:
    answers = tuple(
        answer(
            shape,
            memory,
            convention=convention,
            rules=rules,
            context_tokens=context_tokens,
            num_sequences=num_sequences,
            weights_bytes=weights_bytes,
        )
        for memory in memories
    )
    range_tokens = _range_tokens(shape)
    reaches = context_tokens is not None and (range_tokens is None or context_tokens <= range_tokens)
    fitting = next((choice for each in answers for choice in each.choices if choice.fits and reaches), None)
    return Answers(
        context_tokens=context_tokens,
        num_sequences=num_sequences,
        answers=answers,
        range_tokens=range_tokens,
        command=convention.command(context_tokens, num_sequences, fitting.k_type, fitting.v_type)
        if fitting is not None and context_tokens is not None
        else "",
    )


def _range_tokens(shape: ModelShape) -> int | None:
    return None if shape.positions.kind in {PositionKind.ALIBI, PositionKind.NONE} else reach_tokens(shape)


# ── what was asked for and cannot be ─────────────────────────────────────────────────────────────


def _unstorable(shape: ModelShape, convention: Convention, rules: CacheRules) -> Iterator[Contradiction]:
    """A cache type whose blocks do not divide the model's heads."""
    for name in dict.fromkeys((rules.k_type, rules.v_type)):
        if not convention.can_store(shape, name):
            offers = [each for each in convention.offers if convention.can_store(shape, each)]
            yield Contradiction(
                name="cache-type-does-not-divide",
                layer=Layer.KV_CACHE,
                message=f"the blocks of {name} do not divide the width of this model's heads: {convention.name} "
                "refuses to start",
                remedy=f"Use one of: {', '.join(offers)}.",
                evidence={"cache_type": name},
            )


def _misfits(
    shape: ModelShape, question: Question, answers: Answers, weights_bytes: int | None
) -> Iterator[Contradiction]:
    """A context past the model's positions, and what does not fit, if it was asked for."""
    context, positions = question.context_tokens, answers.range_tokens
    if context is not None and positions is not None and context > positions:
        yield Contradiction(
            name="context-past-positions",
            layer=Layer.POSITIONS,
            message=f"a context of {context} tokens was asked for, the model has {positions} positions",
            remedy=f"Ask for at most {positions} tokens, or take a model, or a RoPE scaling, that reaches further.",
            evidence={"context": context, "positions": positions},
        )
    if not answers.answers:
        return
    best = max(answers.answers, key=lambda each: each.left_bytes)
    if best.left_bytes < 0:
        yield Contradiction(
            name="weights-do-not-fit",
            layer=Layer.KV_CACHE,
            message=f"the weights take {sized(weights_bytes or 0)}, {best.memory.name} has "
            f"{sized(best.memory.free_bytes)}",
            remedy="Take a smaller quantisation of the model, or more memory.",
            evidence={"weights_bytes": weights_bytes or 0, "memory_bytes": best.memory.free_bytes},
        )
        return
    asked = question.context_tokens is not None or question.num_sequences is not None
    if answers.fits is False and asked:
        yield _does_not_fit(answers, best)


def _does_not_fit(answers: Answers, best: Answer) -> Contradiction:
    context, sequences = answers.context_tokens or 0, answers.num_sequences
    choice, needed = best.asked, best.asked.cache_bytes or 0
    ways = [f"store it as {each.cache_type}" for each in best.choices[1:] if each.fits][:1]
    if choice.most_tokens:
        reach = min(choice.most_tokens, answers.range_tokens or choice.most_tokens)
        ways.append(f"at most {reach} tokens for {_each(sequences)}")
    if choice.most_sequences and sequences > 1:
        ways.append(f"at most {choice.most_sequences} at once of {context} tokens")
    return Contradiction(
        name="does-not-fit",
        layer=Layer.KV_CACHE,
        message=f"the cache of {sequences} × {context} tokens takes {sized(needed)} as {choice.cache_type}, "
        f"{best.memory.name} has {sized(best.left_bytes)} left for it",
        remedy=f"It would fit like this: {'; or '.join(ways)}." if ways else "It does not fit in any way: find memory.",
        evidence={"cache_bytes": needed, "left_bytes": best.left_bytes, "context": context, "sequences": sequences},
    )


def _each(num_sequences: int) -> str:
    return "the one request" if num_sequences == 1 else f"each of {num_sequences}"
