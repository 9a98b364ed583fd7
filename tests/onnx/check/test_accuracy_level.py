"""Which accuracy level a file's MatMulNBits gets, and what the report says of it."""

from __future__ import annotations

from inspect import unwrap
from pathlib import Path
from typing import Any

import onnx
import pytest

from octavo.errors import VerificationError
from octavo.onnx import convert_target, quantize_dynamic
from octavo.onnx.check import accuracy_level
from octavo.onnx.check.accuracy_level import Compared
from octavo.recipe.recipe import PRESETS
from octavo.results.report import Report
from tests.graphs import mlp, save, snapshot


def levels(path: Path) -> set[int]:
    nodes = onnx.load(path).graph.node
    found = [a.i for n in nodes for a in n.attribute if a.name == "accuracy_level"]
    assert len(found) == 2
    return set(found)


def quantized(folder: Path, **options: Any) -> tuple[Path, Report]:
    out = folder / "out.onnx"
    return out, quantize_dynamic(mlp(width=64), out, **{"recipe": "int4", **options})


def note_of(report: Report) -> str:
    (note,) = [note for note in report.notes if "MatMulNBits" in note]
    return note


@pytest.mark.parametrize("external", [False, True], ids=["one-file", "data-file"])
def test_level_4_is_compared_with_level_0(external: bool, tmp_path: Path) -> None:
    out, report = quantized(tmp_path, use_external_data_format=external)
    assert levels(out) == {4}
    note = note_of(report)
    assert note.startswith("MatMulNBits at accuracy level 4, activations in integers: outputs ")
    assert len(list(tmp_path.iterdir())) == 1 + external, "nothing is left of the comparison"


FOUND = {
    "slower": (Compared(1e-5, 3.04), "level 4 takes 3.0 times as long here"),
    "further away than the weights' error": (Compared(0.31, 0.1), "level 4 gives outputs 0.3 away"),
    "not finite": (Compared(float("inf"), None), "level 4 gives outputs inf away"),
}


@pytest.mark.parametrize("case", FOUND)
def test_level_0_is_taken(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, why = FOUND[case]
    monkeypatch.setattr(accuracy_level, "_compare", lambda *_: found)
    out, report = quantized(tmp_path)
    assert levels(out) == {0}
    assert note_of(report) == f"MatMulNBits at accuracy level 0, activations in float: {why}"
    assert report.verification.status == "passed"


@pytest.mark.parametrize("found", [Compared(9e-3, 1.19), Compared(1e-5, None), None])
def test_level_4_stays(
    found: Compared | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small errors, times that may be noise, runs too short to tell, models that are too large."""
    monkeypatch.setattr(accuracy_level, "_compare", lambda *_: found)
    out, report = quantized(tmp_path)
    assert levels(out) == {4}
    assert note_of(report).startswith("MatMulNBits at accuracy level 4")


def test_level_0_where_level_4_does_not_give_what_was_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = unwrap(quantize_dynamic).__globals__["verify_model"]

    def at_level(source: Any, path: Path, *more: Any) -> Any:
        if levels(path) == {4}:
            raise VerificationError("wrong tokens")
        return verify(source, path, *more)

    monkeypatch.setitem(unwrap(quantize_dynamic).__globals__, "verify_model", at_level)
    out, report = quantized(tmp_path)
    assert levels(out) == {0}
    assert note_of(report).endswith("level 4 does not give what was promised")


def test_where_neither_level_passes_nothing_is_written(tmp_path: Path) -> None:
    strict = PRESETS["int4"].to_dict() | {"max_error": 1e-9}
    before = snapshot(tmp_path)
    with pytest.raises(VerificationError, match="too far from the float one"):
        quantized(tmp_path, recipe=type(PRESETS["int4"]).from_dict(strict))
    assert snapshot(tmp_path) == before


def test_unverified_files_have_level_4_and_files_without_such_nodes_no_note(tmp_path: Path) -> None:
    out, report = quantized(tmp_path, verify=False)
    assert levels(out) == {4} and not report.notes
    native = quantize_dynamic(
        mlp(width=64), tmp_path / "native.onnx", recipe="int4", target="native"
    )
    assert not any("MatMulNBits" in note for note in native.notes)


def test_conversion_to_portable_chooses_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(mlp(width=64), tmp_path / "float.onnx")
    native, portable = tmp_path / "native.onnx", tmp_path / "portable.onnx"
    quantize_dynamic(source, native, recipe="int4", target="native")
    done = convert_target(native, portable, to="portable")
    assert levels(portable) == {4} and any("accuracy level 4" in note for note in done.notes)
    monkeypatch.setattr(accuracy_level, "_compare", lambda *_: Compared(0.0, 2.0))
    convert_target(native, portable, to="portable")
    assert levels(portable) == {0}
