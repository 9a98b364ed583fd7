"""The texts of errors: of the command line, with the exit code, and of calls in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tests.golden import commands
from tests.golden.corpus import Case
from tests.golden.error_lines import LINES, Line
from tests.golden.facts import Facts, digest
from tests.golden.onnx_linear import mlp

Change = Callable[[onnx.ModelProto], object]


def said(line: str, files: dict[str, str], folder: Path) -> str:
    """What one line ends with."""
    written = []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else None
        path.write_text(content)
        written.append((path, before))
    try:
        with commands.within(folder):
            if not line.startswith("octavo "):
                return commands.call(line, folder)
            code, out, err = commands.command(line, folder)
            return f"{code} {err}" + (f"\nSTDOUT {out}" if out else "")
    finally:
        for path, before in written:
            path.unlink() if before is None else path.write_bytes(before)


def section(lines: list[Line]) -> Case:
    """A case of many lines, each in the same folder."""

    def run(folder: Path) -> Facts:
        commands.fill(folder)
        facts: Facts = {}
        for line, files in lines:
            label = (
                line
                if not files
                else f"{line} [{digest(repr(sorted(files.items())).encode())[:4]}]"
            )
            facts[label] = said(line, files, folder).splitlines()
        return facts

    return run


def _drop(name: str) -> Change:
    return lambda m: m.ClearField(name) if name == "opset_import" else m.graph.ClearField(name)


def _lose(m: onnx.ModelProto) -> None:
    del m.graph.initializer[1]


def _opset(version: int) -> Change:
    def change(m: onnx.ModelProto) -> None:
        m.opset_import[0].version = version

    return change


def _fill(value: float) -> Change:
    def change(m: onnx.ModelProto) -> None:
        full = np.full((32, 32), value, np.float32)
        m.graph.initializer[0].CopyFrom(numpy_helper.from_array(full, "w0"))

    return change


def _sparse(m: onnx.ModelProto) -> None:
    sparse = m.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "s"))


def _unknown_op(m: onnx.ModelProto) -> None:
    m.graph.node[1].op_type = "Reluu"


def _unknown_domain(m: onnx.ModelProto) -> None:
    m.graph.node[1].domain = "com.nobody"
    m.opset_import.append(onnx.helper.make_opsetid("com.nobody", 1))


def _twice(m: onnx.ModelProto) -> None:
    m.graph.node[2].output[0] = m.graph.node[0].output[0]


def _other_shape(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones((31, 32), np.float32), "w1"))


DAMAGED: dict[str, Change] = {
    "no nodes": _drop("node"),
    "no outputs": _drop("output"),
    "no opset": _drop("opset_import"),
    "lost weight": _lose,
    "opset 6": _opset(6),
    "opset 99": _opset(99),
    "nan": _fill(np.nan),
    "infinity": _fill(np.inf),
    "sparse": _sparse,
    "unknown operator": _unknown_op,
    "unknown domain": _unknown_domain,
    "output twice": _twice,
    "other shape": _other_shape,
}


def damaged(folder: Path) -> Facts:
    """Models that cannot be read or handled."""
    facts: Facts = {}
    for name, change in DAMAGED.items():
        model, _ = mlp(2, 32)
        change(model)
        path = folder / "d.onnx"
        path.write_bytes(model.SerializeToString())
        for line in (
            "octavo quantize d.onnx -o out.onnx",
            "octavo quantize d.onnx -o out.onnx --target native",
            "octavo inspect d.onnx --json",
        ):
            facts[f"{name}: {line}"] = _first(said(line, {}, folder))
            (folder / "out.onnx").unlink(missing_ok=True)
    return facts


def _first(text: str) -> list[str]:
    """All of an error, the exit code of a success."""
    return text.splitlines() if not text.startswith("0 ") else ["0"]


def external(folder: Path) -> Facts:
    """Weights in another file, which is missing, short, or lies elsewhere."""
    facts: Facts = {}
    for keep in (0, 5000, -1):
        model, _ = mlp(2, 64)
        onnx.save(
            model, folder / "e.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
        )
        data = folder / "w.bin"
        if keep == 0:
            data.unlink()
        elif keep > 0:
            data.write_bytes(data.read_bytes()[:keep])
        for line in ("octavo quantize e.onnx -o out.onnx", "octavo inspect e.onnx"):
            facts[f"{keep} bytes: {line}"] = _first(said(line, {}, folder))
        data.unlink(missing_ok=True)
        (folder / "out.onnx").unlink(missing_ok=True)
    return facts


def inputs(folder: Path) -> Facts:
    """Inputs of the check that do not fit."""
    commands.fill(folder)
    facts: Facts = {}
    arrays = {
        "wrong name": {"z": np.ones((2, 32), np.float32)},
        "wrong size": {"x": np.ones((2, 31), np.float32)},
        "wrong rank": {"x": np.ones((2, 2, 32), np.float32)},
        "wrong type": {"x": np.ones((2, 32), np.float64)},
        "integers": {"x": np.ones((2, 32), np.int64)},
        "nan": {"x": np.full((2, 32), np.nan, np.float32)},
        "empty": {"x": np.ones((0, 32), np.float32)},
        "text": {"x": np.array(["a", "b"])},
        "more": {"x": np.ones((2, 32), np.float32), "y": np.ones(2, np.float32)},
    }
    for name, found in arrays.items():
        np.savez(folder / "i.npz", **found)
        line = "octavo quantize m.onnx --inputs i.npz -o out.onnx"
        facts[name] = _first(said(line, {}, folder))
        (folder / "out.onnx").unlink(missing_ok=True)
    return facts


def flipped(folder: Path) -> Facts:
    """A native file whose weights are not what was written."""
    commands.fill(folder)
    model = onnx.load(folder / "native.onnx")
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > 1000:
            data = bytearray(tensor.raw_data)
            data[500] ^= 8
            tensor.raw_data = bytes(data)
    onnx.save(model, folder / "bad.onnx")
    lines = (
        "octavo compare m.onnx bad.onnx",
        "octavo convert-target bad.onnx --to portable -o o.onnx",
        "octavo bench bad.onnx --seconds 0.05",
    )
    return {line: _first(said(line, {}, folder)) for line in lines}


def safetensors(folder: Path) -> Facts:
    """PyTorch files that are not whole."""
    commands.fill(folder)
    raw = (folder / "q.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    variants = {
        "cut": raw[:-100],
        "more": raw + b"abc",
        "flipped": raw[: length + 200] + bytes([raw[length + 200] ^ 4]) + raw[length + 201 :],
        "tiny": b"abc",
    }
    facts: Facts = {}
    for name, data in variants.items():
        (folder / "b.safetensors").write_bytes(data)
        facts[name] = said(
            'octavo.torch.load("b.safetensors", models.make)', {}, folder
        ).splitlines()
    return facts


CASES: dict[str, Case] = {
    **{title.lower(): section(lines) for title, lines in LINES.items()},
    "damaged models": damaged,
    "external data": external,
    "inputs that do not fit": inputs,
    "flipped bits": flipped,
    "safetensors": safetensors,
}
