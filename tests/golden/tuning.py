"""`octavo tune` and `octavo.tune`: configurations, strategies, what is told, where nothing is
timed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.golden import commands
from tests.golden.cli import MEASURED
from tests.golden.corpus import Case
from tests.golden.facts import Facts
from tests.golden.onnx_linear import mlp

STRATEGIES = (
    "auto",
    "basic",
    "bayesian",
    "exhaustive",
    "mse",
    "random",
    "tpe",
    "conservative",
    "hawq_v2",
    "mse_v2",
)
CONF = """\
model: {{name: m, framework: onnxrt_integerops}}
quantization: {{approach: {approach}}}
tuning:
  strategy: {{name: {strategy}}}
  accuracy_criterion: {{{criterion}}}
  objective: modelsize
  exit_policy: {{timeout: 0, max_trials: {trials}}}
  random_seed: 7
"""
EVALUATE = """\
import numpy as np

def accuracy(session):
    x = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    name = session.get_inputs()[0].name
    y = session.run(None, {name: x})[0]
    return float(1 / (1 + np.abs(y).mean()))
"""


def tuned(
    strategy: str,
    *,
    approach: str = "post_training_dynamic_quant",
    criterion: str = "relative: 0.01",
    trials: int = 4,
) -> Case:
    """The rows of a tuning run, without what is timed."""

    def run(folder: Path) -> Facts:
        proto, _ = mlp(3, 32)
        onnx.save(proto, folder / "m.onnx")
        (folder / "evaluate.py").write_text(EVALUATE)
        (folder / "conf.yaml").write_text(
            CONF.format(strategy=strategy, approach=approach, criterion=criterion, trials=trials)
        )
        x = np.random.default_rng(1).standard_normal((8, 32)).astype(np.float32)
        np.savez(folder / "d.npz", x=x, label=np.zeros(8, np.int64))
        line = (
            "octavo tune conf.yaml --model m.onnx --evaluate evaluate:accuracy -o best.onnx "
            "--recipe-out best.yaml"
        )
        with commands.within(folder):
            code, out, err = commands.command(line, folder)
        facts: Facts = {
            "exit": code,
            "err": [MEASURED.sub("N", each) for each in err.splitlines()],
            "words": sorted(set(re.findall(r"[a-zA-Z][a-zA-Z-]{3,}", out))),
            "files": sorted(p.name for p in folder.iterdir() if p.name not in ("__pycache__",)),
        }
        return facts

    return run


def configurations(folder: Path) -> Facts:
    """What a configuration may say, read and refused."""
    facts: Facts = {}
    base: dict[str, Any] = {"model": "{name: m, framework: onnxrt_integerops}"}
    variants = {
        "device": {"device": "gpu"},
        "objective": {"tuning": "{objective: performance}"},
        "objectives": {
            "tuning": "{multi_objectives: {objective: [accuracy, performance], weight: [0.7, 0.3]}}"
        },
        "op wise": {"quantization": "{op_wise: {layer0: {weight: {dtype: [fp32]}}}}"},
        "model wise": {
            "quantization": "{model_wise: {weight: {granularity: [per_channel], scheme: [sym]}}}"
        },
        "unknown": {"quantisation": "{}"},
        "optype": {"quantization": "{optype_wise: {MatMul: {weight: {dtype: [int8]}}}}"},
    }
    proto, _ = mlp(2, 32)
    onnx.save(proto, folder / "m.onnx")
    (folder / "evaluate.py").write_text(EVALUATE)
    for name, said in variants.items():
        text = "".join(f"{key}: {value}\n" for key, value in {**base, **said}.items())
        (folder / "c.yaml").write_text(text)
        with commands.within(folder):
            code, _, err = commands.command(
                "octavo tune c.yaml --model m.onnx --evaluate evaluate:accuracy", folder
            )
        facts[name] = [f"{code}", *(MEASURED.sub("N", each) for each in err.splitlines())]
    return facts


CASES: dict[str, Case] = {
    **{f"strategy {s}": tuned(s) for s in STRATEGIES},
    "static": tuned("basic", approach="post_training_static_quant"),
    "auto approach": tuned("basic", approach="post_training_auto_quant"),
    "never met": tuned("basic", criterion="absolute: -0.5", trials=2),
    "configurations": configurations,
}
