"""Optuna's multi-objective samplers in the place of our own race, by ask and tell (extra `optuna`).

Optuna chooses the settings and knows no repeats: each of its trials is one evaluation. What is on the frontier for sure
is concluded from all of them as from any other sweep, so points that it visits once stay undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from contextlab.analysis.axes import Axis, config_hash
from contextlab.analysis.frontier import Direction, Status
from contextlab.analysis.racing import Result, Task
from contextlab.analysis.sweeps import Sweep
from contextlab.model import Settings, UnableError


class OptunaSearch:
    """Asks Optuna (TPE, seeded) for settings of the axes' own values until the budget is used up.

    Raises UnableError where Optuna is not installed.
    """

    def __init__(
        self, sweep: Sweep, configs: Sequence[Settings], *, left_s: Callable[[], float], expected_s: float
    ) -> None:
        try:
            import optuna
        except ImportError:
            raise UnableError("optuna is not installed", "install it: pip install 'contextlab[optuna]'") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        self._sweep, self._left_s, self._expected_s = sweep, left_s, expected_s
        ways: Any = ["maximize" if goal.direction is Direction.UP else "minimize" for goal in sweep.goals]
        self._study: Any = optuna.create_study(directions=ways, sampler=optuna.samplers.TPESampler(seed=sweep.seed))
        self._open: dict[str, Any] = {}
        self._costs: list[float] = []
        self._num_asked = 0
        self._num_told = 0
        self._most = 4 * len(configs)

    def ask(self) -> list[Task]:
        """One setting, while there is time for one more."""
        cost_s = sum(self._costs) / len(self._costs) if self._costs else self._expected_s
        if self._left_s() < cost_s or self._num_told >= self._most:
            return []
        trial = self._study.ask()
        settings = {axis.name: _suggested(trial, axis) for axis in self._sweep.axes}
        self._open[config_hash(settings)] = trial
        self._num_asked += 1
        return [Task(settings=settings, block=self._num_asked)]

    def tell(self, results: Sequence[Result]) -> None:
        """What came of it; results of a run that was cut off count as trials too."""
        for result in results:
            self._costs.append(result.cost)
            self._num_told += 1
            trial = self._open.pop(config_hash(result.settings), None)
            usable = result.status is Status.OK
            if trial is not None:
                failed = self._optuna.trial.TrialState.FAIL
                self._study.tell(trial, list(result.values) if usable else None, state=None if usable else failed)
            elif usable:
                self._study.add_trial(self._past(result))

    def _past(self, result: Result) -> Any:
        distributions = {
            axis.name: self._optuna.distributions.CategoricalDistribution(list(axis.values))
            for axis in self._sweep.axes
        }
        return self._optuna.trial.create_trial(
            params=dict(result.settings), distributions=distributions, values=list(result.values)
        )


def _suggested(trial: Any, axis: Axis) -> Any:
    return trial.suggest_categorical(axis.name, list(axis.values))
