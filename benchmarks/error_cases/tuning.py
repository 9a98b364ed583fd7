"""Searches that cannot begin, or do not end well."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.error_cases.case import AS_ALLOWED, Case
from benchmarks.error_cases.folder import CONF

TITLE = "Tuning"

_TUNE = "octavo tune conf.yaml --model m.onnx"
_KEPT = ("octavo_tuning/*",)
_CALLABLE = "a callable that takes the model"


def _labelled(path: Path) -> None:
    np.savez(path, x=np.ones((4, 32), np.float32), y=np.zeros(4))


def _uneven(path: Path) -> None:
    np.savez(path, x=np.ones((4, 32), np.float32), label=np.zeros(3))


_FIRST = f"{_TUNE} --workspace w -o first.onnx"
CASES = (
    Case(
        *("octavo tune conf.yaml", 2),
        *(
            "conf.yaml",
            "names model 'm', not its file",
            "an ONNX file, or module:factory",
            "--model",
        ),
    ),
    Case(
        *("octavo tune conf.yaml --model mm.onnx --json", 3),
        *("mm.onnx", "does not exist", ".onnx", "Did you mean 'm.onnx'"),
    ),
    Case(
        *("octavo tune conf.yaml --model bare.onnx", 4),
        *("bare.onnx", "no layer that holds weights", "--recipe, --ops", "change the recipe"),
    ),
    Case(f"{_TUNE} --workers 0", 2, "'--workers'", "0", "1 or more", "give"),
    Case(
        *(f"{_TUNE} --workers 2 --dask tcp://h:1", 2),
        *("--workers and --dask", "both", "one of them", "give"),
    ),
    Case(
        *(f"{_TUNE} --dask tcp://127.0.0.1:9", 2),
        *("--dask", "tcp://127.0.0.1:9", "such as tcp://host:8786", "Give its address"),
        apart=True,
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracy", 2),
        *("evaluate", "'accuracy'", "module:function", "such as mymodule:evaluate"),
    ),
    Case(
        *(f"{_TUNE} --evaluate acuracies:accuracy", 2),
        *("evaluate", "no module 'acuracies'", "the current folder", "Did you mean 'accuracies'?"),
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracies:acuracy", 9),
        *("accuracies:acuracy", "'acuracy'", "Known: accuracy,", "Did you mean 'accuracy'"),
        apart=True,
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracies:number", 9),
        *("accuracies:number", "a int", _CALLABLE, "needs"),
        apart=True,
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracies:fails", 9),
        *("the float model", "ValueError: the labels are gone", "evaluate", "accuracies.py"),
        apart=True,
        traceback=True,
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracies:not_finite", 9),
        *("the float model's accuracy", "nan", "no loss can be told", "Mend evaluate, or the data"),
        apart=True,
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracies:no_number", 9),
        *(
            "accuracies:no_number",
            "'high'",
            "a number, or a dict with one named 'accuracy'",
            "needs",
        ),
        apart=True,
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracies:unnamed", 9),
        *("accuracies:unnamed", "'f1'", "'accuracy'", "is to be called"),
        apart=True,
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --evaluate accuracies:float_only --json", 8),
        *("best effort", "accuracy 0", "at most 1%", "allow a larger loss"),
        apart=True,
        prints=True,
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --data dta.npz", 2),
        *("data dta.npz", "no such file", "Known: data.npz", "Did you mean"),
    ),
    Case(
        *(f"{_TUNE} --data m.onnx", 2),
        *("data m.onnx", "'.onnx'", "Known: .csv, .jsonl, .npz, .parquet", AS_ALLOWED),
    ),
    Case(
        *(f"{_TUNE} --data d.npz --label z", 2),
        *("data d.npz", "'z'", "it has x, y", "name one of them"),
        files={"d.npz": _labelled},
    ),
    Case(
        *(f"{_TUNE} --data data.npz --batch-size 0", 2),
        *("'--batch-size'", "0", "1 or more", "give"),
    ),
    Case(
        *(f"{_TUNE} --shape xx=1x32", 2),
        *("shape", "'xx'", "Known: x", "Did you mean 'x'"),
    ),
    Case(
        *(f"{_TUNE} -o best.safetensors", 2),
        *("best.safetensors", "m.onnx is written as", ".onnx", "end the name so"),
    ),
    Case(
        *(f"{_TUNE} -o none/best.onnx", 6),
        *("the folder none of the output", "does not exist", "one that is there", "give"),
    ),
    Case(
        *(_TUNE, 6, "m.tuned.onnx", "exists", "-o", "--force to replace it"),
        files={"m.tuned.onnx": "mine"},
    ),
    Case(
        *(f"{_TUNE} --recipe-out conf.yaml", 2),
        *("--recipe-out", "conf.yaml is named twice", "a name of its own", "give"),
    ),
    Case(
        *(f"{_TUNE} --recipe-out best.txt", 2),
        *("--recipe-out", "best.txt", ".yaml or .yml", "end the name with"),
    ),
    Case(
        *(f"{_TUNE} --report data.npz", 2),
        *("--report", "data.npz", ".html or .htm", "end the name with"),
    ),
    Case(
        *(f"{_TUNE} --workspace data.npz", 6),
        *("the workspace data.npz", "is not a folder", "another one", "name"),
    ),
    Case(
        *("octavo tune topk.yaml --model m.onnx --data data.npz", 9),
        *("data data.npz: metric topk", "has none beside x", "the column `label`", "name another"),
        apart=True,
        files={"topk.yaml": f"{CONF}evaluation: {{accuracy: {{metric: {{topk: 1}}}}}}\n"},
        keeps=_KEPT,
    ),
    Case(
        *(f"{_TUNE} --data d.jsonl", 2),
        *("data d.jsonl, line 1", "Expecting property name", "one JSON object a line", "write"),
        files={"d.jsonl": "{x\n"},
    ),
    Case(
        *(f"{_TUNE} --data d.npz", 2),
        *("data d.npz", "label [3]", "as many in each", "make them of one length"),
        files={"d.npz": _uneven},
    ),
    Case(
        *(f"exec 9>>w/history.jsonl; flock 9; {_TUNE} --workspace w", 2),
        *("w/history.jsonl", "another search is writing it", "another workspace", "wait for that"),
        apart=True,
        files={"w/history.jsonl": ""},
    ),
    Case(
        *(f"({_FIRST}) >/dev/null 2>&1; {_TUNE} --recipe float16 --workspace w --resume", 2),
        *(
            "w/history.jsonl",
            "recipe.name was 'int8', is 'float16'",
            "what it was started with",
            "leave resuming out",
        ),
        apart=True,
        keeps=("w/*", "first.onnx"),
    ),
    Case(
        *(f"{_TUNE} --workspace w --resume", 2),
        *(
            "w/history.jsonl:1",
            "not a line of a history",
            "has no subject or version",
            "Move the file away",
        ),
        files={"w/history.jsonl": '{"kind": "start", "key": "", "value": {}}\n[]\n'},
    ),
    Case(
        *("octavo tune conf.yaml --model models:make", 2),
        *("--model models:make", "framework onnxrt_integerops", "a file", "change one of the two"),
    ),
    Case(
        *('octavo.tune.tune("m.onnx", strategy="atuo")', "OptionError"),
        *("strategy", "'atuo'", "Known: auto, ", "Did you mean 'auto'"),
    ),
    Case(
        *('octavo.tune.tune("m.onnx", objective="speed")', "OptionError"),
        *("objective", "'speed'", "Known: accuracy, ", AS_ALLOWED),
    ),
    Case(
        *('octavo.tune.tune("m.onnx", criterion=float("nan"))', "OptionError"),
        *("criterion", "nan", "a finite number", AS_ALLOWED),
    ),
    Case(
        *('octavo.tune.tune("m.onnx", metric="topk")', "OptionError"),
        *("metric", "needs data", ".npz, .jsonl, .csv or .parquet", "give data"),
    ),
    Case(
        *('octavo.tune.tune("m.onnx", metric="tpok", data="data.npz")', "OptionError"),
        *("metric", "'tpok'", "Known: ", "Did you mean 'topk'"),
    ),
    Case(
        *('octavo.tune.tune("m.onnx", max_trials=0)', "OptionError"),
        *("max_trials", "0", "a whole number from 1", AS_ALLOWED),
    ),
    Case(
        *('octavo.tune.tune("m.onnx", timeout=-1)', "OptionError"),
        *("timeout", "-1", "0 (no clock) or more", AS_ALLOWED),
    ),
    Case(
        *('octavo.tune.Quantization("conf.yaml").modell = 3', "OptionError"),
        *("Quantization", "'modell'", "Known: ", "Did you mean 'model'"),
    ),
    Case(
        *('octavo.tune.Quantization("conf.yaml").fit()', "OptionError"),
        *("conf.yaml", "names model 'm', not its file", "an ONNX file", "give it"),
    ),
)
