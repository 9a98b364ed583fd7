"""A configuration of Neural Compressor 1.x, whole: every key, and what it may be.

What Octavo does not do is known here all the same: such keys are refused by name, with the reason,
or said to be idle (`sections.Key`).
"""

from __future__ import annotations

from typing import Any

from octavo.recipe import patterns
from octavo.tune.inc import values
from octavo.tune.inc.schema_data import Dataloader, Postprocess, Train
from octavo.tune.inc.sections import ByName, Kind, idle, needed
from octavo.tune.inc.values import (
    NUMBER,
    NUMBERS,
    POSITIVE,
    WHOLE,
    anything,
    either,
    flag,
    many,
    names,
    number,
    numeral,
    one_of,
    refused,
    share,
    some_of,
    text,
    whole,
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
_STATIC_ONLY = "it is for static quantization's graph rewrites; Octavo has nothing to switch"
_SEARCHED = (
    "the search decides by measuring which layers stay float; name a layer in op_wise to keep it so"
)
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
_DTYPES = ("int8", "uint8", "fp32", "bf16", "fp16")
_ALGORITHMS = ("minmax", "kl", "placeholder", "percentile", "entropy")


def _regex(value: Any) -> str:
    try:
        patterns.check(value)
    except ValueError as error:
        raise values.wrong_value(
            value, f"a regular expression ({error})", "one that matches whole operator names"
        ) from None
    return str(value)


_LAYERS: dict[str, Kind] = {
    "weight": {
        "granularity": some_of("a granularity", "per_channel", "per_tensor"),
        "scheme": some_of("a scheme", "asym", "sym", "asym_float"),
        "dtype": some_of("a dtype", *_DTYPES),
        "algorithm": some_of("an algorithm", "minmax", "kl"),
        "bit": idle(
            many(number(0, 7, above=True), "a list of bits"),
            "Neural Compressor uses it for low-precision training only",
        ),
    },
    "activation": {
        "granularity": many(
            either({"per_tensor": "per_tensor"}, REFUSED_GRANULARITIES, "a granularity"),
            "a list of granularities",
        ),
        "scheme": some_of("a scheme", "asym", "sym"),
        "dtype": some_of("a dtype", *_DTYPES),
        "compute_dtype": idle(
            some_of("a dtype", "int8", "uint8", "fp32", "bf16", "None"),
            "activations are quantized to uint8 where they are quantized",
        ),
        "algorithm": idle(
            some_of("an algorithm", *_ALGORITHMS),
            "an activation's range is from its least value to its greatest",
        ),
    },
}
_QUANT_LEVEL = idle(one_of("a level", "auto", 0, 1), "the strategy says where the search starts")
_RECIPES: dict[str, Kind] = {
    **dict.fromkeys(
        """scale_propagation_max_pooling scale_propagation_concat fast_bias_correction
        weight_correction""".split(),
        idle(flag, _STATIC_ONLY),
    ),
    **dict.fromkeys(
        """first_conv_or_matmul_quantization last_conv_or_matmul_quantization
        pre_post_process_quantization ffn_matmul_quantization""".split(),
        idle(flag, _SEARCHED),
    ),
}
_QUANTIZATION: dict[str, Kind] = {
    "approach": either(APPROACHES, REFUSED_APPROACHES, "an approach"),
    "train": idle(Train, "only quant_aware_training trains"),
    "advance": {"bias_correction": idle(one_of("a correction", "weight_empirical"), _STATIC_ONLY)},
    "calibration": {
        "sampling_size": idle(
            many(numeral(POSITIVE), "a list of sizes"), _CALIBRATION, "static", "auto"
        ),
        "dataloader": idle(Dataloader, _CALIBRATION, "static", "auto"),
    },
    "recipes": _RECIPES,
    "model_wise": _LAYERS,
    "optype_wise": ByName(text, _LAYERS),
    "op_wise": ByName(_regex, _LAYERS),
    "quant_level": _QUANT_LEVEL,
}

# --- evaluation: the metric, and how speed is measured ---

_PROCESSES = (
    "it is for Neural Compressor's benchmark of several processes: Octavo times one process, with "
    "the threads that it is given"
)
_FLAGS = many(flag, "a list of switches")
_MAP_KEY = {"anno_path": text, "map_key": text}
_TASK = {"task": text}
_THRESHOLD = {"threshold": NUMBER}
METRICS: dict[str, Kind] = {
    "topk": one_of("a k that Neural Compressor has", 1, 5),
    "mAP": {
        "anno_path": text,
        "iou_thrs": values.iou_thresholds,
        "map_points": one_of("a number of recall points", 0, 11, 101),
    },
    "COCOmAP": _MAP_KEY,
    "COCOmAPv2": {
        **_MAP_KEY,
        "output_index_mapping": {
            **dict.fromkeys(("boxes", "scores", "classes"), needed(WHOLE)),
            "num_detections": WHOLE,
        },
    },
    "VOCmAP": {"anno_path": text},
    **{key: {"compare_label": flag} for key in ("MSE", "RMSE", "MAE")},
    "mIOU": {"num_classes": POSITIVE},
    "GLUE": _TASK,
    "ROC": _TASK,
    "F1": {
        "average": one_of("an average", "binary", "micro", "macro", "weighted"),
        **_THRESHOLD,
    },
    "SquadF1": {"exact": flag},
    "BLEU": {"tokenize": text, "lowercase": flag},
    # Neural Compressor's, and ours.
    **dict.fromkeys(("Accuracy", "agreement"), _THRESHOLD),
    **{key: {} for key in "Loss Pearson Spearman WER CER closeness".split()},
}
_CONFIGS: dict[str, Kind] = {
    **dict.fromkeys(
        """cores_per_instance num_of_instance inter_num_of_threads
            intra_num_of_threads""".split(),
        idle(POSITIVE, _PROCESSES),
    ),
    "kmp_blocktime": idle(whole(0), _PROCESSES),
    "kmp_affinity": idle(text, _PROCESSES),
}
_RUNS: dict[str, Kind] = {
    "iteration": values.count_or_all,
    "configs": _CONFIGS,
    "dataloader": idle(
        Dataloader,
        "Octavo ships no data sets: give the data with --data, or an evaluate function (the "
        "batch_size of evaluation.accuracy is used for --data)",
    ),
    "postprocess": idle(
        Postprocess,
        "it belongs to Neural Compressor's data loaders: do it in your evaluate function",
    ),
}
_EVALUATION: dict[str, Kind] = {
    "accuracy": {
        "metric": METRICS,
        "multi_metrics": {"weight": NUMBERS, "higher_is_better": _FLAGS, **METRICS},
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
_NO_SETTING = "Octavo's strategies have no such setting"
_SIGOPT = "it is for SigOpt, a web service that is closed"
_OBJECTIVE = one_of("an objective", "performance", "accuracy", "modelsize", "footprint")
_OBJECTIVES: dict[str, Kind] = {
    "objective": needed(many(_OBJECTIVE, "a list of objectives")),
    "weight": NUMBERS,
    "higher_is_better": _FLAGS,
}
_TUNING: dict[str, Kind] = {
    "strategy": {
        "name": needed(either(STRATEGIES, REFUSED_STRATEGIES, "a strategy")),
        **dict.fromkeys(
            ("sigopt_api_token", "sigopt_project_id", "sigopt_experiment_name"),
            idle(text, _SIGOPT),
        ),
        **dict.fromkeys(("accuracy_weight", "latency_weight"), idle(NUMBER, _NO_SETTING)),
        "confidence_batches": idle(POSITIVE, _NO_SETTING),
        "hawq_v2_loss": idle(anything, _NO_SETTING),
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
    "tensorboard": idle(flag, "Octavo writes no TensorBoard logs; --report draws the search"),
    "workspace": {"path": text, "resume": values.flag_or_text},
    "diagnosis": idle(
        {
            "diagnosis_after_tuning": flag,
            "op_list": names,
            "iteration_list": many(numeral(WHOLE), "a list of whole numbers"),
            "inspect_type": one_of("what is inspected", "all", "activation", "weight"),
            "save_to_disk": flag,
            "save_path": text,
        },
        "the result's ranking says what each layer does to the output",
    ),
}

_TO_QUANTIZE = "take the section out to quantize the model as it is"
REFUSED_SECTIONS = {
    "pruning": "Octavo does not prune: prune elsewhere and tune the result, or",
    "distillation": "Octavo does not train: distil elsewhere and tune the result, or",
    "auto_distillation": "Octavo does not train: distil elsewhere and tune the result, or",
    "nas": "Octavo searches recipes, not architectures: tune the model that was found, or",
    "train": "Octavo does not train: train elsewhere and tune the result, or",
    "graph_optimization": (
        "Octavo does not optimize float graphs: ONNX Runtime does it when it loads a model;"
    ),
    "mixed_precision": (
        f"{_NO_MIXED}: for half-size weights use dtype fp16 in model_wise.weight, or"
    ),
    "model_conversion": (
        "Octavo does not convert models trained for quantization: give the float model;"
    ),
}
ROOT: dict[str, Kind] = {
    "model": needed(
        {
            "name": needed(text),
            "framework": needed(either(FRAMEWORKS, REFUSED_FRAMEWORKS, "a framework")),
            "inputs": idle(names, _MODEL_SAYS, "tensorflow"),
            "outputs": idle(names, _MODEL_SAYS, "tensorflow"),
        }
    ),
    "version": values.version,
    "device": either({"cpu": "cpu"}, {"gpu": "Octavo's int8 models are for CPUs"}, "a device"),
    "quantization": _QUANTIZATION,
    "evaluation": _EVALUATION,
    "tuning": _TUNING,
    "use_bf16": idle(flag, _NO_MIXED),
    "quant_level": _QUANT_LEVEL,
    **{key: refused(f"{reason} {_TO_QUANTIZE}") for key, reason in REFUSED_SECTIONS.items()},
}
