"""Neural Compressor's `common`: `Model`, `DataLoader` and `Metric`, as its scripts have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from octavo.errors import OptionError
from octavo.measure.data import array


def Model(root: Any, **ignored: Any) -> Any:  # noqa: N802 - the name that scripts have
    """Return `root` itself: a path, a ModelProto or an nn.Module."""
    return root


def Metric(metric_cls: Any, name: str = "user_metric", **options: Any) -> Any:  # noqa: N802
    """Return the metric for `Quantization.metric`: an object of the class `metric_cls`, or, for a
    metric's name, that name with its `options`."""
    return (metric_cls, options) if isinstance(metric_cls, str) else metric_cls(**options)


@dataclass
class DataLoader:
    """Batches of a data set whose samples are (inputs, label), by index or by iteration.

    Samples have no batch axis, but for `batch_size` None, where each is a batch already. Arrays and
    numbers of a batch are stacked along a new first axis; so are those in mappings and tuples.
    `collate_fn` is given the list of samples in place of that. `last_batch` is `rollover`, or
    `discard` to leave out a smaller last batch. Other options of Neural Compressor's are refused
    where they change the data.
    """

    dataset: Any
    batch_size: int | None = 1
    collate_fn: Callable[[list[Any]], Any] | None = None
    last_batch: str = "rollover"
    sampler: Any = None
    batch_sampler: Any = None
    num_workers: int = 0
    pin_memory: bool = False
    shuffle: bool = False
    distributed: bool = False

    def __post_init__(self) -> None:
        problem = ""
        if self.batch_size is not None and self.batch_size < 1:
            problem = f"batch_size={self.batch_size!r}: give 1 or more"
        if self.last_batch not in ("rollover", "discard"):
            problem = f"last_batch={self.last_batch!r}; allowed: rollover, discard"
        if self.sampler or self.batch_sampler or self.distributed:
            problem = (
                "sampler, batch_sampler and distributed are not done here: leave them out, or give "
                "any iterable of (inputs, label) in place of the DataLoader"
            )
        if problem:
            raise OptionError(f"DataLoader: {problem}")

    def __iter__(self) -> Iterator[Any]:
        data = self.dataset
        indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
        samples = (data[at] for at in range(len(data))) if indexed else iter(data)
        if self.batch_size is None:
            yield from samples
            return
        while some := list(islice(samples, self.batch_size)):
            if len(some) == self.batch_size or self.last_batch == "rollover":
                yield stacked(some) if self.collate_fn is None else self.collate_fn(some)


def stacked(samples: list[Any]) -> Any:
    """Return the samples as one batch."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: stacked([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        return tuple(stacked(list(parts)) for parts in zip(*samples, strict=True))
    if first is None or isinstance(first, (str, bytes)):
        return None if first is None else samples
    return array([array(sample) for sample in samples])
