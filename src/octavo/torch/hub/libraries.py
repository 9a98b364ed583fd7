"""Other libraries, kept from talking while they work for us."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

_LOGGERS = ("torch.onnx", "torch.export", "transformers")


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Without the bars, deprecations and advice that loading and tracing a model brings along.

    What is wrong comes as an exception.
    """
    from transformers.utils import logging as of_transformers

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    bars = of_transformers.is_progress_bar_enabled()
    of_transformers.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (FutureWarning, DeprecationWarning, UserWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
        if bars:
            of_transformers.enable_progress_bar()
