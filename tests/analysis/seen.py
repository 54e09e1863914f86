"""Exchanges and observations made by hand, for the judges' tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contextlab.analysis.prompts import marked
from contextlab.model import (
    Exchange,
    Failure,
    Knowledge,
    Limits,
    Observation,
    Probe,
    ProcessEnd,
    Usage,
)

KNOWN = Knowledge(
    flavour="llama-server",
    model="m",
    limits=Limits(context_tokens=512),
    powers=frozenset({"completions", "window", "serves-many"}),
    neighbour_text="as it was",
    neighbour_stable=True,
)
CHILD_DONE = ProcessEnd(exit_code=0)
REFUSAL = "request (600 tokens) exceeds the available context size (512 tokens), try increasing it"


def exchange(ask: str = "HEAD", sent: int = 600, **fields: Any) -> Exchange:
    """An answered exchange of a marked prompt of `sent` tokens, all of which were read; `fields` change that."""
    made = Exchange(
        request=marked(f"ask:{ask}", sent, ask, seed=1),
        prompt_tokens=sent,
        exact=True,
        due_s=1.0,
        sent_s=1.0,
        token_s=(1.5, 1.6),
        ended_s=1.7,
        status=200,
        text="something else",
        finish_reason="stop",
        usage=Usage(prompt_tokens=sent, completion_tokens=2),
        done=True,
    )
    return replace(made, **fields)


def recalling(ask: str, sent: int = 600, *, read: int | None = None, back: bool = True) -> Exchange:
    """An exchange whose code came back or not, of a prompt of which `read` tokens were read."""
    made = exchange(ask, sent)
    text = f" {made.request.expects}." if back else " nothing of the kind"
    return replace(made, text=text, usage=Usage(prompt_tokens=sent if read is None else read, completion_tokens=4))


def failed(
    where: str, message: str = REFUSAL, *, status: int | None = None, sent: int = 600, **fields: Any
) -> Exchange:
    """An exchange that failed."""
    failure = Failure(where=where, message=message, status=status, **fields)
    return exchange(
        sent=sent,
        failure=failure,
        status=status,
        done=False,
        finish_reason=None,
        usage=None,
        text="",
        token_s=(),
    )


def observation(*exchanges: Exchange, **fields: Any) -> Observation:
    """An observation of these exchanges whose child ended well."""
    return Observation(exchanges=exchanges, **{"knowledge": KNOWN, "client": CHILD_DONE, **fields})


PROBE = Probe(name="p", about={"control_HEAD": 1, "control_MIDDLE": 1, "control_TAIL": 1})
