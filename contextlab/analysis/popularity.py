"""Loads in which some requests come again and again, so that a cache in front of the target has something to do. Pure.

How often a request comes follows its rank by Zipf's law: rank r has the weight 1/r^exponent. Requests for pages do,
with exponents from 0.6 to 0.9 (Breslau et al. 1999).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from contextlab.analysis.loads import usual_load, usual_mix
from contextlab.analysis.prompts import role_of, usual_api
from contextlab.experiment import Asked, Load, Mixed
from contextlab.model import Knowledge, Message

EXPONENT = 0.9
SUBJECTS = (
    *("France", "Norway", "Japan", "Egypt", "Chile", "Kenya", "Canada", "India", "Poland", "Greece", "Peru", "Vietnam"),
    *("Ireland", "Ghana", "Nepal", "Austria", "Cuba", "Iran", "Spain", "Mali", "Finland", "Oman", "Laos", "Bolivia"),
)


def popular_mix(known: Knowledge, reply_tokens: int, rng: Random) -> tuple[Mixed, ...]:
    """One short prompt for each subject, the most popular first; the seed decides which subject has which rank."""
    api = usual_api(known)
    model = usual_mix(known, reply_tokens)[0].request
    return tuple(
        Mixed(
            request=replace(
                model,
                name=f"about-{subject.lower()}",
                messages=(Message(role=role_of(api), parts=(f"The capital of {subject} is",)),),
            ),
            weight=round(1 / rank**EXPONENT, 6),
        )
        for rank, subject in enumerate(rng.sample(SUBJECTS, len(SUBJECTS)), 1)
    )


def popular_load(known: Knowledge, asked: Asked, mix: tuple[Mixed, ...], *, rate_per_s: float) -> Load:
    """The usual load with these prompts at this rate; what the user asked for wins."""
    return usual_load(known, replace(asked, mix=mix, rate_per_s=asked.rate_per_s or rate_per_s))


def answer_s(known: Knowledge, reply_tokens: int, prompt_tokens: int = 8) -> float:
    """Seconds that the target takes for one short answer alone, by its own speeds."""
    return reply_tokens / (known.decode_tokens_per_s or 20.0) + prompt_tokens / (known.prefill_tokens_per_s or 100.0)
