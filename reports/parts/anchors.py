"""Which file a finding is about, where it is about one: a plan, a GGUF file, a config.json; pure, from words alone.

What an engine does with a window has no line in anybody's repository. What a model's files declare has: findings on
the layers that they describe belong to the file. A broken bound of a plan belongs to the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import quote

from contextlab.model import Finding, Layer, Outcome, Run

DECLARED_THERE = frozenset({Layer.TOKENIZER, Layer.POSITIONS})
FOLLOWS = frozenset(
    {
        Outcome.DEGRADED,
        Outcome.TRUNCATED_HEAD,
        Outcome.TRUNCATED_MIDDLE,
        Outcome.TRUNCATED_TAIL,
        Outcome.CRASHED,
    }
)
"""What becomes of a prompt that a tokenizer cuts, or that runs past the positions a model was trained on."""
OF_A_PLAN = frozenset({Outcome.BOUND_BROKEN, Outcome.NOT_RECOVERED})
CONFIG = "config.json"


def of_finding(run: Run, finding: Finding) -> str:
    """The path of the file as the run was given it; "" where the finding is anchored to none."""
    if finding.outcome in OF_A_PLAN and (plan := _option(run, "--plan")):
        return plan
    declared = finding.layer in DECLARED_THERE and finding.outcome in FOLLOWS
    return _model_file(run) if declared else ""


def uri(path: str) -> str:
    """A path as a URI: relative where it is relative, `file:///…` where it begins at the root."""
    posix = path.replace("\\", "/")
    encoded = quote(posix.encode("utf-8", "backslashreplace"))
    return f"file://{encoded}" if posix.startswith("/") else encoded.removeprefix("./")


def _model_file(run: Run) -> str:
    target = run.header.get("target")
    if not isinstance(target, dict):
        return ""
    address = str(target.get("address") or "")
    match target.get("scheme"):
        case "gguf" if address.lower().endswith(".gguf"):
            return address
        case "hf" if address.startswith(("/", "./", "../")):
            return address if address.endswith(".json") else str(PurePosixPath(address) / CONFIG)
    return ""


def _option(run: Run, name: str) -> str:
    """The value of an option on the command line; "" where it is not there."""
    argv: Sequence[str] = [str(word) for word in run.header.get("argv") or ()]
    for place, word in enumerate(argv):
        if word == name and place + 1 < len(argv):
            return argv[place + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""
