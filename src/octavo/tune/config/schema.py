"""A configuration of Neural Compressor 1.x, whole: every key, and what it may be.

What Octavo does not do is known here all the same: such keys are refused by name, with the reason,
or said to be idle (`section.Idle`).
"""

from __future__ import annotations

from octavo.tune.config import values
from octavo.tune.config.schema_evaluation import FLAGS, Evaluation
from octavo.tune.config.schema_quantization import QUANT_LEVEL, Quantization
from octavo.tune.config.section import (
    FLAG,
    NAMES,
    NUMBER,
    NUMBERS,
    POSITIVE,
    TEXT,
    checked,
    idle,
    refused,
    section,
    word,
)

FRAMEWORKS = {
    name: name
    for name in (
        "onnxrt_integerops onnxrt_qoperator onnxrt_qlinearops onnxrt_qdq "
        "pytorch pytorch_fx pytorch_ipex tensorflow tensorflow_itex"
    ).split()
} | {"onnxrt_qdqops": "onnxrt_qdq"}  # its name up to 1.10
_NO_FRAMEWORK = {
    "mxnet": "MXNet is archived and Octavo does not read its models; export the model to ONNX "
    "(mx2onnx, or the Gluon model zoo's ONNX files) and say onnxrt_integerops",
    "engine": "that is the executor of Intel's NLP toolkit; give the model as ONNX and say "
    "onnxrt_integerops",
    "NA": "it leaves open what the model is; say which framework it is",
}
STRATEGIES = {
    **{s: s for s in "auto basic mse random exhaustive bayesian tpe".split()},
    "mse_v2": "mse",
    "conservative": "basic",
}
_NO_MIXED = "it mixes bfloat16 and float, and Octavo has no bfloat16 kernels"
_NO_STRATEGY = {
    "sigopt": "SigOpt was a web service, and is closed; bayesian and tpe search the same way here",
    "hawq_v2": "it needs a loss and its gradients; mse ranks layers without them",
    "automixedprecision": _NO_MIXED,
    "auto_mixed_precision": _NO_MIXED,
}
OBJECTIVES = ("performance", "accuracy", "modelsize", "footprint")
_OBJECTIVE = values.one_of("an objective", *OBJECTIVES)

_UNUSED = "Octavo's strategies have no such setting"
_SIGOPT = "it is for SigOpt, a web service that is closed"
_INPUTS = "an ONNX or PyTorch model says its inputs and outputs itself"
_TO_QUANTIZE = "take the section out to quantize the model as it is"


Model = section(
    "Model",
    {
        "name": TEXT,
        "framework": checked(values.either(FRAMEWORKS, _NO_FRAMEWORK, "a framework")),
    },
    {
        "inputs": idle(NAMES, _INPUTS, "tensorflow"),
        "outputs": idle(NAMES, _INPUTS, "tensorflow"),
    },
)
Strategy = section(
    "Strategy",
    {"name": checked(values.either(STRATEGIES, _NO_STRATEGY, "a strategy"))},
    {
        "sigopt_api_token": idle(TEXT, _SIGOPT),
        "sigopt_project_id": idle(TEXT, _SIGOPT),
        "sigopt_experiment_name": idle(TEXT, _SIGOPT),
        "accuracy_weight": idle(NUMBER, _UNUSED),
        "latency_weight": idle(NUMBER, _UNUSED),
        "confidence_batches": idle(POSITIVE, _UNUSED),
        "hawq_v2_loss": idle(checked(values.anything), _UNUSED),
    },
)
AccuracyCriterion = section(
    "AccuracyCriterion",
    optional={
        "relative": checked(values.share(below=1)),
        "absolute": checked(values.share()),
        "higher_is_better": FLAG,
    },
)
MultiObjectives = section(
    "MultiObjectives",
    {"objective": checked(values.many(_OBJECTIVE, "a list of objectives"))},
    {"weight": NUMBERS, "higher_is_better": FLAGS},
)
ExitPolicy = section(
    "ExitPolicy",
    optional={
        "timeout": checked(values.number(0)),
        "max_trials": POSITIVE,
        "performance_only": FLAG,
    },
)
Workspace = section("Workspace", optional={"path": TEXT, "resume": checked(values.flag_or_text)})
Diagnosis = section(
    "Diagnosis",
    optional={
        "diagnosis_after_tuning": FLAG,
        "op_list": NAMES,
        "iteration_list": checked(
            values.many(values.numeral(values.whole()), "a list of whole numbers")
        ),
        "inspect_type": word("what is inspected", "all", "activation", "weight"),
        "save_to_disk": FLAG,
        "save_path": TEXT,
    },
)
Tuning = section(
    "Tuning",
    optional={
        "strategy": Strategy,
        "accuracy_criterion": AccuracyCriterion,
        "objective": checked(_OBJECTIVE),
        "multi_objectives": MultiObjectives,
        "multi_objective": MultiObjectives,  # its name in 1.9 and 1.10
        "exit_policy": ExitPolicy,
        "random_seed": checked(values.whole(0, 2**32 - 1)),
        "tensorboard": idle(FLAG, "Octavo writes no TensorBoard logs; --report draws the search"),
        "workspace": Workspace,
        "diagnosis": idle(
            Diagnosis, "the result's ranking says what each layer does to the output"
        ),
    },
)
Root = section(
    "Configuration",
    {"model": Model},
    {
        "version": checked(values.version),
        "device": checked(
            values.either({"cpu": "cpu"}, {"gpu": "Octavo's int8 models are for CPUs"}, "a device")
        ),
        "quantization": Quantization,
        "evaluation": Evaluation,
        "tuning": Tuning,
        "use_bf16": idle(FLAG, _NO_MIXED),
        "quant_level": QUANT_LEVEL,
        "pruning": refused(
            f"Octavo does not prune: prune elsewhere and tune the result, or {_TO_QUANTIZE}"
        ),
        "distillation": refused(
            f"Octavo does not train: distil elsewhere and tune the result, or {_TO_QUANTIZE}"
        ),
        "auto_distillation": refused(
            f"Octavo does not train: distil elsewhere and tune the result, or {_TO_QUANTIZE}"
        ),
        "nas": refused(
            "Octavo searches recipes, not architectures: tune the model that was found, or "
            + _TO_QUANTIZE
        ),
        "train": refused(
            f"Octavo does not train: train elsewhere and tune the result, or {_TO_QUANTIZE}"
        ),
        "graph_optimization": refused(
            "Octavo does not optimize float graphs: ONNX Runtime does it when it loads a model; "
            + _TO_QUANTIZE
        ),
        "mixed_precision": refused(
            f"{_NO_MIXED}: for half-size weights use dtype fp16 in model_wise.weight, or "
            + _TO_QUANTIZE
        ),
        "model_conversion": refused(
            "Octavo does not convert models trained for quantization: give the float model; "
            + _TO_QUANTIZE
        ),
    },
)
