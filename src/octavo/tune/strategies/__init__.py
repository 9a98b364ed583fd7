"""Ways to search for a recipe, by name."""

from __future__ import annotations

from octavo.errors import OptionError, did_you_mean
from octavo.tune.search import Strategy
from octavo.tune.strategies.auto import Auto
from octavo.tune.strategies.basic import Basic
from octavo.tune.strategies.exhaustive import Exhaustive
from octavo.tune.strategies.mse import Mse
from octavo.tune.strategies.optuna_search import Bayesian, Tpe
from octavo.tune.strategies.random_search import Random

__all__ = ["STRATEGIES", "strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    way.name: way for way in (Auto, Basic, Mse, Random, Exhaustive, Bayesian, Tpe)
}
REFUSED = {
    "sigopt": (
        "it sends every trial to a commercial service and needs an account there; 'bayesian' and "
        "'tpe' search in the same manner on this machine"
    ),
}


def strategy(name: str) -> Strategy:
    """The strategy called `name`.

    Raises OptionError for an unknown one, for one that is refused, and where a library that it
    needs is not installed.
    """
    if name in REFUSED:
        raise OptionError(f"strategy {name!r} is refused: {REFUSED[name]}")
    if name not in STRATEGIES:
        raise OptionError(f"unknown strategy {name!r}.{did_you_mean(name, STRATEGIES)}")
    return STRATEGIES[name]()
