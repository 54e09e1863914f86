"""Optuna's multi-objective samplers in the place of our own race, by ask and tell (extra `optuna`).

Optuna chooses the settings and knows no repeats: each of its trials is one evaluation. What is on the frontier for sure
is concluded from all of them as from any other sweep, so points that it visits once stay undecided. Its samplers are
seeded: told the results of a search that was killed, one here asks for the same settings again before it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextlab.analysis.axes import Axis, config_hash
from contextlab.analysis.frontier import Direction, Status
from contextlab.analysis.racing import Result, Task
from contextlab.analysis.sweeps import Sweep
from contextlab.model import Settings, UnableError, UsageError


class OptunaSearch:
    """Asks Optuna (TPE, seeded) for settings of the axes' own values until `budget_s` is used up.

    Raises UnableError where Optuna is not installed, UsageError where the budget does not reach for one evaluation.
    """

    def __init__(self, sweep: Sweep, configs: Sequence[Settings], *, budget_s: float, expected_s: float) -> None:
        try:
            import optuna
        except ImportError:
            raise UnableError("optuna is not installed", "install it: pip install 'contextlab[optuna]'") from None
        if budget_s < expected_s:
            message = f"budget={budget_s:g} s: one evaluation takes about {expected_s:g} s"
            raise UsageError(message, "give a larger budget, or shorter evaluations")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        self._sweep, self._budget_s, self._expected_s = sweep, budget_s, expected_s
        ways: Any = ["maximize" if goal.direction is Direction.UP else "minimize" for goal in sweep.goals]
        self._study: Any = optuna.create_study(directions=ways, sampler=optuna.samplers.TPESampler(seed=sweep.seed))
        self._open: dict[str, Any] = {}
        self._costs: list[float] = []
        self._num_asked = 0
        self._most = 4 * len(configs)

    def ask(self) -> list[Task]:
        """One setting, while there is time for one more."""
        cost_s = sum(self._costs) / len(self._costs) if self._costs else self._expected_s
        if self._budget_s - sum(self._costs) < cost_s or len(self._costs) >= self._most:
            return []
        return [self._asked()]

    def _asked(self) -> Task:
        trial = self._study.ask()
        settings = {axis.name: _suggested(trial, axis) for axis in self._sweep.axes}
        self._open[config_hash(settings)] = trial
        self._num_asked += 1
        return Task(settings=settings, block=self._num_asked)

    def tell(self, results: Sequence[Result]) -> None:
        """What came of it. Raises UsageError for results of a search that was another one."""
        for result in results:
            key = config_hash(result.settings)
            if key not in self._open and config_hash(self._asked().settings) != key:
                raise UsageError(
                    f"settings={dict(result.settings)}: Optuna would not have asked for it here",
                    "resume with the same words, and the same version of Optuna",
                )
            trial, usable = self._open.pop(key), result.status is Status.OK
            failed = self._optuna.trial.TrialState.FAIL
            self._study.tell(trial, list(result.values) if usable else None, state=None if usable else failed)
            self._costs.append(result.cost)


def _suggested(trial: Any, axis: Axis) -> Any:
    return trial.suggest_categorical(axis.name, list(axis.values))
