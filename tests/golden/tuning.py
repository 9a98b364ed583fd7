"""`octavo tune`: what each strategy says and writes, where nothing is timed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import onnx

from tests.golden import commands
from tests.golden.corpus import Case
from tests.golden.facts import Facts
from tests.golden.onnx_linear import mlp

SEARCHES = ("auto", "basic", "bayesian", "exhaustive", "mse", "random", "tpe")
STRATEGIES = (*SEARCHES, "conservative", "hawq_v2", "mse_v2")
CONF = """\
model: {{name: m, framework: onnxrt_integerops}}
quantization: {{approach: post_training_{approach}_quant}}
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
    folder: Path,
    *,
    strategy: str = "basic",
    approach: str = "dynamic",
    criterion: str = "relative: 0.01",
    trials: int = 4,
) -> Facts:
    """The rows of a tuning run, without what is timed."""
    onnx.save(mlp(3, 32)[0], folder / "m.onnx")
    (folder / "evaluate.py").write_text(EVALUATE)
    said = {"strategy": strategy, "approach": approach, "criterion": criterion, "trials": trials}
    (folder / "conf.yaml").write_text(CONF.format(**said))
    line = "octavo tune conf.yaml --model m.onnx --evaluate evaluate:accuracy -o best.onnx"
    code, out, err = commands.command(f"{line} --recipe-out best.yaml", folder)
    words = sorted(set(re.findall(r"[a-zA-Z][a-zA-Z-]{3,}", out)))
    return {"exit": code, "err": err, "words": words, **commands.files(folder)}


CASES: dict[str, Case] = {
    **{f"strategy {s}": partial(tuned, strategy=s) for s in STRATEGIES},
    "never met": partial(tuned, criterion="absolute: -0.5", trials=2),
}
