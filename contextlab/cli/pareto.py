"""`contextlab pareto TARGET`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contextlab.cli.options import (
    At,
    IOwnThis,
    Json,
    MemoryLimit,
    Output,
    Quiet,
    Runs,
    Seed,
    Set,
    Workers,
    number,
)

EPILOG = """
Examples:
  contextlab pareto smollm2 --sweep slots=1,2,4 --sweep concurrency=1,2,4,8 --budget 6min
  contextlab pareto smollm2 --sweep batch=64,128,512 --load concurrency=4 --slo "p99 itl < 100ms"
  contextlab pareto hf:random/llama --sweep batch=1,2,4,8 --sweep cache=dynamic,static
  contextlab pareto "run:llama-server -m M.gguf -c {context}" --at http://127.0.0.1:8080 --sweep context=512..4096x2
"""


def pareto(
    target: Annotated[
        str | None, typer.Argument(help="What to sweep: a preset (smollm2), gguf:FILE, a URL, run:'COMMAND', hf:DIR.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", "-w", metavar="AXIS", help="NAME=1,2,4, NAME=1..8 or NAME=512..4096x2; repeatable."),
    ] = None,
    load: Annotated[
        list[str] | None,
        typer.Option("--load", metavar="NAME=VALUE", help="A load setting that stays, such as concurrency=4."),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GOAL",
            help="up:METRIC or down:METRIC (default: up:tokens_per_s, and down: the time in an SLO, else p99 ttft).",
        ),
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option(metavar="BOUND", help="What a setting must keep, such as 'p99 ttft < 200ms'.")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="The point that each block repeats (default: the middle)."),
    ] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time for the whole sweep.")] = "10min",
    measure: Annotated[
        str, typer.Option(metavar="TIME", help="Length of an evaluation's steady part, at least; the ramp is its own.")
    ] = "3s",
    repeats: Annotated[
        int, typer.Option(parser=number("int", low=2, high=100), metavar="N", help="Repeats of what may be best.")
    ] = 3,
    settings: Set = None,
    at: At = None,
    seed: Seed = 0,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with a sweep that was cut off; nothing is measured twice.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="OLD NEW", help="Compare the frontiers of two recorded sweeps.")
    ] = None,
    optuna: Annotated[
        bool, typer.Option("--optuna", help="Let Optuna's samplers choose the settings (extra: optuna).")
    ] = False,
    same_prompts: Annotated[
        bool, typer.Option("--same-prompts", help="Send the same prompt each time: shows how a prefix cache flatters.")
    ] = False,
    wait: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for a busy host to calm down.")] = "20s",
    trust_host: Annotated[
        bool, typer.Option("--trust-host", help="Measure although others use this machine; it is only written down.")
    ] = False,
    workers: Workers = 1,
    memory_limit: MemoryLimit = None,
    output: Output = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    quiet: Quiet = False,
    i_own_this: IOwnThis = False,
) -> int:
    """Sweep buffer sizes, and find the throughput-latency frontier with honest uncertainty."""
    from contextlab.analysis.quantities import quantity
    from contextlab.cli.comparing import compared
    from contextlab.cli.session import Session, memory_limit_bytes, recordable_argv
    from contextlab.lab.journal import find_run, read_run
    from contextlab.lab.run import Options
    from contextlab.lab.sweep.evaluate import How
    from contextlab.lab.sweep.plan import planned
    from contextlab.lab.sweep.run import Sweeper, SweepOptions

    session = Session(command="pareto", target=target or "", json=json, quiet=quiet, runs=runs, output=output)
    with session:
        if compare is not None:
            session.code = compared(*compare, runs, as_json=json)
            return session.code
        before = read_run(find_run(resume, runs)) if resume else None
        session.retarget(target)
        spec = session.parse(settings or [], at=at, i_own_this=i_own_this)
        chosen = planned(
            spec,
            axes=sweep or [],
            fixed=load or [],
            goals=objective or [],
            slos=slo or [],
            baseline=baseline or [],
            budget_s=quantity("budget", budget, "duration", low=1.0),
            seed=seed,
            same_prompts=same_prompts,
        )
        own = SweepOptions(
            planned=chosen,
            how=How(
                measure_s=quantity("measure", measure, "duration", low=0.5),
                same_prompts=same_prompts,
                trust_host=trust_host,
                num_workers=workers,
            ),
            repeats=repeats,
            wait_s=quantity("wait", wait, "duration", low=0.0),
            search="optuna" if optuna else "race",
        )
        options = Options(
            seed=seed,
            memory_limit_bytes=memory_limit_bytes(memory_limit),
            argv=recordable_argv(),
            command="pareto",
        )
        session.work_in(
            lambda folder, listener: Sweeper(spec, folder, options, listener, sweeping=own, before=before),
            lambda lab: lab.run_sweep(),
            folder=Path(before.path) if before is not None else None,
        )
    return session.code
