"""`contextlab inspect TARGET`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from contextlab.cli.options import IOwnThis, Json, Set, number
from contextlab.cli.output import printing, telling

if TYPE_CHECKING:
    from contextlab.capacity.inspection import Question
    from contextlab.model import TargetSpec

EPILOG = """
Examples:
  contextlab inspect smollm2
  contextlab inspect model.gguf --budget 24GiB --concurrency 8 --context 32768
  contextlab inspect ~/models/llama/ --budget 80GiB --cache-type fp8 --json
  contextlab inspect http://127.0.0.1:8080
  contextlab inspect models/llama/config.json --sarif > contextlab.sarif

Exit 0: nothing contradicts anything. Exit 1: limits contradict each other, or what was asked for does not fit.
Exit 2: wrong usage. Exit 4: the target cannot be read.
"""


def inspect(
    target: Annotated[
        str,
        typer.Argument(help="What to look at: a .gguf file, a model folder or config.json, a URL, a preset (smollm2)."),
    ],
    budget: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for weights and cache, such as 24GiB, in place of this machine's."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(parser=number("int", low=1, high=1 << 20), metavar="N", help="Requests at once.")
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(parser=number("int", low=1, high=1 << 40), metavar="TOKENS", help="Context of each request."),
    ] = None,
    cache_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Type of the KV cache: f16, q8_0, q4_0, fp8, …")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Whose rounding and cache types: llama.cpp, vllm, transformers, exact; by default the target's own.",
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the weights, where the files do not tell it.")
    ] = None,
    settings: Set = None,
    json: Json = False,
    sarif: Annotated[
        bool,
        typer.Option("--sarif", help="Print what contradicts what in the model's files as SARIF (code scanning)."),
    ] = False,
    i_own_this: IOwnThis = False,
) -> None:
    """Show a model's limits by layer, which one ends a context, what contradicts what, and what fits into memory."""
    from contextlab.lab.inspect import examine, located, shown_target
    from contextlab.model import UsageError
    from contextlab.reports import inspection
    from contextlab.reports.json import write_document

    with telling((lambda error: inspection.failure_document(shown_target(target), error)) if json else None):
        if json and sarif:
            raise UsageError("--json --sarif: one document is printed, not two", "leave one of them out")
        question = _question(budget, concurrency, context, cache_type, engine, weights)
        spec = located(target, settings or [])
        here = _is_here(spec, i_own_this)
        found = examine(spec, question, here=here)
    with printing() as out:
        if json:
            write_document(inspection.document(found), out)
        elif sarif:
            from contextlab.reports.sarif import inspection_document

            write_document(inspection_document(found), out)
        else:
            inspection.write_text(found, out)
    raise typer.Exit(found.exit_code)


def _is_here(spec: TargetSpec, i_own_this: bool) -> bool:
    """Whether the target is on this machine; one that is not needs the user's word."""
    from contextlab.lab.inspect import URL_SCHEMES
    from contextlab.model import UsageError

    if spec.scheme not in URL_SCHEMES:
        return True
    from contextlab.cli.session import hosts, is_local  # not for files: it brings the whole lab

    away = [host for host in hosts(spec) if not is_local(host)]
    if away and not i_own_this:
        raise UsageError(f"target: {away[0]} is not this machine", "add --i-own-this if it is yours to ask")
    return not away


def _question(
    budget: str | None,
    concurrency: int | None,
    context: int | None,
    cache_type: str | None,
    engine: str | None,
    weights: str | None,
) -> Question:
    """What the options ask. Raises UsageError for a size or an engine that cannot be meant."""
    from contextlab.capacity.inspection import Question
    from contextlab.capacity.plan import CONVENTIONS, Memory
    from contextlab.model import UsageError

    if engine is not None and engine not in CONVENTIONS:
        raise UsageError(f"engine={engine!r}: there is no such engine", f"choose from: {', '.join(CONVENTIONS)}")
    return Question(
        budget=None if budget is None else Memory(name="--budget", free_bytes=_bytes(budget, "--budget")),
        context_tokens=context,
        num_sequences=concurrency,
        cache_type=cache_type or "",
        engine=engine or "",
        weights_bytes=None if weights is None else _bytes(weights, "--weights"),
    )


def _bytes(text: str, name: str) -> int:
    from contextlab.cli.session import parse_bytes

    return parse_bytes(text, name)
