"""Every error that Octavo raises on purpose.

    OctavoError
    ├── ModelError                the input model cannot be read or handled
    │   └── AlreadyQuantizedError it holds quantized layers already
    ├── RecipeError               a recipe names what does not exist
    ├── ConfigError               a tuning configuration is wrong, or asks for what is not done
    ├── OptionError               an argument or extra option is unknown, refused or contradictory
    ├── NothingQuantizedError     the result would be the float model
    ├── VerificationError         the quantized model does not load, is not finite or is too far off
    ├── OutputError               the output cannot be written
    ├── InputDataError            inputs for the check cannot be read or do not fit the model
    ├── EvaluationError           the accuracy of the unmodified model cannot be measured
    ├── HistoryError              a search cannot be resumed from its workspace
    └── NotTrainableError         a gradient is asked of a quantized layer

A message names the part (file, node, key), the value, what is allowed and what to do. Whatever is
raised, the input is as it was and no partial output is left.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OctavoError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 1


class ModelError(OctavoError):
    """The input model cannot be read or handled."""

    exit_code = 3


class AlreadyQuantizedError(ModelError):
    """The model holds quantized layers already."""


class RecipeError(OctavoError, ValueError):
    """A recipe, preset, layer name or operator type does not exist or contradicts another."""

    exit_code = 2


class TooFewBitsError(RecipeError):
    """Even the smallest way to hold each layer takes more than a mix allows: `least` bytes."""

    def __init__(self, text: str, least: int = 0) -> None:
        super().__init__(text)
        self.least = least


class ConfigError(OctavoError, ValueError):
    """A tuning configuration has unknown keys or values, or asks for what Octavo does not do."""

    exit_code = 2


class OptionError(OctavoError, ValueError):
    """An argument or extra option is unknown, refused or contradictory."""

    exit_code = 2


class NothingQuantizedError(OctavoError):
    """No layer would be quantized."""

    exit_code = 4


class VerificationError(OctavoError):
    """The quantized model does not load, gives non-finite numbers or is too far from the float one.

    `layer` is the name of the layer to look at first, where one could be told.
    """

    exit_code = 5

    def __init__(self, message: str, layer: str | None = None) -> None:
        super().__init__(message)
        self.layer = layer


class OutputError(OctavoError, OSError):
    """The output cannot be written."""

    exit_code = 6


class InputDataError(OctavoError, ValueError):
    """Inputs for the check cannot be read or do not fit the model."""

    exit_code = 2


class EvaluationError(OctavoError):
    """The accuracy of the unmodified model cannot be measured; its traceback is in the message."""

    exit_code = 9


class HistoryError(OctavoError, ValueError):
    """A search cannot be resumed from its workspace, or another one is using it."""

    exit_code = 2


class NotTrainableError(OctavoError, RuntimeError):
    """A gradient is asked of a quantized layer."""


SOMETHING_MISSING = 7
"""What the command line returns where something that is needed is not installed."""
INTERRUPTED = 130
"""What the command line returns for Ctrl-C."""

MOST_NAMED = 10
"""Names that a message lists: more are not read."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an "unknown X" message: the near misses first, then what exists."""
    known = sorted(set(known))
    return f"{suggest(name, known)} Known: {listed(known) or '(none)'}."


def listed(names: Iterable[object], limit: int = MOST_NAMED) -> str:
    """List names as `a, b, c`; a long list is cut after `limit` names, and says `and 37 more`."""
    known = [*map(str, names)]
    more = len(known) - limit
    return ", ".join(known[:limit]) + (f" and {more:,} more" if more > 0 else "")


def suggest(name: str, known: Iterable[str], suffix: str = "") -> str:
    """Return ` Did you mean 'a' or 'b'?`, or nothing where no known name is like `name`.

    `suffix` is shown behind the names, and does not make them alike.
    """
    near = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(n + suffix) for n in near)}?" if near else ""


def brief(error: BaseException, limit: int = 300) -> str:
    """Return the text of another library's error on one line, cut where it is long.

    An error without a text gives its type.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[:limit] + " ..."


def typed(error: BaseException) -> str:
    """Return the text of `brief`, behind the error's type: `KeyError: 'x'`."""
    kind, text = type(error).__name__, brief(error)
    return kind if text == kind else f"{kind}: {text}"
