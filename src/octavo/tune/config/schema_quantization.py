"""`quantization`: the approach, and what each operator may become."""

from __future__ import annotations

import re
from typing import Any

from octavo.tune.config import values
from octavo.tune.config.schema_data import Dataloader
from octavo.tune.config.schema_train import Train
from octavo.tune.config.section import FLAG, Kind, by_name, checked, idle, section, word

_CALIBRATION = "dynamic quantization measures activations while the model runs, and calibrates none"
_STATIC_ONLY = "it is for static quantization's graph rewrites; Octavo has nothing to switch"
_SEARCHED = (
    "the search decides by measuring which layers stay float; name a layer in op_wise to keep it so"
)
_RANGES = "an activation's range is from its least value to its greatest"

APPROACHES = {
    "post_training_static_quant": "static",
    "post_training_dynamic_quant": "dynamic",
    "post_training_auto_quant": "auto",
}
_TRAINING = (
    "it trains the model, and Octavo does not train; use post_training_dynamic_quant, or train "
    "elsewhere and tune the result"
)
_PER_CHANNEL = (
    "an activation's channels are summed over, so they cannot have scales of their own (leave it "
    "out for one scale a row)"
)
_DTYPES = ("int8", "uint8", "fp32", "bf16", "fp16")


def _some_of(what: str, *known: str) -> Kind:
    return checked(values.many(values.one_of(what, *known), f"a list of {what}"))


def _regex(value: Any) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise values.wrong(
            value, f"a regular expression ({error})", "one that matches whole operator names"
        ) from None
    return str(value)


Weight = section(
    "Weight",
    optional={
        "granularity": _some_of("a granularity", "per_channel", "per_tensor"),
        "scheme": _some_of("a scheme", "asym", "sym", "asym_float"),
        "dtype": _some_of("a dtype", *_DTYPES),
        "algorithm": _some_of("an algorithm", "minmax", "kl"),
        "bit": idle(
            checked(values.many(values.number(0, 7, above=True), "a list of bits")),
            "Neural Compressor uses it for low-precision training only",
        ),
    },
)
Activation = section(
    "Activation",
    optional={
        "granularity": checked(
            values.many(
                values.either(
                    {"per_tensor": "per_tensor"}, {"per_channel": _PER_CHANNEL}, "a granularity"
                ),
                "a list of granularities",
            )
        ),
        "scheme": _some_of("a scheme", "asym", "sym"),
        "dtype": _some_of("a dtype", *_DTYPES),
        "compute_dtype": idle(
            _some_of("a dtype", "int8", "uint8", "fp32", "bf16", "None"),
            "activations are quantized to uint8 where they are quantized",
        ),
        "algorithm": idle(
            _some_of("an algorithm", "minmax", "kl", "placeholder", "percentile", "entropy"),
            _RANGES,
        ),
    },
)
Wise = section("Wise", optional={"weight": Weight, "activation": Activation})
Recipes = section(
    "Recipes",
    optional={
        **{
            key: idle(FLAG, _STATIC_ONLY)
            for key in (
                "scale_propagation_max_pooling",
                "scale_propagation_concat",
                "fast_bias_correction",
                "weight_correction",
            )
        },
        **{
            key: idle(FLAG, _SEARCHED)
            for key in (
                "first_conv_or_matmul_quantization",
                "last_conv_or_matmul_quantization",
                "pre_post_process_quantization",
                "ffn_matmul_quantization",
            )
        },
    },
)
Calibration = section(
    "Calibration",
    optional={
        "sampling_size": idle(
            checked(values.many(values.numeral(values.whole(1)), "a list of sizes")),
            _CALIBRATION,
            "static",
            "auto",
        ),
        "dataloader": idle(Dataloader, _CALIBRATION, "static", "auto"),
    },
)
QUANT_LEVEL = idle(word("a level", "auto", 0, 1), "the strategy says where the search starts")
Quantization = section(
    "Quantization",
    optional={
        "approach": checked(
            values.either(APPROACHES, {"quant_aware_training": _TRAINING}, "an approach")
        ),
        "train": idle(Train, "only quant_aware_training trains"),
        "advance": section(
            "Advance",
            optional={
                "bias_correction": idle(word("a correction", "weight_empirical"), _STATIC_ONLY)
            },
        ),
        "calibration": Calibration,
        "recipes": Recipes,
        "model_wise": Wise,
        "optype_wise": by_name(values.text, Wise),
        "op_wise": by_name(_regex, Wise),
        "quant_level": QUANT_LEVEL,
    },
)
