"""Places that cannot be written, and results that are not good enough to be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.error_cases.case import AS_ALLOWED, Case
from benchmarks.relu_chain import mlp

TITLE = "Outputs, inputs of the check, verification"


def _large(path: Path) -> None:
    onnx.save(mlp(2, 512), path)


def _not_finite(path: Path) -> None:
    """One weight takes its tensor's scale, so that small ones become 0; then comes 1/x."""
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    w[:, 1], w[0, 1], w[0, 0] = 1e-4, 1e-4, 100
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
        helper.make_node("Gather", ["h", "second"], ["g"], axis=1),
        helper.make_node("Reciprocal", ["g"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array([1]), "second")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    np.savez(path.with_name("ones.npz"), x=np.ones((4, 64), np.float32))


def _lookup(path: Path) -> None:
    """A table of 100 rows; ids.npz asks for row 999."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="lookup")]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    table = numpy_helper.from_array(np.ones((100, 64), np.float32), "table")
    graph = helper.make_graph(nodes, "g", [ids], [y], [table])
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    np.savez(path.with_name("ids.npz"), ids=np.array([999]))


def _arrays(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


_FLOATS = np.ones((4, 32), np.float32)
_QUANTIZE = "octavo quantize m.onnx"
CASES = (
    Case(
        *(f"{_QUANTIZE} -o none/out.onnx", 6),
        *("the folder none of the output", "does not exist", "one that is there", "give"),
    ),
    Case(f"{_QUANTIZE} -o .", 6, "the output .", "is a directory", "a file name", "give"),
    Case(f"{_QUANTIZE} -o m.onnx", 6, "the output m.onnx", "is the input", "another name", "give"),
    Case(
        f"{_QUANTIZE} -o /dev/full", 6, "/dev/full", "is not a regular file", "another name", "give"
    ),
    Case(
        *("octavo quantize m.onnx", 6),
        *("m.int8.onnx", "exists", "-o", "--force to replace it"),
        files={"m.int8.onnx": "mine"},
    ),
    Case(
        *("octavo quantize models:make", 6),
        *("make.int8.safetensors", "exists", "-o", "--force to replace it"),
        files={"make.int8.safetensors": "mine"},
    ),
    Case(
        *("octavo convert-target portable.onnx --to native", 6),
        *("portable.native.onnx", "exists", "-o", "--force to replace it"),
        files={"portable.native.onnx": "mine"},
    ),
    Case(
        *(f"{_QUANTIZE} -o {'n' * 300}.onnx", 6),
        *("nnn.onnx", "File name too long", "a shorter name", "give"),
    ),
    Case(
        *(f"{_QUANTIZE} -o disk/out.onnx", 6),
        *(
            "disk/out.onnx",
            "Read-only file system",
            "a disk that is not read-only",
            "give a folder",
        ),
        mount="ro",
    ),
    Case(
        *("octavo quantize large.onnx -o disk/out.onnx", 6),
        *("disk/out.onnx", "No space left on device", "another disk", "free some space"),
        mount="size=64k",
        files={"large.onnx": _large},
    ),
    Case(
        *("octavo quantize large.onnx --external-data -o disk/out.onnx", 6),
        *("disk/out.onnx", "No space left on device", "another disk", "free some space"),
        mount="size=64k",
        files={"large.onnx": _large},
    ),
    Case(
        *("ulimit -f 8; octavo quantize large.onnx -o out.onnx", 6),
        *("out.onnx", "File too large", "another disk", "raise the limit on file sizes"),
        apart=True,
        files={"large.onnx": _large},
    ),
    Case(
        *(f"{_QUANTIZE} -o out.onnx --report none/page.html", 6),
        *("the folder none of the output", "does not exist", "one that is there", "give"),
    ),
    Case(
        *("octavo quantize models:make -o out.onnx", 2),
        *(
            "-o out.onnx",
            "models:make is a PyTorch model",
            ".safetensors",
            "octavo.torch.export_onnx",
        ),
    ),
    Case(
        *(f"{_QUANTIZE} --inputs gone.npz", 2),
        *("inputs gone.npz", "no such file", ".npz or .jsonl", "give"),
    ),
    Case(
        *(f"{_QUANTIZE} --inputs conf.yaml", 2),
        *("inputs conf.yaml", "'.yaml'", ".npz or .jsonl", "give"),
    ),
    Case(
        *(f"{_QUANTIZE} --inputs bad.npz", 2),
        *(
            "inputs bad.npz",
            "cannot be read: it is no .npz archive",
            ".npz",
            "write arrays with numpy.savez",
        ),
        files={"bad.npz": "no archive"},
    ),
    Case(
        *(f"{_QUANTIZE} --inputs i.npz", 2),
        *("inputs i.npz", "'xx'", "Known: x", "Did you mean 'x'?"),
        files={"i.npz": _arrays(xx=_FLOATS)},
    ),
    Case(
        *(f"{_QUANTIZE} --inputs i.npz", 2),
        *("inputs i.npz", "'x'", "is missing", "the model takes x"),
        files={"i.npz": _arrays()},
    ),
    Case(
        *(f"{_QUANTIZE} --inputs i.npz", 2),
        *("inputs i.npz", "[4, 31]", "[m,32]", "the model takes"),
        files={"i.npz": _arrays(x=_FLOATS[:, 1:])},
    ),
    Case(
        *(f"{_QUANTIZE} --inputs i.npz", 2),
        *("inputs i.npz: input 'x'", "np.str_('a')", "takes float", AS_ALLOWED),
        files={"i.npz": _arrays(x=np.full((4, 32), "a"))},
    ),
    Case(
        *(f"{_QUANTIZE} --inputs i.jsonl", 2),
        *(
            "inputs i.jsonl, line 2",
            "a list",
            "maps names of inputs to arrays",
            'give one such as {"x"',
        ),
        files={"i.jsonl": f'{{"x": {[[0.5] * 32]}}}\n[1, 2]\n'},
    ),
    Case(
        *(f"{_QUANTIZE} --inputs i.jsonl", 2),
        *("inputs i.jsonl, line 1", "Expecting property name", "one JSON object a line", "write"),
        files={"i.jsonl": "{x\n"},
    ),
    Case(
        *("octavo quantize lookup.onnx --inputs ids.npz", 2),
        *("the float model rejects the inputs", "idx=999", "within", "give inputs"),
        files={"lookup.onnx": _lookup},
    ),
    Case(
        *(f"{_QUANTIZE} --recipe strict.yaml", 5),
        *("Look at layer 'layer", "error 4.", "max_error 1e-12", "exclude it"),
        files={"strict.yaml": "base: int8\nmax_error: 1.0e-12\n"},
    ),
    Case(
        *("octavo quantize inf.onnx --recipe int8-per-tensor --inputs ones.npz", 5),
        *("output 'y'", "4 non-finite numbers", "finite", "Look at layer 'fc' first: exclude it"),
        files={"inf.onnx": _not_finite},
    ),
)
