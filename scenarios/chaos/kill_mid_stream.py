"""The server dies while streams are open, once by SIGKILL and once in order (SIGTERM), and is started again.

No stream may pass for an answer that is none, and no client may be left without a word. How long it takes until the
server answers again is measured from its death on.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.deaths import aftermaths
from contextlab.analysis.loads import experiment, middle_third
from contextlab.analysis.open_streams import open_at
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Outcome

SIGNALS = ("KILL", "TERM")
HYPOTHESIS = ("errors < 1% after", "integrity = 100% after")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment for each signal; both share the control, and have streams open when the server dies."""
    start_s, length_s = middle_third(asked.duration_s)
    extra = open_at(start_s, known, asked)
    hypothesis = asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS)
    for word in SIGNALS:
        kill = Placed(name="kill", start_s=start_s, length_s=length_s, options={"signal": word})
        yield experiment(f"sig{word.lower()}", known, asked, kill, extra=extra, hypothesis=hypothesis)


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """How the open streams ended and when it answered again; what is wrong with them is judged of every experiment."""
    for found in aftermaths(trial):
        if not found.readings and not found.in_time:
            why = "nothing was under way when the server died: nothing can be said of open streams"
            yield Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=found.evidence)
        elif not found.hanging and not found.mistaken:
            yield Judgement(outcome=Outcome.OK, why=found.words, evidence=found.evidence)


SCENARIO = ChaosScenario(
    name="kill-mid-stream",
    summary="the server dies while streams are open, and comes back",
    plan=plan,
    judge=judge,
    needs=("process",),
    order=130,
)
