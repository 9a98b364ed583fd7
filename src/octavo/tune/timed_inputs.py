"""What the runs are that a search times, in words."""

from __future__ import annotations

import numpy as np

from octavo.errors import OctavoError
from octavo.results.words import clean, count
from octavo.tune.tasks import Setting


def timed_inputs(setting: Setting) -> str:
    """`input_ids 32x37, 1 thread`; nothing where no input can be had, which is said later."""
    try:
        feeds = setting.timed_feeds
    except OctavoError:
        return ""
    each = [
        ", ".join(
            f"{clean(name)} {'x'.join(map(str, np.shape(value))) or 'scalar'}"
            for name, value in feed.items()
        )
        for feed in feeds
    ]
    threads = setting.target.threads
    return "; ".join(each) + ("" if threads is None else f", {count(threads, 'thread')}")
