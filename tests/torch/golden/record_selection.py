"""Writes selection.json: which modules torch.ao 2.13 converts for which qconfig_spec, and how.

`python -m tests.torch.golden.record_selection`. Cases map the names of converted modules to how
their weight is held: "int8 per tensor", "int8 per channel", "float16", "uint8 rows".
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.torch.golden.selection_cases import CASES

WEIGHTS = ("dict-name", "dict-type")
PATH = Path(__file__).with_name("selection.json")


def how(module: Any) -> str:
    """How a module of torch.ao holds its weight."""
    name = type(module).__name__
    if name in ("Embedding", "EmbeddingBag"):
        return "uint8 rows"
    if name == "Linear":
        weight = module.weight()
    elif name.endswith("Cell"):
        weight = module.get_weight()["weight_ih"]
    else:
        weight = module.get_weight()["weight_ih_l0"]
    if not weight.is_quantized:
        return "float16"
    per = "channel" if weight.qscheme() in (torch.per_channel_affine,) else "tensor"
    return f"int8 per {per}"


def main() -> None:
    """Records all cases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.ao.quantization as ao

        q = SimpleNamespace(
            default=ao.default_dynamic_qconfig,
            per_channel=ao.per_channel_dynamic_qconfig,
            float16=ao.float16_dynamic_qconfig,
            float_qparams=ao.float_qparams_weight_only_qconfig,
            mapping=ao.get_default_dynamic_quant_module_mappings,
        )
        found: dict[str, dict[str, str]] = {}
        weights: dict[str, Any] = {}
        for name, case in CASES.items():
            model, arguments = case(q)
            quantized = ao.quantize_dynamic(model, **arguments)
            found[name] = {
                path: how(module)
                for path, module in quantized.named_modules()
                if "torch.ao.nn.quantized" in type(module).__module__
                and hasattr(type(module), "from_float")
                and type(module).__name__ != "LinearPackedParams"
            }
            if name in WEIGHTS:
                weight = quantized.encoder[0].weight()
                channel = weight.qscheme() is torch.per_channel_affine
                weights[name] = {
                    "q": weight.int_repr().tolist(),
                    "scale": weight.q_per_channel_scales().tolist()
                    if channel
                    else weight.q_scale(),
                }
    data = {"torch": torch.__version__, "cases": found, "encoder.0": weights}
    PATH.write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main()
