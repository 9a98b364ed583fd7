"""Float modules and what quantizers make of them, to be measured side by side in one process."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.runner import attempt
from octavo.core.kernels.weight import quantize_weight
from octavo.core.qparams import Grid, QType

if TYPE_CHECKING:
    import torch

FLOAT = "float"
AO, AO_CHANNEL = "torch.ao", "torch.ao per channel"
OCTAVO, ACCURATE, HALF = "octavo int8", "octavo int8-accurate", "octavo float16"
FOUR = (FLOAT, AO, AO_CHANNEL, OCTAVO)


def quantized(name: str, model: torch.nn.Module, inplace: bool = False) -> torch.nn.Module:
    """What the quantizer `name` makes of `model`, which is left as it is unless `inplace`."""
    if name == FLOAT:
        return model
    if name in (AO, AO_CHANNEL):
        return _torch_ao(model, name == AO_CHANNEL, inplace)
    import torch

    options = {OCTAVO: {}, ACCURATE: {"recipe": "int8-accurate"}, HALF: {"dtype": torch.float16}}
    made: torch.nn.Module
    made = front_end().quantize_dynamic(model, inplace=inplace, **options[name])
    return made


def _torch_ao(model: torch.nn.Module, per_channel: bool, inplace: bool) -> torch.nn.Module:
    """`torch.ao.quantization.quantize_dynamic` of the layers that it quantizes by default."""
    import torch

    spec = None
    if per_channel:
        kinds = (torch.nn.Linear, torch.nn.LSTM, torch.nn.GRU, torch.nn.LSTMCell, torch.nn.GRUCell)
        spec = dict.fromkeys(kinds, torch.ao.quantization.per_channel_dynamic_qconfig)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated since 2.10, and still what there is
        made: torch.nn.Module = torch.ao.quantization.quantize_dynamic(model, spec, inplace=inplace)
    return made


def every(
    names: Iterable[str], model: torch.nn.Module
) -> tuple[dict[str, torch.nn.Module], dict[str, str]]:
    """The modules by name, and of those that could not be made the reason."""
    return attempt(names, lambda name: quantized(name, model))


def rounded(model: torch.nn.Module) -> torch.nn.Module:
    """A float copy whose Linear and recurrent weights are those of `OCTAVO`: int8 times scale."""
    import torch

    kinds = (torch.nn.Linear, torch.nn.RNNBase, torch.nn.RNNCellBase)
    made = copy.deepcopy(model)
    with torch.no_grad():
        for module in made.modules():
            for weight in module.parameters(False) if isinstance(module, kinds) else ():
                if weight.dim() == 2:
                    found = quantize_weight(weight.numpy(), Grid.of(QType.INT8, symmetric=True), 0)
                    exact = found.q * np.asarray(found.qparams.scale).reshape(-1, 1)
                    weight.copy_(torch.from_numpy(exact))
    return made


def held(module: torch.nn.Module) -> tuple[int, int, str]:
    """Layers that Octavo quantized, all that it knows of, and the names of those left float."""
    layers = front_end().report(module).layers
    left = [outcome.layer.name for outcome in layers if not outcome.quantized]
    return len(layers) - len(left), len(layers), ", ".join(left)


def front_end() -> Any:
    """`octavo.torch`, which loads PyTorch."""
    return importlib.import_module("octavo.torch")
