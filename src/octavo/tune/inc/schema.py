"""A configuration of Neural Compressor 1.x, whole: every key, and what it may be.

What Octavo does not do is known here all the same: such keys are refused by name, with the reason,
or said to be idle (`sections.Key`). What an idle key or section holds is not looked at.
"""

from __future__ import annotations

from typing import Any

from octavo.recipe import patterns
from octavo.tune.inc.metrics import METRICS
from octavo.tune.inc.sections import ByName, Kind, idle, needed
from octavo.tune.inc.values import (
    NUMBERS,
    POSITIVE,
    anything,
    count_or_all,
    either,
    flag,
    flag_or_text,
    many,
    names,
    number,
    one_of,
    refused,
    share,
    some_of,
    text,
    whole,
    wrong_value,
)

FRAMEWORKS = {
    name: name
    for name in (
        "onnxrt_integerops onnxrt_qoperator onnxrt_qlinearops onnxrt_qdq "
        "pytorch pytorch_fx pytorch_ipex tensorflow tensorflow_itex"
    ).split()
} | {"onnxrt_qdqops": "onnxrt_qdq"}  # its name up to 1.10
REFUSED_FRAMEWORKS = {
    "mxnet": "MXNet is archived and Octavo does not read its models; export the model to ONNX "
    "(mx2onnx, or the Gluon model zoo's ONNX files) and say onnxrt_integerops",
    "engine": "that is the executor of Intel's NLP toolkit; give the model as ONNX and say "
    "onnxrt_integerops",
    "NA": "it leaves open what the model is; say which framework it is",
}
_NO_MIXED = "it mixes bfloat16 and float, and Octavo has no bfloat16 kernels"
_MODEL_SAYS = "an ONNX or PyTorch model says its inputs and outputs itself"

# --- quantization ---

_CALIBRATION = "dynamic quantization measures activations while the model runs, and calibrates none"
APPROACHES = {
    "post_training_static_quant": "static",
    "post_training_dynamic_quant": "dynamic",
    "post_training_auto_quant": "auto",
}
REFUSED_APPROACHES = {
    "quant_aware_training": "it trains the model, and Octavo does not train; use "
    "post_training_dynamic_quant, or train elsewhere and tune the result"
}
REFUSED_GRANULARITIES = {
    "per_channel": "an activation's channels are summed over, so they cannot have scales of their "
    "own (leave it out for one scale a row)"
}
_DTYPES = some_of("a dtype", "int8", "uint8", "fp32", "bf16", "fp16")
_PER_TENSOR = either({"per_tensor": "per_tensor"}, REFUSED_GRANULARITIES, "a granularity")


def _regex(value: Any) -> str:
    try:
        patterns.check(value)
    except ValueError as error:
        raise wrong_value(
            value, f"a regular expression ({error})", "one that matches whole operator names"
        ) from None
    return str(value)


_LAYERS: dict[str, Kind] = {
    "weight": {
        "granularity": some_of("a granularity", "per_channel", "per_tensor"),
        "scheme": some_of("a scheme", "asym", "sym", "asym_float"),
        "dtype": _DTYPES,
        "algorithm": some_of("an algorithm", "minmax", "kl"),
        "bit": idle("Neural Compressor uses it for low-precision training only"),
    },
    "activation": {
        "granularity": many(_PER_TENSOR, "a list of granularities"),
        "scheme": some_of("a scheme", "asym", "sym"),
        "dtype": _DTYPES,
        "compute_dtype": idle("activations are quantized to uint8 where they are quantized"),
        "algorithm": idle("an activation's range is from its least value to its greatest"),
    },
}
_QUANT_LEVEL = idle("the strategy says where the search starts")
_DATALOADER: dict[str, Kind] = {
    "dataset": ByName(text, anything),
    "batch_size": POSITIVE,
    **dict.fromkeys("last_batch shuffle distributed filter transform".split(), anything),
}
_STATIC = ("static", "auto")
_QUANTIZATION: dict[str, Kind] = {
    "approach": either(APPROACHES, REFUSED_APPROACHES, "an approach"),
    "train": idle("only quant_aware_training trains"),
    "advance": idle("it is for static quantization's graph rewrites; Octavo has none to switch"),
    "calibration": {
        "sampling_size": idle(_CALIBRATION, many(POSITIVE, "a list of sizes"), *_STATIC),
        "dataloader": idle(_CALIBRATION, _DATALOADER, *_STATIC),
    },
    "recipes": idle(
        "the search decides by measuring which layers stay float; name a layer in op_wise to keep "
        "it so"
    ),
    "model_wise": _LAYERS,
    "optype_wise": ByName(text, _LAYERS),
    "op_wise": ByName(_regex, _LAYERS),
    "quant_level": _QUANT_LEVEL,
}

# --- evaluation: the metric, and how speed is measured ---

_METRICS: dict[str, Kind] = {
    name: POSITIVE if name == "topk" else entry.options for name, entry in METRICS.items()
}
_RUNS: dict[str, Kind] = {
    "iteration": count_or_all,
    "configs": idle(
        "it is for Neural Compressor's benchmark of several processes: Octavo times one process, "
        "with the threads that it is given"
    ),
    "dataloader": idle(
        "Octavo ships no data sets: give the data with --data, or an evaluate function (the "
        "batch_size of evaluation.accuracy is used for --data)",
        _DATALOADER,
    ),
    "postprocess": idle(
        "it belongs to Neural Compressor's data loaders: do it in your evaluate function"
    ),
}
_EVALUATION: dict[str, Kind] = {
    "accuracy": {
        "metric": _METRICS,
        "multi_metrics": {
            "weight": NUMBERS,
            "higher_is_better": many(flag, "a list of switches"),
            **_METRICS,
        },
        **_RUNS,
    },
    "performance": {"warmup": whole(0), **_RUNS},
}

# --- tuning ---

STRATEGIES = {
    **{s: s for s in "auto basic mse random exhaustive bayesian tpe".split()},
    "mse_v2": "mse",
    "conservative": "basic",
}
REFUSED_STRATEGIES = {
    "sigopt": "SigOpt was a web service, and is closed; bayesian and tpe search the same way here",
    "hawq_v2": "it needs a loss and its gradients; mse ranks layers without them",
    "automixedprecision": _NO_MIXED,
    "auto_mixed_precision": _NO_MIXED,
}
_IDLE_SETTINGS = """sigopt_api_token sigopt_project_id sigopt_experiment_name accuracy_weight
latency_weight confidence_batches hawq_v2_loss""".split()
_OBJECTIVE = one_of("an objective", "performance", "accuracy", "modelsize", "footprint")
_OBJECTIVES: dict[str, Kind] = {
    "objective": needed(many(_OBJECTIVE, "a list of objectives")),
    "weight": NUMBERS,
    "higher_is_better": idle("latency, size and memory are made small, and accuracy large"),
}
_TUNING: dict[str, Kind] = {
    "strategy": {
        "name": needed(either(STRATEGIES, REFUSED_STRATEGIES, "a strategy")),
        **dict.fromkeys(_IDLE_SETTINGS, idle("Octavo's strategies have no such setting")),
    },
    "accuracy_criterion": {
        "relative": share(below=1),
        "absolute": share(),
        "higher_is_better": flag,
    },
    "objective": _OBJECTIVE,
    "multi_objectives": _OBJECTIVES,
    "multi_objective": _OBJECTIVES,  # its name in 1.9 and 1.10
    "exit_policy": {"timeout": number(0), "max_trials": POSITIVE, "performance_only": flag},
    "random_seed": whole(0, 2**32 - 1),
    "tensorboard": idle("Octavo writes no TensorBoard logs; --report draws the search"),
    "workspace": {"path": text, "resume": flag_or_text},
    "diagnosis": idle("the result's ranking says what each layer does to the output"),
}

_TO_QUANTIZE = "take the section out to quantize the model as it is"
_TRAINED = "Octavo does not train: {} elsewhere and tune the result, or"
REFUSED_SECTIONS = {
    "pruning": "Octavo does not prune: prune elsewhere and tune the result, or",
    "distillation": _TRAINED.format("distil"),
    "auto_distillation": _TRAINED.format("distil"),
    "nas": "Octavo searches recipes, not architectures: tune the model that was found, or",
    "train": _TRAINED.format("train"),
    "graph_optimization": "Octavo does not optimize float graphs: ONNX Runtime does it when it "
    "loads a model;",
    "mixed_precision": f"{_NO_MIXED}: for half-size weights use dtype fp16 in model_wise.weight, "
    "or",
    "model_conversion": "Octavo does not convert models trained for quantization: give the float "
    "model;",
}
ROOT: dict[str, Kind] = {
    "model": needed(
        {
            "name": needed(text),
            "framework": needed(either(FRAMEWORKS, REFUSED_FRAMEWORKS, "a framework")),
            "inputs": idle(_MODEL_SAYS, names, "tensorflow"),
            "outputs": idle(_MODEL_SAYS, names, "tensorflow"),
        }
    ),
    "version": number(1, 1),
    "device": either({"cpu": "cpu"}, {"gpu": "Octavo's int8 models are for CPUs"}, "a device"),
    "quantization": _QUANTIZATION,
    "evaluation": _EVALUATION,
    "tuning": _TUNING,
    "use_bf16": idle(_NO_MIXED),
    "quant_level": _QUANT_LEVEL,
    **{key: refused(f"{reason} {_TO_QUANTIZE}") for key, reason in REFUSED_SECTIONS.items()},
}
