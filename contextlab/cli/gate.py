"""`contextlab gate`: is the candidate worse than the base, or worse than it was?

gate run --base 'TARGET…' --candidate 'TARGET…'    both are measured here, side by side
gate BASELINE CURRENT                              two stored records
gate calibrate 'TARGET…'                           how noisy this place is
gate accept RUN --reason TEXT                      what was measured becomes the baseline
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from contextlab.cli.options import IOwnThis, Json, MemoryLimit, Output, Quiet, Runs, Seed, number

if TYPE_CHECKING:
    from contextlab.analysis.gate.settings import Settings
    from contextlab.model import TargetSpec

EPILOG = """
Examples:
  contextlab gate run --base 'smollm2' --candidate 'smollm2 --set threads=2'
  contextlab gate calibrate smollm2
  contextlab gate accept latest --reason "new engine, measured on the runner"
  contextlab gate smollm2 latest --tested engine.version
"""
COMPARE = "compare"


class GateGroup(TyperGroup):
    """A group whose words that are no command are two records to compare."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `gate BASELINE CURRENT` as `gate compare BASELINE CURRENT`."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [COMPARE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=GateGroup,
    no_args_is_help=True,
    help="Measure two targets side by side and fail where the second is worse; or compare stored records.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Blocks = Annotated[
    int | None,
    typer.Option(parser=number("int", low=7, high=200), metavar="N", help="Launches of each arm (default: 10)."),
]
MaxBlocks = Annotated[
    int | None,
    typer.Option(parser=number("int", low=7, high=200), metavar="N", help="Where undecided, up to so many (20)."),
]
Requests = Annotated[
    int | None,
    typer.Option(parser=number("int", low=5, high=100_000), metavar="N", help="Requests of a launch that count (24)."),
]
Load = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="warmup, concurrency, prompt_tokens or reply_tokens; repeatable."),
]
Timeout = Annotated[
    float | None,
    typer.Option(parser=number("float", low=0.1, high=86400), metavar="SECONDS", help="Time for each reply (60)."),
]
TrustHost = Annotated[
    bool, typer.Option("--trust-host", help="Judge although others use this machine; it is only written down.")
]
Resume = Annotated[
    str | None, typer.Option(metavar="RUN", help="Go on with a run: its blocks count, and none is measured twice.")
]
Baselines = Annotated[Path, typer.Option(metavar="DIR", help="Folder that holds baselines and calibrations.")]
FOLDER = Path(".contextlab/baselines")


@app.command(name="run", epilog="Exit: 0 no worse, 1 worse, 3 cannot be told, 4 a target died. See docs/gate.md.")
def run(
    base: Annotated[str, typer.Option(metavar="TARGET…", help="A target with its --set and --at, as one word.")],
    candidate: Annotated[str, typer.Option(metavar="TARGET…", help="The one that must not be worse.")],
    blocks: Blocks = None,
    max_blocks: MaxBlocks = None,
    requests: Requests = None,
    load: Load = None,
    confirm: Annotated[
        bool | None, typer.Option("--confirm/--no-confirm", help="See in fresh processes what was flagged.")
    ] = None,
    seed: Seed = 0,
    resume: Resume = None,
    timeout: Timeout = None,
    trust_host: TrustHost = False,
    memory_limit: MemoryLimit = None,
    baselines: Baselines = FOLDER,
    output: Output = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    quiet: Quiet = False,
    i_own_this: IOwnThis = False,
) -> int:
    """Measure both targets here, interleaved, each launch a fresh process, and judge the second by the first."""
    from contextlab.cli.session import Session

    session = Session(command="gate", target=candidate, json=json, quiet=quiet, runs=runs, output=output)
    with session:
        settings = _settings(blocks, max_blocks, requests, load, confirm, timeout)
        specs = {name: _spec(session, words, name, i_own_this) for name, words in _arms(base, candidate).items()}
        settings, noise, notes = _resolved(settings, specs["base"], seed, baselines)
        _measure(
            session,
            specs,
            settings,
            seed,
            resume,
            memory_limit,
            noise=noise,
            notes=notes,
            trusts_host=trust_host,
            texts=_arms(base, candidate),
        )
    return session.code


@app.command(name="calibrate", epilog="Exit: 0 stored, 3 the machine was not quiet, 4 the target died.")
def calibrate(
    target: Annotated[str, typer.Argument(help="A target with its --set and --at, as one word.")],
    blocks: Blocks = None,
    requests: Requests = None,
    load: Load = None,
    seed: Seed = 0,
    resume: Resume = None,
    timeout: Timeout = None,
    trust_host: TrustHost = False,
    memory_limit: MemoryLimit = None,
    baselines: Baselines = FOLDER,
    output: Output = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    quiet: Quiet = False,
    i_own_this: IOwnThis = False,
) -> int:
    """Measure a target against itself, and store which metrics this place can gate."""
    from contextlab.cli.session import Session
    from contextlab.lab.gate.baselines import keep_noise

    session = Session(command="gate", target=target, json=json, quiet=quiet, runs=runs, output=output)
    with session:
        settings = _settings(blocks, None, requests, load, None, timeout)
        specs = {name: _spec(session, words, name, i_own_this) for name, words in _arms(target, target).items()}
        gate = _measure(
            session,
            specs,
            settings,
            seed,
            resume,
            memory_limit,
            noise="",
            notes=(),
            trusts_host=trust_host,
            texts=_arms(target, target),
            calibrates=True,
        )
        if gate.calibration is not None and not gate.calibration.contaminated:
            path = keep_noise(specs["base"].name, gate.fingerprints["base"], gate.calibration, baselines)
            if not quiet and not json:
                typer.echo(f"stored: {path}", err=True)
    return session.code


@app.command(name=COMPARE, hidden=True)
def compare(
    baseline: Annotated[str, typer.Argument(help="A baseline (its name, or its file), or a recorded gate.")],
    current: Annotated[str, typer.Argument(help="A recorded gate, or another baseline.")],
    tested: Annotated[
        list[str] | None,
        typer.Option(metavar="FACT", help="What is meant to differ, such as engine.version or flags.threads."),
    ] = None,
    trust_host: TrustHost = False,
    baselines: Baselines = FOLDER,
    runs: Runs = Path("runs"),
    json: Json = False,
) -> int:
    """Compare two stored records; what was not made in the same place, of the same thing, is not comparable."""
    from contextlab import registry
    from contextlab.cli.output import printing
    from contextlab.cli.session import Session, recordable_argv
    from contextlab.lab.gate.comparing import compared
    from contextlab.lab.gate.configuration import gate_settings

    session = Session(command="gate", target=current, json=json, quiet=True, runs=runs, output=None)
    with session:
        record, session.code = compared(
            baseline,
            current,
            runs,
            baselines,
            gate_settings(),
            tested or [],
            trusts_host=trust_host,
            argv=recordable_argv(),
        )
        write = registry.choose_writer("json" if json else "terminal")
        with printing() as out:
            write(record, out)
    return session.code


@app.command(name="accept")
def accept(
    run: Annotated[str, typer.Argument(help="A recorded gate: its folder, its name below runs/, or latest.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why this is what counts from now on.")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the baseline (default: the target's).")] = None,
    baselines: Baselines = FOLDER,
    runs: Runs = Path("runs"),
) -> int:
    """Make the candidate of a recorded gate the baseline: a small file, to be committed."""
    from contextlab.cli.output import printing
    from contextlab.lab.gate.baselines import accept as accepted

    path = accepted(run, runs, reason=reason, name=name, folder=baselines)
    with printing() as out:
        out.write(f"{path}\n")
    return 0


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def _arms(base: str, candidate: str) -> dict[Any, str]:
    return {"base": base, "candidate": candidate}


def _settings(
    blocks: int | None,
    max_blocks: int | None,
    requests: int | None,
    load: list[str] | None,
    confirm: bool | None,
    timeout_s: float | None,
) -> Settings:
    """The project's settings, with what the command line says."""
    from contextlab.analysis.gate.settings import changed
    from contextlab.lab.gate.configuration import gate_settings

    return changed(
        gate_settings(),
        blocks=blocks,
        max_blocks=max_blocks,
        confirm=confirm,
        num_requests=requests,
        timeout_s=timeout_s,
        **_load(load or []),
    )


def _load(words: list[str]) -> dict[str, int]:
    from contextlab.model import UsageError
    from contextlab.registry import choose

    names = {"warmup": "num_warmup", **{one: one for one in ("concurrency", "prompt_tokens", "reply_tokens")}}
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        field = names[choose("setting", name.strip(), list(names))]
        if not equals or not value.strip().isdecimal():
            raise UsageError(f"--load {word!r}: must be NAME=NUMBER", "for example --load concurrency=2")
        found[field] = int(value)
    return found


def _spec(session: Any, words: str, arm: str, i_own_this: bool) -> TargetSpec:
    """A target with its settings, of one shell word."""
    from contextlab.lab.gate.words import parse_arm

    spec = parse_arm(words, f"--{arm}")
    session.check(spec, i_own_this=i_own_this)
    return spec


def _resolved(settings: Settings, spec: TargetSpec, seed: int, folder: Path) -> tuple[Settings, str, tuple[str, ...]]:
    """The settings without what this place was shown not to resolve; the calibration that says so; notes."""
    from contextlab.lab.gate.calibrated import by_calibration

    return by_calibration(settings, spec, seed, folder)


def _measure(
    session: Any,
    specs: dict[Any, TargetSpec],
    settings: Settings,
    seed: int,
    resume: str | None,
    memory_limit: str | None,
    *,
    noise: str,
    notes: tuple[str, ...],
    trusts_host: bool,
    texts: dict[Any, str],
    calibrates: bool = False,
) -> Any:
    """Run the gate in a folder of its own, or in that of the run that goes on; returns it."""
    from contextlab.analysis.gate.stored import GateBegins
    from contextlab.cli.session import memory_limit_bytes, recordable_argv
    from contextlab.lab.gate.run import Gate
    from contextlab.lab.journal import find_run, read_run
    from contextlab.lab.provenance import without_secrets
    from contextlab.lab.run import Options

    runs = session.runs
    before = read_run(find_run(resume, runs)) if resume else None
    begins = GateBegins(
        base=without_secrets(texts["base"]),
        candidate=without_secrets(texts["candidate"]),
        settings=settings,
        seed=seed,
        calibrates=calibrates,
        trusts_host=trusts_host,
        noise=noise,
    )
    options = Options(
        seed=seed, memory_limit_bytes=memory_limit_bytes(memory_limit), argv=recordable_argv(), command="gate"
    )
    made: list[Gate] = []

    def make(folder: Path, listener: Any) -> Gate:
        made.append(Gate(specs, folder, options, listener, begins=begins, before=before, notes=notes))
        return made[0]

    session.work_in(make, lambda lab: lab.run_gate(), folder=Path(before.path) if before is not None else None)
    return made[0]
