"""Wrong keys and values in the files that `octavo tune` reads, Neural Compressor's among them."""

from __future__ import annotations

from benchmarks.error_cases.case import AS_ALLOWED, Case

TITLE = "Tuning files"

_MODEL = "model: {name: m, framework: onnxrt_integerops}\n"
_DYNAMIC = "quantization: {approach: post_training_dynamic_quant}\n"


def _file(text: str, part: str, value: str, allowed: str, fix: str, *more: str) -> Case:
    """`text` as the file c.yaml: every message has file, line and the dotted path of the key."""
    line = " ".join(["octavo tune c.yaml --model m.onnx", *more])
    return Case(
        line, 3 if "tensorflow" in text else 2, part, value, allowed, fix, files={"c.yaml": text}
    )


def _tuning(text: str, part: str, value: str, allowed: str, fix: str) -> Case:
    return _file(f"{_MODEL}{_DYNAMIC}tuning: {{{text}}}\n", part, value, allowed, fix)


def _accuracy(text: str, part: str, value: str, allowed: str, fix: str) -> Case:
    criterion = "tuning: {accuracy_criterion: {relative: 0.01}}\n"
    evaluation = f"evaluation: {{accuracy: {{{text}}}}}\n"
    return _file(
        f"{_MODEL}{_DYNAMIC}{criterion}{evaluation}", part, value, allowed, fix, "--data data.npz"
    )


CASES = (
    Case(
        *("octavo tune cnf.yaml --model m.onnx", 2),
        *(
            "cnf.yaml",
            "no such configuration file",
            "Known: conf.yaml",
            "Did you mean 'conf.yaml'?",
        ),
    ),
    _file("", "c.yaml:1", "is empty", "model:", "start with"),
    _file(
        f"{_MODEL}tunning: {{}}\n",
        "c.yaml:2: tunning",
        "'tunning'",
        "allowed: ",
        "Did you mean 'tuning'",
    ),
    _file(
        "model: {name: m}\n",
        "c.yaml:1: model.framework",
        "`model`",
        "needs the key 'framework'",
        "add it",
    ),
    _file(
        "quantization: {}\n",
        "c.yaml:1: model",
        "a configuration",
        "needs the key 'model'",
        "add it",
    ),
    _file(
        "model: {name: m, framework: onnxrt}\n",
        "model.framework",
        "'onnxrt'",
        "allowed: onnxrt_integerops,",
        "Did you mean",
    ),
    _file(
        "model: {name: m, framework: mxnet}\n",
        "model.framework",
        "'mxnet'",
        "allowed: onnxrt_integerops,",
        "export the model to ONNX",
    ),
    _file(
        f"{_MODEL}version: 2.0\n",
        "c.yaml:2: version",
        "2.0",
        "1.0 (Neural Compressor 1.x)",
        AS_ALLOWED,
    ),
    _file(
        f"{_MODEL}quantization: {{approach: quant_aware_training}}\n",
        "quantization.approach",
        "'quant_aware_training'",
        "allowed: post_training_static_quant,",
        "post_training_dynamic_quant",
    ),
    _file(
        f"{_MODEL}quantization: {{approach: dynamic}}\n",
        "quantization.approach",
        "'dynamic'",
        "allowed: ",
        "post_training_dynamic_quant",
    ),
    _file(
        f"{_MODEL}{_DYNAMIC}pruning: {{}}\n",
        "c.yaml:3: pruning",
        "does not prune",
        "quantize the model as it is",
        "take the section out",
    ),
    _file(f"{_MODEL}<<: *a\n", "c.yaml:2", "undefined alias", "'a'", "mend the YAML"),
    _file("model: {name: m\n", "c.yaml:", "','", "expected", "mend the YAML"),
    _file(
        "model: {name: m, name: n, framework: mxnet}\n",
        "c.yaml:1: key",
        "'name'",
        "there twice",
        "leave one out",
    ),
    _tuning(
        "accuracy_criterion: {relative: 1.5}",
        "tuning.accuracy_criterion.relative",
        "1.5",
        "below 1",
        AS_ALLOWED,
    ),
    _tuning(
        "accuracy_criterion: {relative: a lot}",
        "tuning.accuracy_criterion.relative",
        "'a lot'",
        'a finite number such as 0.01, or "1%"',
        AS_ALLOWED,
    ),
    _tuning(
        "accuracy_criterion: {relative: 0.1, absolute: 1}",
        "tuning.accuracy_criterion",
        "both",
        "relative and absolute",
        "give one of them",
    ),
    _tuning(
        "accuracy_criterion: {}",
        "tuning.accuracy_criterion",
        "neither",
        "relative and absolute",
        "give one of them",
    ),
    _tuning(
        "objective: speed",
        "tuning.objective",
        "'speed'",
        "allowed: performance, accuracy,",
        AS_ALLOWED,
    ),
    _tuning(
        "strategy: {name: bayes}",
        "tuning.strategy.name",
        "'bayes'",
        "allowed: auto, basic,",
        "Did you mean",
    ),
    _tuning(
        "exit_policy: {timeout: -1}", "tuning.exit_policy.timeout", "-1", "0 or more", AS_ALLOWED
    ),
    _tuning(
        "exit_policy: {max_trials: 0}",
        "tuning.exit_policy.max_trials",
        "0",
        "1 or more",
        AS_ALLOWED,
    ),
    _tuning("random_seed: x", "tuning.random_seed", "'x'", "a whole number from 0 to", AS_ALLOWED),
    _tuning(
        "multi_objectives: {objective: [modelsize, accuracy], weight: [1]}",
        "tuning.multi_objectives.weight",
        "1 values for 2",
        "one for each",
        "give",
    ),
    _accuracy(
        "metric: {topk: 2}", "evaluation.accuracy.metric.topk", "2", "allowed: 1, 5", AS_ALLOWED
    ),
    _accuracy(
        "metric: {top: 1}",
        "evaluation.accuracy.metric.top",
        "'top'",
        "allowed: ",
        "Did you mean 'topk'",
    ),
    _accuracy(
        "metric: {topk: 1, MSE: {}}",
        "evaluation.accuracy.metric",
        "topk and MSE",
        "name one",
        "use multi_metrics",
    ),
    _accuracy("metric: {mAP: {}}", "metric mAP", "torchmetrics", "not installed", "pip install"),
    Case(
        *("octavo tune c.yaml --model m.onnx", 2),
        *("c.yaml: evaluation.accuracy", "needs data", ".npz, .jsonl, .csv, .parquet", "--data"),
        files={"c.yaml": f"{_MODEL}{_DYNAMIC}evaluation: {{accuracy: {{metric: {{topk: 1}}}}}}\n"},
    ),
    _file(
        "model: {name: m, framework: tensorflow}\n",
        "m.onnx",
        "TensorFlow model",
        "SavedModel folder or a frozen graph (.pb)",
        "give",
    ),
    _file(
        f"model: {{name: m, framework: pytorch}}\n{_DYNAMIC}",
        "--model m.onnx",
        "framework pytorch",
        "module:factory",
        "change one of the two",
    ),
    _file(
        "model: {name: m, framework: pytorch}\n",
        "quantization.approach",
        "post_training_static_quant",
        "post_training_dynamic_quant",
        "--approach dynamic",
    ),
)
