"""What samples tell of a linear layer's inputs: their mean squares, or their mean products.

    inputs -> a twin of the float model, hooks on its linear layers -> mean x^2 [k], or x x^T [k, k]

Products of a large layer take as much memory as its weight. They are therefore collected for some
layers at a time, in the order in which these are quantized, and dropped when the next ones follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from octavo.errors import InputDataError, brief
from octavo.results.target import Feed
from octavo.torch.replace.convert import twin
from octavo.torch.run.calls import Caller
from octavo.torch.run.made_up import made_up

Float32 = npt.NDArray[np.float32]

_ROOM = 512 << 20  # bytes of products that are held at a time


class InputStatistics:
    """Statistics of what comes to some linear layers of `model` for the samples `inputs`.

    `modules` has the dotted names of the layers' modules by the layers' names, in the order in
    which they are asked for. An input is what forward takes: a mapping by the names of its
    parameters, a tuple of positional ones, or the only one, tensors or NumPy arrays. Where it has
    an attention_mask [batch, tokens], padding does not count. None makes inputs up. With `products`
    the statistics are mean products, else mean squares. Raises InputDataError where there are no
    inputs, and when the model fails on one.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Mapping[str, str],
        inputs: Iterable[Any] | None,
        products: bool,
    ) -> None:
        self._caller = Caller(model)
        self._model = twin(model)
        self._feeds = feeds_of(self._model, self._caller, inputs)
        found = dict(self._model.named_modules())
        self._layers = {name: found[module] for name, module in modules.items()}
        self._products = products
        self._means: dict[str, Float32] = {}
        self.unreached: list[str] = []
        """Layers that were asked for and to which no input came."""

    @property
    def count(self) -> int:
        """Samples."""
        return len(self._feeds)

    def of(self, name: str) -> Float32 | None:
        """Return the layer's mean squares [k] or mean products [k, k]; None if no input came."""
        if name in self._layers:
            self._collect(self._batch(name))
        return self._means.pop(name, None)

    def _batch(self, name: str) -> list[str]:
        """List the layer and those after it, as many as there is room for."""
        names = list(self._layers)
        some: list[str] = []
        room = _ROOM
        for other in names[names.index(name) :]:
            k = max(self._layers[other].weight.shape)  # at most: a weight may be [k, n]
            room -= 4 * k * k if self._products else 0
            if some and room < 0:
                break
            some.append(other)
        return some

    def _collect(self, names: Sequence[str]) -> None:
        means = {name: _Mean(self._products) for name in names}
        last: dict[str, Any] = {}
        hooks = [
            self._layers.pop(name).register_forward_pre_hook(
                _counting(means[name], last), with_kwargs=True
            )
            for name in names
        ]
        try:
            for number, feed in enumerate(self._feeds):
                last.clear()
                last["mask"] = _mask(feed)
                self._run(number, feed)
        finally:
            for hook in hooks:
                hook.remove()
        self._means |= {name: mean.value(name) for name, mean in means.items() if mean.count}
        self.unreached += [name for name, mean in means.items() if not mean.count]

    def _run(self, number: int, feed: Feed) -> None:
        try:
            with torch.inference_mode():
                positional, keywords = self._caller.arguments(feed)
                self._model(*positional, **keywords)
        except InputDataError:
            raise
        except Exception as error:
            raise InputDataError(
                f"inputs: the float model fails on item {number}: {brief(error)}"
            ) from error


class _Mean:
    """A mean over rows that come in parts."""

    def __init__(self, products: bool) -> None:
        self.products = products
        self.count = 0
        self._sum: Tensor | float = 0.0

    def add(self, total: Tensor, count: int) -> None:
        self._sum = self._sum + total
        self.count += count

    def value(self, name: str) -> Float32:
        assert isinstance(self._sum, Tensor)
        found: Float32 = (self._sum / self.count).numpy()
        if not np.isfinite(found).all():
            raise InputDataError(f"inputs: what comes to {name} holds NaN or infinity")
        return found


def _counting(mean: _Mean, last: dict[str, Any]) -> Any:
    """Make the hook that adds a layer's input to `mean`; layers over one tensor share the sum."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs.get("input")
        if not isinstance(x, Tensor) or not x.is_floating_point() or not x.numel():
            return
        if last.get("x") is not x:
            rows = _rows(x, last["mask"])
            total = rows.T @ rows if mean.products else rows.square().sum(0)
            last.update(x=x, total=total, count=len(rows))
        mean.add(last["total"], last["count"])

    return hook


def _rows(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the rows [.., k] of `x` that `mask` keeps, float32 [rows, k]."""
    if mask is not None and x.shape[:-1] == mask.shape:
        x = x[mask]
    return x.detach().reshape(-1, x.shape[-1]).float()


def _mask(feed: Feed) -> Tensor | None:
    mask = feed.get("attention_mask")
    if mask is None:
        return None
    found = torch.as_tensor(mask)
    return found.bool() if found.dim() == 2 and not found.is_floating_point() else None


def feeds_of(
    model: nn.Module, caller: Caller, inputs: Iterable[Any] | None, seed: int = 0
) -> list[Feed]:
    """Return what `model` is called with for each of `inputs`; None makes some up.

    Raises InputDataError where there are none, and where none could be made up.
    """
    if inputs is None:
        return made_up(model, lambda feed: caller.run(model, feed), caller, {}, {}, seed)
    feeds = [_as_feed(item) for item in inputs]
    if not feeds:
        raise InputDataError("inputs: there are none; give at least one")
    return feeds


def _as_feed(item: Any) -> Feed:
    """Return forward's arguments by name or position, from a mapping, a tuple or a single one."""
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, (tuple, list)):
        return {str(i): value for i, value in enumerate(item)}
    return {"0": item}
