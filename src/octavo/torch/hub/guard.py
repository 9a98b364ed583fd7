"""Has `transformers` stop at a folder of Octavo's where Octavo is not imported.

It would only warn of a method that it does not know, and fill weights that it does not find with
random numbers. Two tensors that Octavo passes over prevent that. One has the name of a float weight
and another size, which `transformers` takes for an error. The name of the other one says what is to
be done: it stands in the report that `transformers` prints before that error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from octavo.torch.layers.half_linear import QuantizedHalfLinear
from octavo.torch.layers.linear import QuantizedLinear

ADVICE = "TO LOAD THIS FOLDER: install Octavo, and import octavo.torch before from_pretrained"
"""The second one's name."""

GUARD_KEY = "octavo.guard"
"""An entry of each file's metadata: the first one's name."""


def guards(model: Any) -> dict[str, Tensor]:
    """Return what a folder of `model` holds besides its state, the one named as a weight first.

    Nothing where no linear layer is quantized: there is no such name that is sure to be read.
    """
    for name, module in model.named_modules():
        if isinstance(module, (QuantizedLinear, QuantizedHalfLinear)):
            return {f"{name}.weight": torch.zeros(1), ADVICE: torch.zeros(1)}
    return {}


def pass_over(model: Any, metadata: Mapping[str, str]) -> None:
    """Has `transformers` not speak of them; `metadata` is that of the folder's files.

    A head has its model under a prefix, or has not, whatever the name was in the folder.
    """
    if GUARD_KEY not in metadata:
        return
    name = metadata[GUARD_KEY].removeprefix(f"{model.base_model_prefix}.")
    known = set(model._keys_to_ignore_on_load_unexpected or ())
    guarded = {rf"(^|\.){re.escape(name)}$", re.escape(ADVICE)}
    model._keys_to_ignore_on_load_unexpected = known | guarded
