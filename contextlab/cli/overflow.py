"""`contextlab overflow TARGET`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contextlab.cli.options import (
    Allow,
    At,
    FailOn,
    IOwnThis,
    Json,
    MemoryLimit,
    Output,
    Patience,
    Quiet,
    Runs,
    Seed,
    Set,
    number,
)

EPILOG = """
Examples:
  contextlab overflow smollm2
  contextlab overflow smollm2 --set context=1024 --set kv_unified=false
  contextlab overflow http://127.0.0.1:8000 --scenario find-limit
  contextlab overflow "run:vllm serve MODEL" --at http://127.0.0.1:8000
"""


def overflow(
    target: Annotated[
        str,
        typer.Argument(help="What to probe: a preset (smollm2), gguf:FILE, a URL, run:'COMMAND', hf:DIR, fake:NAME."),
    ],
    settings: Set = None,
    at: At = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", "-s", metavar="NAME", help="Run only this scenario; repeatable."),
    ] = None,
    seed: Seed = 0,
    allow: Allow = None,
    fail_on: FailOn = None,
    timeout: Patience = None,
    memory_limit: MemoryLimit = None,
    max_prompt_tokens: Annotated[
        int,
        typer.Option(parser=number("int", low=64), metavar="TOKENS", help="Largest prompt to send."),
    ] = 65536,
    max_repeats: Annotated[
        int,
        typer.Option(
            parser=number("int", low=1), metavar="N", help="Leave a scenario after this many crashes or hangs."
        ),
    ] = 2,
    output: Output = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    quiet: Quiet = False,
    i_own_this: IOwnThis = False,
) -> None:
    """Reproduce context-window overflow, and name what happened, in which layer, and what to change."""
    from contextlab.cli.session import Session, memory_limit_bytes, policy, recordable_argv
    from contextlab.lab.run import Options

    session = Session(command="overflow", target=target, json=json, quiet=quiet, runs=runs, output=output)
    with session:
        spec = session.parse(settings or [], at=at, i_own_this=i_own_this)
        chosen = session.choose(scenario or [])
        options = Options(
            seed=seed,
            policy=policy(allow or [], fail_on or []),
            patience_s=timeout,
            memory_limit_bytes=memory_limit_bytes(memory_limit),
            max_repeats=max_repeats,
            max_prompt_tokens=max_prompt_tokens,
            argv=recordable_argv(),
        )
        session.work(spec, options, lambda lab: lab.run(chosen))
    raise typer.Exit(session.code)
