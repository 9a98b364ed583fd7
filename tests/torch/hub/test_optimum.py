"""Exported folders in optimum and sentence-transformers, which open them as their own.

They need transformers 4.57, and with it an environment of their own: $OCTAVO_OPTIMUM_PYTHON, or
.venv-optimum/bin/python as `make test-all` makes it. Octavo itself is found in .venv.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.zoo.minilm_text import model_dir, questions
from octavo.torch import quantize_dynamic
from octavo.torch.hub import export
from tests.models import seeded, tokens
from tests.torch.hub.families import BY_NAME

pytestmark = pytest.mark.slow

VARIABLE = "OCTAVO_OPTIMUM_PYTHON"
DEFAULT = Path(__file__).parents[3] / ".venv-optimum" / "bin" / "python"
NEW_TOKENS = 6
_OPENED = """
import json, sys
import torch
from optimum import onnxruntime as optimum
import octavo.onnx
folder, kind, given = sys.argv[1], sys.argv[2], torch.load(sys.argv[3])
options = octavo.onnx.session_options()
model = getattr(optimum, kind).from_pretrained(folder, session_options=options)
"""
GENERATE = f"""{_OPENED}
found = model.generate(**given, max_new_tokens=6, min_new_tokens=6, do_sample=False, num_beams=1)
print(json.dumps(found.tolist()))
"""
ENCODE = """
import json, sys
import octavo.onnx
from sentence_transformers import SentenceTransformer
options = octavo.onnx.session_options()
model = SentenceTransformer(sys.argv[1], backend="onnx", model_kwargs={"session_options": options})
print(json.dumps(model.encode(json.load(open(sys.argv[2]))).tolist()))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    stated = os.environ.get(VARIABLE)
    found = Path(stated) if stated else DEFAULT
    if not found.exists():
        assert not stated, f"{VARIABLE} names {stated}, which does not exist"
        pytest.skip(
            f"NOT TESTED with optimum: there is no {found}. `make test-all` makes it; {VARIABLE} "
            "names another interpreter"
        )
    return found


def answer(python: Path, script: str, *arguments: str | Path, cwd: Path) -> Any:
    """What the script, run there, prints last, as JSON."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), "-c", script, *map(str, arguments)],
        env={**kept, "HF_HUB_OFFLINE": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def model_of(name: str) -> Any:
    """With weights so large that the most probable token is so by far.

    Not T5's queries and keys, whose products nothing divides: a softmax of scores 36 times as large
    turns rounding into other tokens.
    """
    model = BY_NAME[name].make()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() > 1 and key.split(".")[-2] not in ("q", "k"):
                parameter.mul_(6)
    config = model.generation_config
    config.eos_token_id, config.pad_token_id = None, 0
    config.suppress_tokens = config.begin_suppress_tokens = None
    return model


TEXT = {"input_ids": tokens(2, 9, seed=1)}
PADDED = {**TEXT, "attention_mask": (torch.arange(9) >= torch.tensor([[0], [3]])).long()}
SOUND = {"input_features": seeded(2, 80, 60, seed=1)}


@pytest.mark.vnni("t5-ORTModelForSeq2SeqLM-given2-portable")  # optimum opens the file itself
@pytest.mark.parametrize("target", ["native", "portable"])
@pytest.mark.parametrize(
    ("name", "kind", "given"),
    [
        ("llama", "ORTModelForCausalLM", PADDED),
        ("gpt2", "ORTModelForCausalLM", PADDED),
        ("t5", "ORTModelForSeq2SeqLM", TEXT),
        ("bart", "ORTModelForSeq2SeqLM", TEXT),
        ("whisper", "ORTModelForSpeechSeq2Seq", SOUND),
    ],
)
def test_models_generate(
    name: str, kind: str, given: dict[str, Any], target: str, python: Path, tmp_path: Path
) -> None:
    """The tokens are those of the quantized model in PyTorch, which keeps its cache itself."""
    model = model_of(name)
    export(model, tmp_path / "out", target)
    torch.save(given, tmp_path / "given.pt")
    with torch.no_grad():
        wanted = quantize_dynamic(model, recipe="int8").generate(
            **given, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False
        )
    found = answer(python, GENERATE, tmp_path / "out", kind, tmp_path / "given.pt", cwd=tmp_path)
    same = np.mean(np.array(found) == wanted.numpy())
    assert same >= 0.8, (found, wanted.tolist())


def test_sentence_transformers_encodes(python: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    floating = SentenceTransformer(str(model_dir()), device="cpu")
    texts = list(questions().texts[:64])
    export(floating, tmp_path / "out")
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    found = answer(python, ENCODE, tmp_path / "out", tmp_path / "texts.json", cwd=tmp_path)
    cosines = (floating.encode(texts) * np.array(found, np.float32)).sum(1)
    assert cosines.mean() >= 0.998 and cosines.min() >= 0.996
