"""`contextlab chaos TARGET`."""

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
    Quiet,
    Runs,
    Set,
    Workers,
    number,
)

EPILOG = """
Examples:
  contextlab chaos smollm2 --fault loss:rate=15%
  contextlab chaos smollm2 --fault "latency:delay=200ms@5s+10s" --hypothesis "p90 ttft < 2s" --duration 20s
  contextlab chaos smollm2 --fault cpu:quota=200m
  contextlab chaos http://127.0.0.1:8000 --scenario cut-streams
  contextlab chaos http://127.0.0.1:8000 --fault pause --pid 4242 --i-own-this
  contextlab chaos smollm2 --plan plan.toml --dry-run
"""
FAULT_HELP = "NAME:OPTION=VALUE,…@START+LENGTH, such as loss:rate=15%@10s+30s; repeatable (contextlab faults list)."
BOUND_HELP = "A bound of the steady state, such as 'p99 ttft < 800ms' or 'errors < 1%'; repeatable."


def chaos(
    target: Annotated[
        str | None, typer.Argument(help="What to test: a preset (smollm2), gguf:FILE, a URL, run:'COMMAND', hf:DIR.")
    ] = None,
    fault: Annotated[list[str] | None, typer.Option("--fault", "-f", metavar="FAULT", help=FAULT_HELP)] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N", help="Requests a second; by default what suits the target's speed.")
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Length of each arm (default: 30s).")] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(metavar="PACE", help="poisson, constant, burst:10x, ramp:4x, closed:N or replay:FILE."),
    ] = None,
    hypothesis: Annotated[
        list[str] | None, typer.Option("--hypothesis", "-H", metavar="BOUND", help=BOUND_HELP)
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="BOUND", help="Stop the load when this happens, such as 'errors > 50%'; repeatable."),
    ] = None,
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="The experiment, written in TOML.")] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", "-s", metavar="NAME", help="Run this scenario; repeatable. Without --fault: all."),
    ] = None,
    settings: Set = None,
    at: At = None,
    seed: Annotated[
        int | None, typer.Option(parser=number("int"), metavar="N", help="Equal seeds give equal plans and faults.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="A client gives up after this; scaled to the target by default.")
    ] = None,
    warmup: Annotated[str | None, typer.Option(metavar="TIME", help="Sent and not judged, in each arm.")] = None,
    recovery_within: Annotated[
        str | None, typer.Option(metavar="TIME", help="The steady state must be back so soon after the last fault.")
    ] = None,
    reply_tokens: Annotated[
        int | None, typer.Option(parser=number("int", low=1, high=1_000_000), metavar="N", help="Length of each reply.")
    ] = None,
    workers: Workers = 1,
    allow_emulation: Annotated[
        bool,
        typer.Option(
            "--allow-emulation",
            help="Where packets cannot be touched here, imitate their loss on the stream; labelled so.",
        ),
    ] = False,
    no_control: Annotated[
        bool, typer.Option("--no-control", help="No arm without faults: half the time, no A/A.")
    ] = False,
    pid: Annotated[
        int | None,
        typer.Option(
            parser=number("int", low=1, high=1 << 22),
            metavar="N",
            help="Main process of a server that is not ours, for faults on its host; needs --i-own-this.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done and what it needs, and do nothing.")
    ] = False,
    allow: Allow = None,
    fail_on: FailOn = None,
    memory_limit: MemoryLimit = None,
    output: Output = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    quiet: Quiet = False,
    i_own_this: IOwnThis = False,
) -> None:
    """Inject faults under load, prove that they landed, and tell what they did and whether the target recovered."""
    from contextlab.cli.output import printing
    from contextlab.cli.session import Session, memory_limit_bytes, policy, recordable_argv
    from contextlab.lab.chaos.foretelling import foretold
    from contextlab.lab.chaos.planning import Words, chosen, planned
    from contextlab.lab.chaos.run import ChaosLab, ChaosOptions
    from contextlab.lab.chaos.victims import foreign_victim
    from contextlab.lab.run import Options

    session = Session(command="chaos", target=target or "", json=json, quiet=quiet, runs=runs, output=output)
    with session:
        written = planned(
            Words(
                faults=fault or [],
                rate=rate,
                duration=duration,
                arrivals=arrivals,
                hypothesis=hypothesis or [],
                stop=stop or [],
                timeout=timeout,
                warmup=warmup,
                recovery_within=recovery_within,
                reply_tokens=reply_tokens,
                control=False if no_control else None,
            ),
            plan,
        )
        session.retarget(target or written.target)
        spec = session.parse([*written.settings, *(settings or [])], at=at, i_own_this=i_own_this)
        scenarios = chosen(written, scenario or [])
        options = Options(
            seed=seed if seed is not None else written.seed or 0,
            policy=policy(allow or [], fail_on or []),
            memory_limit_bytes=memory_limit_bytes(memory_limit),
            max_prompt_tokens=1 << 30,
            argv=recordable_argv(),
            command="chaos",
        )
        own = ChaosOptions(
            asked=written.asked,
            allow_emulation=allow_emulation,
            num_workers=workers,
            victim=foreign_victim(spec, written.asked.faults, pid=pid, i_own_this=i_own_this),
        )
        if dry_run:
            with printing() as out:
                out.write(foretold(spec, scenarios, own, seed=options.seed, as_json=json))
        else:
            session.work_in(
                lambda folder, listener: ChaosLab(spec, folder, options, listener, chaos=own),
                lambda lab: lab.run_chaos(scenarios),
            )
    raise typer.Exit(session.code)
