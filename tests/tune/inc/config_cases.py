"""Every key of the configuration schema with values that it takes and values that it does not.

`leaves` and `sections` walk the schema itself; a key without values here fails the tests that use
them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from octavo.tune.inc.schema import ROOT
from octavo.tune.inc.sections import ByName, Kind, key_of

Place = tuple[str, ...]
Keys = Mapping[str, Kind]
Case = tuple[list[Any], list[tuple[Any, str]]]

WHOLE: Case = (
    [3, -1],
    [("3", "a whole number"), (3.5, "a whole number"), (True, "a whole number")],
)
POSITIVE: Case = ([1, 7], [(0, "1 or more"), (-3, "1 or more"), (1.5, "1 or more"), ("x", "whole")])
NATURAL: Case = ([0, 4], [(-1, "0 or more"), (0.5, "a whole number"), ("4", "a whole number")])
NUMBER: Case = ([1, 0.5, "1e-3"], [("x", "a number"), (True, "a number"), ([1], "a number")])
ABOVE_0: Case = ([0.5, 2], [(0, "above 0"), (-1, "above 0"), ("x", "a number")])
FLAG: Case = ([True, False, "yes", "off"], [("maybe", "true, false"), (1, "true, false")])
TEXT: Case = (
    ["a/b c"],
    [("", "not empty"), (5, "put it in quotes"), (["a"], "text"), (True, "tex")],
)
NAMES: Case = ([[], "a, b", "a b", ["a"], 7], [([["a"]], "text"), ([""], "not empty")])
SIZE: Case = ([224, "224, 224", [8, 8]], [(0, "1 or more"), ([1, "x"], "a whole number")])
WHOLES: Case = ([3, "0, -1", [1, 2]], [("a, b", "a whole number"), ([], "a list"), (1.5, "whole")])
NUMBERS: Case = ([0.5, "0.1 0.2", "1, 2", [0.1, 2]], [("a b", "a number"), ([], "a list of numb")])
FLAGS: Case = (
    [True, "True, False", [True]],
    [("True, maybe", "true, false"), ([1], "true, false")],
)
SHAPE: Case = (
    ["1, 3, 8", [1, 3], [[1, 3], [1]]],
    [("a", "a whole number"), ([[0]], "1 or more"), ([], "a shape")],
)
LIST: Case = ([[], [1, ["a"]]], [("a", "a list"), (1, "a list")])
BATCHES: Case = ([-1, 10], [(0, "-1 for all"), (-2, "-1 for all"), ("10", "-1 for all")])
COUNTS: Case = (["8, 16, 32", 100, [1, 2]], [("8, x", "1 or more"), (0, "1 or more")])
BITS: Case = ([7.0, [1, 7]], [(8, "up to 7"), (0, "above 0"), ("x", "a number")])


def word(*known: Any, wrong_value: Any = "nonsense") -> Case:
    return [*known], [(wrong_value, f"allowed: {', '.join(map(str, known))}"), (2.5, "allowed: ")]


def some(*known: str) -> Case:
    valid = [known[0], ", ".join(known), [*known]]
    return valid, [(f"{known[0]}, nonsense", f"allowed: {known[0]}"), ([3], "allowed: ")]


DTYPES = some("int8", "uint8", "fp32", "bf16", "fp16")
TASK = word("classifier", "squad")
MODEL_TYPE = word("bert", "xlnet", "xlm")
REDUCTION = word("none", "sum", "mean", "auto", "sum_over_batch_size")
LEVEL: Case = (["auto", 0, 1], [(2, "auto, 0, 1"), ("1", "auto, 0, 1"), (True, "auto, 0, 1")])

# By the end of the path; the longest end that is here counts.
CASES: dict[str, Case] = {
    **dict.fromkeys(
        """min_dim max_dim constant_value offset_height offset_width target_height target_width
        dim x y LabelShift length max_seq_length num_cores boxes scores classes num_detections
        epoch start_epoch end_epoch train.iteration frequency CropResize.width
        CropResize.height""".split(),
        WHOLE,
    ),
    **dict.fromkeys(
        """height width crop_padding resize_side LabelBalance.size batch_size max_trials
        num_classes cores_per_instance num_of_instance inter_num_of_threads intra_num_of_threads
        confidence_batches""".split(),
        POSITIVE,
    ),
    **dict.fromkeys(["kmp_blocktime", "warmup"], NATURAL),
    **dict.fromkeys(
        """central_fraction BilinearImagenet.scale ResizeCropImagenet.scale crop_ratio momentum
        learning_rate weight_decay beta_1 beta_2 epsilon accuracy_weight latency_weight""".split(),
        NUMBER,
    ),
    **dict.fromkeys(["temperature", "QuantizedInput.scale"], ABOVE_0),
    **dict.fromkeys(
        """padding random_crop slice_crop random_flip_left_right shuffle distributed do_lower_case
        train download dummy.label dynamic_length evaluate nesterov amsgrad from_logits
        add_origin_loss compare_label diagnosis_after_tuning save_to_disk performance_only
        tensorboard use_bf16 accuracy_criterion.higher_is_better scale_propagation_max_pooling
        scale_propagation_concat fast_bias_correction weight_correction
        first_conv_or_matmul_quantization last_conv_or_matmul_quantization
        pre_post_process_quantization ffn_matmul_quantization""".split(),
        FLAG,
    ),
    **dict.fromkeys(
        """name root label_file vocab_file img_dir anno_dir npy_dir data_path image_list
        content_folder style_folder image_format data_dir model_name_or_path task model_type
        hostfile anno_path map_key kmp_affinity sigopt_api_token sigopt_project_id
        sigopt_experiment_name save_path workspace.path Cast.dtype""".split(),
        TEXT,
    ),
    **dict.fromkeys(["inputs", "outputs", "op_list", "dummy.dtype", "dummy_v2.dtype"], NAMES),
    "sparse_dummy_v2.dtype": NAMES,
    "size": SIZE,
    **dict.fromkeys(["perm", "resize_shape", "iteration_list"], WHOLES),
    **dict.fromkeys(
        "RandomResizedCrop.scale ratio mean std mean_value low high sparse_ratio".split(), NUMBERS
    ),
    "multi_objectives.weight": NUMBERS,
    "multi_objective.weight": NUMBERS,
    "multi_metrics.weight": NUMBERS,
    "loss_weights": ([0.5, [0, 1]], [(-1, "0 or more"), ("x", "a number")]),
    "higher_is_better": FLAGS,
    **dict.fromkeys(["shape", "input_shape", "label_shape", "dense_shape"], SHAPE),
    **dict.fromkeys(["rescale", "layer_mappings"], LIST),
    "F1.average": word("binary", "micro", "macro", "weighted"),
    "threshold": ([0, 0.5, -1], [("x", "a number"), (True, "a number")]),
    "exact": FLAG,
    "lowercase": FLAG,
    "tokenize": TEXT,
    "iteration": BATCHES,
    "sampling_size": COUNTS,
    "bit": BITS,
    "framework": word(
        *"onnxrt_integerops onnxrt_qoperator onnxrt_qlinearops onnxrt_qdq".split(),
        *"pytorch pytorch_fx pytorch_ipex tensorflow tensorflow_itex".split(),
    ),
    "version": ([1, 1.0, "1.0"], [(2.0, "1.0"), ("x", "1.0"), (0, "1.0")]),
    "device": word("cpu"),
    "approach": word(
        *"post_training_static_quant post_training_dynamic_quant post_training_auto_quant".split()
    ),
    "bias_correction": word("weight_empirical"),
    "granularity": some("per_channel", "per_tensor"),
    "activation.granularity": some("per_tensor"),
    "weight.scheme": some("asym", "sym", "asym_float"),
    "activation.scheme": some("asym", "sym"),
    "weight.dtype": DTYPES,
    "activation.dtype": DTYPES,
    "compute_dtype": some("int8", "uint8", "fp32", "bf16", "None"),
    "weight.algorithm": some("minmax", "kl"),
    "activation.algorithm": some("minmax", "kl", "placeholder", "percentile", "entropy"),
    "quant_level": LEVEL,
    "interpolation": word("nearest", "bilinear", "bicubic"),
    "resize_method": word(
        *"bilinear lanczos3 lanczos5 bicubic gaussian nearest area mitchellcubic".split()
    ),
    "data_format": word("channels_first", "channels_last"),
    "subpixels": word("BGR", "RGB"),
    "QuantizedInput.dtype": word("int8", "uint8"),
    "last_batch": word("rollover", "discard"),
    "bert.task": TASK,
    "mzbert.task": TASK,
    "bert.model_type": MODEL_TYPE,
    "mzbert.model_type": MODEL_TYPE,
    "reduction": REDUCTION,
    "KnowledgeDistillationLoss.loss_types": some("CE", "KL", "MSE"),
    "IntermediateLayersKnowledgeDistillationLoss.loss_types": some("MSE", "KL", "L1"),
    "SelfKnowledgeDistillationLoss.loss_types": some("L2", "CE", "KL"),
    "execution_mode": word("eager", "graph"),
    "topk": ([1, 5], [(2, "1, 5"), ("1", "1, 5"), (True, "1, 5")]),
    "iou_thrs": ([0.5, "0.5:0.05:0.95", 1], [(1.5, "from 0 to 1"), ("x", "from 0 to 1")]),
    "map_points": ([0, 11, 101], [(7, "0, 11, 101"), (False, "0, 11, 101")]),
    "strategy.name": word(
        *"auto basic mse random exhaustive bayesian tpe mse_v2 conservative".split()
    ),
    "hawq_v2_loss": (["anything", [1]], []),
    "relative": (
        [0, 0.01, "1%", "0.5 %", "0.01", -0.01, "-1%"],
        [(1, "below 1"), (float("-inf"), "finite"), ("x", '"1%"'), (True, '"1%"')],
    ),
    "absolute": ([0, 2, 0.5, "1%", -1], [(float("nan"), "finite"), ("x", '"1%"'), ([1], '"1%"')]),
    "objective": word("performance", "accuracy", "modelsize", "footprint"),
    **dict.fromkeys(
        ["multi_objectives.objective", "multi_objective.objective"],
        some("performance", "accuracy", "modelsize", "footprint"),
    ),
    "timeout": ([0, 60, 1.5], [(-1, "0 or more"), ("x", "a number"), (True, "a number")]),
    "random_seed": ([0, 9527], [(-1, "from 0 to"), (2**32, "from 0 to"), (1.5, "whole number")]),
    "resume": ([True, "a/history"], [(3, "true, false, or the path"), ("", "path of a history")]),
    "inspect_type": word("all", "activation", "weight"),
}

MAPPING = {"a": 1}  # which is no value of any key
NAME = "some/name"  # stands for the names under op_wise and optype_wise
REFUSED = """pruning distillation auto_distillation nas train graph_optimization mixed_precision
model_conversion""".split()


def sections() -> Iterator[tuple[Place, Keys]]:
    """Every section, each that has others in it once, and where it may stand."""
    seen: set[int] = set()

    def walk(kind: Kind, place: Place) -> Iterator[tuple[Place, Keys]]:
        kind = key_of(kind).kind
        if isinstance(kind, Mapping) and id(kind) not in seen:
            if any(isinstance(key_of(inner).kind, Mapping) for inner in kind.values()):
                seen.add(id(kind))
            yield place, kind
            for key, inner in kind.items():
                yield from walk(inner, (*place, key))
        elif isinstance(kind, ByName):
            yield from walk(kind.kind, (*place, NAME))

    yield from walk(ROOT, ())


def leaves(kind: Keys) -> list[str]:
    """The keys of a section that hold a value, not a section."""
    return [
        key
        for key, inner in kind.items()
        if not isinstance(key_of(inner).kind, (Mapping, ByName)) and key not in REFUSED
    ]


def required(kind: Keys) -> list[str]:
    """The keys of a section that may not be left out."""
    return [key for key, inner in kind.items() if key_of(inner).needed]


def case(place: Place) -> Case:
    """The values for `place`: of the longest end of its path that is in the table."""
    for start in range(len(place)):
        end = ".".join(place[start:])
        if end in CASES:
            return CASES[end]
    raise LookupError(f"no values for {'.'.join(place)}")


def document(place: Place, values: dict[str, Any]) -> dict[str, Any]:
    """The least configuration whose section at `place` says `values`, and what it needs beside."""
    root: dict[str, Any] = {
        "model": {"name": "m", "framework": "onnxrt_integerops"},
        "quantization": {"approach": "post_training_dynamic_quant"},
    }
    kind: Kind = ROOT
    at = root
    for depth, key in enumerate((*place, "")):
        if isinstance(kind, Mapping):
            for name in required(kind):
                if name != key:
                    at.setdefault(name, sample((*place[:depth], name), child(kind, name)))
        if key:
            kind, at = child(kind, key), at.setdefault(key, {})
    at |= values
    return root


def child(kind: Kind, key: str) -> Kind:
    """What stands at `key` in a section or mapping of the kind `kind`."""
    return key_of(kind.kind if isinstance(kind, ByName) else kind[key]).kind


def sample(place: Place, kind: Kind) -> Any:
    """A value that `place` takes."""
    if isinstance(kind, Mapping):
        return {name: sample((*place, name), child(kind, name)) for name in required(kind)}
    return case(place)[0][0]


def yaml_of(data: dict[str, Any]) -> tuple[str, dict[Place, int]]:
    """`data` as YAML text, and the line of each key."""
    lines: list[str] = []
    found: dict[Place, int] = {(): 1}

    def write(data: dict[str, Any], at: Place) -> None:
        for key, value in data.items():
            found[(*at, key)] = len(lines) + 1
            nested = isinstance(value, dict) and value and value != MAPPING
            said = "" if nested else " " + json.dumps(value)
            lines.append(f"{'  ' * len(at)}{json.dumps(key)}:{said}")
            if nested:
                write(value, (*at, key))

    write(data, ())
    return "\n".join(lines) + "\n", found
