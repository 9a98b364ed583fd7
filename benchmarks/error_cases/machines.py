"""What a machine lacks: instruction sets, packages, a new enough ONNX Runtime; damaged files."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import helper

import octavo.onnx
from benchmarks.error_cases.case import Case
from benchmarks.relu_chain import mlp

TITLE = "Machines, packages, damaged weights"


def _demanding(path: Path) -> None:
    """A quantized model that says that it needs an ONNX Runtime of the future."""
    octavo.onnx.quantize_dynamic(mlp(2, 32), path, verify=False)
    model = onnx.load(path)
    props = {p.key: p.value for p in model.metadata_props} | {"octavo.min_onnxruntime": "99.0"}
    del model.metadata_props[:]
    helper.set_model_props(model, props)
    onnx.save(model, path)


def _flipped(path: Path) -> None:
    """A native model with one bit of a weight turned over."""
    octavo.onnx.quantize_dynamic(mlp(2, 32), path, target="native", verify=False)
    model = onnx.load(path)
    (weight,) = [i for i in model.graph.initializer if i.name == "w0_quantized"]
    raw = bytearray(weight.raw_data)
    raw[100] ^= 1
    weight.raw_data = bytes(raw)
    onnx.save(model, path)


def _short(path: Path) -> None:
    """A native model whose data file is cut short."""
    octavo.onnx.quantize_dynamic(
        mlp(2, 300), path, target="native", verify=False, use_external_data_format=True
    )
    data = path.with_name(f"{path.name}.data")
    data.write_bytes(data.read_bytes()[:5000])


_NO_NETWORK = (
    "PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= PIP_RETRIES=0 "
    "PIP_INDEX_URL=http://127.0.0.1:9 OCTAVO_CACHE=cache"
)
_DOCTOR = "octavo doctor new.onnx"
CASES = (
    Case(
        *("OCTAVO_ISA=avx9 octavo quantize m.onnx --target native -o out.onnx", 2),
        *("OCTAVO_ISA", "'avx9'", "this processor runs", "choose one of those, or leave it unset"),
        apart=True,
    ),
    Case(
        *("OCTAVO_ISA=avx9 octavo doctor", 2),
        *("OCTAVO_ISA", "'avx9'", "this processor runs", "choose one of those, or leave it unset"),
        apart=True,
    ),
    Case(
        *("kernels.use_isa('avx9')", "ValueError"),
        *("instruction set", "'avx9'", "this processor runs", "choose one of those"),
    ),
    Case(
        *(_DOCTOR, 7),
        *("new.onnx", "installed is 1.", "99.0 or newer", "pip install 'onnxruntime>=99.0'"),
        prints=True,
        files={"new.onnx": _demanding},
    ),
    Case(
        *("octavo bench new.onnx", 3),
        *("new.onnx", "installed is 1.", "99.0 or newer", "pip install 'onnxruntime>=99.0'"),
        files={"new.onnx": _demanding},
    ),
    Case(
        *("old_runtime.register('1.16.3')", "RuntimeError"),
        *("octavo's operators", "this is 1.16.3", "ONNX Runtime 1.17 or newer"),
        "octavo convert-target --to portable",
    ),
    Case(
        *("octavo bench bad.onnx", 3),
        *("node 'layer0' (ai.octavo.Linear)", "W does not hold what was written", "checksum"),
        "get the file again",
        files={"bad.onnx": _flipped},
    ),
    Case(
        *("octavo compare m.onnx bad.onnx", 3),
        *("bad.onnx", "W does not hold what was written", "checksum", "get the file again"),
        files={"bad.onnx": _flipped},
    ),
    Case(
        *("octavo bench bad.onnx", 3),
        *("bad.onnx", "bad.onnx.data is truncated", "ends at byte", "get the file again"),
        files={"bad.onnx": _short},
    ),
    Case(
        *("octavo convert-target bad.onnx --to portable", 3),
        *(
            "node 'layer0'",
            "W does not hold what was written",
            "checksum",
            "get the file again",
        ),
        files={"bad.onnx": _flipped},
    ),
    Case(
        *("ort.InferenceSession('native.onnx', providers=['CPUExecutionProvider'])", "Fail"),
        *("native.onnx", "ai.octavo", "", ""),
        why="ONNX Runtime's own message; the docs and the file's metadata say the rest",
    ),
    Case(
        *(f"{_NO_NETWORK} python -m benchmarks.zoo.fetch magika", 1),
        *("cannot fetch magika", "magika==1.0.3", "put the archive by hand", "Check the network"),
        apart=True,
        keeps=("cache/*",),
    ),
    Case(
        *("without torch octavo quantize models:make", 3),
        *("PyTorch models", "PyTorch, which is not installed", "build for CPUs", "pip install"),
        apart=True,
    ),
    Case(
        *("without jinja2 octavo quantize m.onnx --report page.html -o out.onnx", 2),
        *("--report", "jinja2, which is not installed", "jinja2", "pip install"),
        apart=True,
    ),
    Case(
        *("without optuna octavo tune tpe.yaml --model m.onnx", 2),
        *("strategy 'tpe'", "needs Optuna", "optuna", "'auto' needs nothing more"),
        apart=True,
        files={
            "tpe.yaml": "model: {name: m, framework: onnxrt_integerops}\n"
            "quantization: {approach: post_training_dynamic_quant}\n"
            "tuning: {strategy: {name: tpe}, accuracy_criterion: {relative: 0.01}}\n"
        },
        keeps=("octavo_tuning/*",),
    ),
    Case(
        *("without distributed octavo tune conf.yaml --model m.onnx --dask tcp://h:1", 2),
        *("--dask", "Dask, which is not installed", "dask[distributed]", "pip install"),
        apart=True,
    ),
    Case(
        *("without pyarrow octavo tune conf.yaml --model m.onnx --data d.csv", 2),
        *("data d.csv", "pyarrow, which is not installed", "pyarrow", "pip install"),
        apart=True,
        files={"d.csv": "x,label\n1,2\n"},
    ),
)
