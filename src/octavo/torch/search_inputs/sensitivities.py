"""How much a model's outputs suffer from fewer bits in each layer, without data.

    outputs for made-up inputs -> a random direction of them -> its gradient for each weight
    loss of a layer, held in some way = sum (gradient x what rounding changes)^2

That is what rounding errors, which have signs like coins, do to outputs on average: one backward
pass tells it of all layers. Of logits the direction is the score of a drawn token, so that the
loss is the divergence of what the model predicts (its Fisher information).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.group_rounding import round_groups
from octavo.core.kernels import WeightFormat
from octavo.errors import InputDataError, OctavoError, brief
from octavo.recipe.bit_budget import WAYS, mixes
from octavo.torch.memory import float32
from octavo.torch.replace.convert import twin
from octavo.torch.replace.inventory import ModuleLayer, is_transposed
from octavo.torch.run.calls import Caller, named_tensors
from octavo.torch.search_inputs.input_statistics import feeds_of

_PASSES = 2  # over all inputs, each in other directions
_FEWEST = min(held.group for held in WAYS)


def sensitivities(
    model: nn.Module,
    parts: Sequence[ModuleLayer],
    inputs: Iterable[Any] | None = None,
    seed: int = 0,
) -> tuple[dict[str, tuple[float, ...]], list[str]]:
    """Return, by the names of those `parts` that a mix is for, their losses in each of its ways.

    The other list has the names of those on which no output depends for these inputs.

    `inputs` are as `InputStatistics` takes them; None makes them up. Weights are read, never
    written. Raises InputDataError where nothing could be measured, and says why.
    """
    caller = Caller(model)
    twin_model = twin(model)
    with torch.inference_mode(False):
        weights = _Weights(twin_model, [part for part in parts if mixes(part.layer)])
        feeds = feeds_of(twin_model, caller, inputs, seed)
        try:
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                for feed in [*feeds] * _PASSES:
                    positional, keywords = caller.arguments(feed)
                    score = _score(twin_model(*positional, **keywords))
                    score.backward(inputs=weights.parameters)
        except OctavoError:
            raise
        except Exception as error:
            raise InputDataError(f"sensitivities: no gradients: {brief(error)}") from error
    return weights.losses(_PASSES * len(feeds)), weights.unreached()


# docs/notes/rounding.md: "Losses come from one backward pass"
def _score(outputs: Any) -> Tensor:
    """Return a number whose squared gradient is on average the loss of a change in weights."""
    logits = getattr(outputs, "logits", None)
    if isinstance(logits, Tensor) and logits.dim() == 3:
        scores = torch.log_softmax(logits.float(), -1).flatten(0, -2)
        drawn = torch.multinomial(scores.detach().exp(), 1)
        return scores.gather(1, drawn).sum() / len(scores) ** 0.5
    found = [t for _, t in named_tensors(outputs) if t.is_floating_point() and t.requires_grad]
    if not found:
        raise InputDataError("sensitivities: no output depends on weights by differentiation")
    sizes = [torch.linalg.vector_norm(t.detach()).clamp_min(1e-30) for t in found]
    parts = [(t * torch.randn_like(t)).sum() / size for t, size in zip(found, sizes, strict=True)]
    return torch.stack(parts).sum()


class _Weights:
    """The weights of some layers of `model`, and what gradients say of them.

    In the model's place of each stands a parameter over the same memory, whose gradient goes into
    the losses as soon as it is there.
    """

    def __init__(self, model: nn.Module, parts: Sequence[ModuleLayer]) -> None:
        self._changes: dict[int, list[Tensor]] = {}
        self._losses: dict[int, Tensor] = {}
        self._of: dict[str, int] = {}
        self._reached: set[int] = set()
        made: dict[int, nn.Parameter] = {}
        for part in parts:
            module = model.get_submodule(part.module)
            weight = module._parameters.get("weight")
            if weight is None or weight.dim() != 2 or not weight.is_floating_point():
                continue
            if id(weight) not in made:
                made[id(weight)] = self._watched(weight, is_transposed(module))
            module._parameters["weight"] = made[id(weight)]
            self._of[part.layer.name] = id(made[id(weight)])
        self.parameters = list(made.values())

    def _watched(self, weight: Tensor, turned: bool) -> nn.Parameter:
        made = nn.Parameter(weight.detach())
        key = id(made)
        self._changes[key] = list(_changes(weight.t() if turned else weight))
        self._losses[key] = torch.zeros(len(WAYS), dtype=torch.float64)

        def count(parameter: Tensor) -> None:
            gradient = parameter.grad
            assert gradient is not None
            power = _in_groups((gradient.t() if turned else gradient).float().square())
            found = [float((power * change).sum()) for change in self._changes[key]]
            self._reached.add(key)
            self._losses[key] += torch.tensor(found, dtype=torch.float64)
            parameter.grad = None

        made.register_post_accumulate_grad_hook(count)
        return made

    def losses(self, count: int) -> dict[str, tuple[float, ...]]:
        """Return the losses by layer; of layers that share a weight the first one has all of it."""
        found: dict[str, tuple[float, ...]] = {}
        seen: set[int] = set()
        for name, key in self._of.items():
            if key not in self._reached:
                continue
            once = self._losses[key] / count if key not in seen else self._losses[key] * 0
            found[name] = tuple(float(f"{loss:.4g}") for loss in once.tolist())
            seen.add(key)
        if not any(map(any, found.values())):
            raise InputDataError("sensitivities: outputs depend on no weight")
        return found

    def unreached(self) -> list[str]:
        """List the layers for whose weights there was no gradient."""
        return [name for name, key in self._of.items() if key not in self._reached]


def _changes(weight: Tensor) -> Iterator[Tensor]:
    """Yield, for each way of a mix, by short groups the mean square of what rounding changes."""
    values = float32(weight)
    for held in WAYS:
        rounded = round_groups(values, WeightFormat.grouped(*held)).weight
        off = torch.from_numpy(values - rounded.dequantize())
        yield _in_groups(off.square()) / _FEWEST


def _in_groups(x: Tensor) -> Tensor:
    """Sum `x` [n, k] over groups of inputs."""
    padded = nn.functional.pad(x, (0, -x.shape[1] % _FEWEST))
    return padded.unflatten(1, (-1, _FEWEST)).sum(2)
