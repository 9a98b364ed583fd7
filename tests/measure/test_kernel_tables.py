"""Which of Octavo's kernels run on a processor, and what others would gain."""

from __future__ import annotations

import pytest

from octavo.core import kernels
from octavo.core.layer import Kind, Layer
from octavo.measure import doctor
from octavo.measure.kernel_tables import (
    IN_USE,
    NOT_HERE,
    REFUSED,
    RUNS,
    TABLES,
    kernel_tables,
    slower_by_choice,
    work_of_layers,
)
from octavo.results.report import LayerOutcome
from octavo.results.stored import outcomes_to_json


def test_each_table_is_in_use_or_runs_or_is_another_processors() -> None:
    found = {t.name: t for t in kernel_tables(("avx512vnni", "avx2", "reference"), "avx512vnni")}
    states = {"amx": NOT_HERE, "avx512vnni": IN_USE, "avx2": RUNS}
    assert states.items() <= {name: t.state for name, t in found.items()}.items()
    assert found["avx512vnni"].many_rows == 1
    slower, faster = found["avx2"].many_rows, found["amx"].many_rows
    assert slower is not None and faster is not None
    assert slower < 1 < faster
    assert "reference" not in found, "it is said where it is all there is"


def test_a_makers_own_speeds_count_for_what_runs_here() -> None:
    runnable = ("avx512vnni", "avx512", "avx2", "reference")
    ours, theirs = (
        {t.name: t.many_rows or 0 for t in kernel_tables(runnable, "avx512vnni", amd=amd)}
        for amd in (True, False)
    )
    assert ours["avx2"] > theirs["avx2"], "Zen 4 runs an operation of 512 bits as two"
    assert ours["amx"] > theirs["amx"]


def test_without_vectors_the_reference_is_in_use_and_nothing_is_compared() -> None:
    found = {t.name: t for t in kernel_tables(("avx2", "reference"), "reference")}
    assert found["reference"].state == IN_USE
    assert found["avx2"].state == RUNS
    assert found["avx2"].many_rows is None
    (alone,) = kernel_tables(("reference",), "reference")
    assert (alone.name, alone.state) == ("reference", IN_USE)


def test_every_table_of_this_processor_is_known() -> None:
    assert set(kernels.isas()) <= {*(t.name for t in TABLES), "reference"}


def test_a_slower_choice_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ISA", "avx2")
    (found,) = slower_by_choice(("avx512vnni", "avx2", "reference"), "avx2")
    assert (found.level, found.fix) == ("warning", "unset OCTAVO_ISA")
    assert "OCTAVO_ISA=avx2 keeps Octavo's kernels from avx512vnni" in found.message
    assert list(slower_by_choice(("avx2", "reference"), "avx2")) == []
    monkeypatch.delenv("OCTAVO_ISA")
    (found,) = slower_by_choice(("avx512vnni", "avx2", "reference"), "avx2")
    assert (found.level, found.fix) == ("warning", "use_isa('avx512vnni')")


def test_what_a_build_or_a_system_lacks_is_not_the_processors() -> None:
    features = ("avx2", "avx512vnni", "amxint8")
    runnable = ("avx512vnni", "avx2", "reference")
    found = {t.name: t.state for t in kernel_tables(runnable, "avx512vnni", features)}
    assert found["amx"] == REFUSED
    said = work_of_layers(10_000_000, kernel_tables(runnable, "avx512vnni", features), 100.0)
    assert not any("amx" in sentence for sentence in said)


def test_what_a_model_takes_here_and_gains_elsewhere() -> None:
    tables = kernel_tables(("avx2", "reference"), "avx2")
    here, *others = work_of_layers(10_000_000, tables, gops=100.0)
    # 2 * 10e6 * 128 operations at 100e9 a second
    assert here.endswith("128 rows take at least 25.6 ms of one core here (avx2)")
    assert any(said.startswith("with avx512vnni (") for said in others)
    assert work_of_layers(0, tables, 100.0) == []
    assert work_of_layers(10, tables, 0.0) == [], "the reference has no peak"


def test_a_native_files_layers_are_counted_but_for_tables_and_floats() -> None:
    def outcome(name: str, kind: Kind, *, quantized: bool = True) -> LayerOutcome:
        layer = Layer(name, kind, "MatMul", ((name, (64, 32)),), 8192, 2048)
        return LayerOutcome(layer, quantized, "int8", "", 8192, 2048, None, ())

    outcomes = [
        outcome("product", Kind.LINEAR),
        outcome("table", Kind.EMBEDDING),
        outcome("float", Kind.LINEAR, quantized=False),
    ]
    said = {
        "octavo.version": "0.1.0",
        "octavo.target": "native",
        "octavo.layers": outcomes_to_json(outcomes),
    }
    about = doctor.diagnose("m.onnx", said).about
    if kernels.isa() != "reference":
        assert any("multiply 2,048 weights a row" in sentence for sentence in about)
    said["octavo.layers"] = "damaged"
    assert not any("multiply" in s for s in doctor.diagnose("m.onnx", said).about)
