"""The record holds; and the checker finds what is not as it was."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import check, corpus, facts, kept, record
from tests.golden.facts import Facts

CASE = "one"
FACTS: Facts = {
    "portable: ops": "Add:2 Cast:3 Mul:4 QuantizeLinear ms.MatMulIntegerToFloat:2",
    "portable: out y": [0.5, -1.25, 3.0, 4.0],
    "portable: w w0_quantized": "int8[32x32] 0123456789",
    "portable: notes": ["Q, K and V of an attention are one product", "1 mask is added as given"],
    "native: ops": "octavo.Linear 2",
    "native: out y bits": "float32[5, 32] 0123456789",
    "native: layer layer0": "int8 per channel, activations per row ; bytes=4096>1152 sqnr=46.7",
    "any: ops": "Add:2 Cast:3 Mul:4 QuantizeLinear ms.MatMulIntegerToFloat:2",
    "error": "octavo.errors.OptionError: target='nativ'. Did you mean 'native'?",
    "exit": 2,
}
PLANTED: dict[str, Any] = {
    "portable: ops": "Add:2 Cast:4 Mul:4",
    "portable: out y": [0.5, -1.2503, 3.0, 4.0],
    "portable: w w0_quantized": "int8[32x32] 0123456788",
    "portable: notes": ["1 mask is added as given"],
    "native: out y bits": "float32[5, 32] 0123456780",
    "native: layer layer0": "float reason=excluded by name ; bytes=4096>4096 sqnr=none",
    "error": "octavo.errors.OptionError: target='nativ'.",
    "exit": 1,
    "any: ops": None,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of one case, and a corpus that gives it."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    monkeypatch.setattr(corpus, "GROUPS", ("toy",))
    monkeypatch.setattr(corpus, "group", lambda _: {CASE: lambda folder: dict(FACTS)})
    kept.write("toy", {CASE: FACTS})
    return tmp_path


def test_what_is_written_is_read() -> None:
    written = kept.text({CASE: FACTS})
    assert kept.expanded(json.loads(written)) == {CASE: FACTS}
    assert '"ops": "= any"' in written
    twice = {
        f"{form}: {name}": FACTS[f"portable: {name}"]
        for form in ("a", "b")
        for name in ("ops", "out y")
    }
    written = kept.text({CASE: twice})
    assert '"b": "= a"' in written
    assert kept.expanded(json.loads(written)) == {CASE: twice}


@pytest.mark.parametrize("name", PLANTED)
def test_each_kind_of_difference_is_found(name: str) -> None:
    now = copy.deepcopy(FACTS)
    if PLANTED[name] is None:
        del now[name]
    else:
        now[name] = PLANTED[name]
    (found,) = kept.differences("toy", {CASE: FACTS}, {CASE: now})
    assert (found.case, found.fact) == (f"toy/{CASE}", name)
    assert name in str(found)


def test_a_new_and_a_missing_case_are_differences() -> None:
    assert len(list(kept.differences("toy", {CASE: FACTS}, {}))) == len(FACTS)
    assert len(list(kept.differences("toy", {}, {CASE: FACTS}))) == len(FACTS)


def test_numbers_have_a_tolerance() -> None:
    now = {**FACTS, "portable: out y": [0.5 + 2e-6, -1.25, 3.0, 4.0]}
    assert not list(kept.differences("toy", {CASE: FACTS}, {CASE: now}))
    assert kept.same([float("nan"), 1.0, 2.0], [float("nan"), 1.0, 2.0])
    assert not kept.same([1.0, 2.0], [1.0, 2.0, 3.0])


def test_check_and_record(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check.main(["--jobs", "1"]) == 0
    monkeypatch.setattr(corpus, "group", lambda _: {CASE: lambda folder: {**FACTS, "exit": 1}})
    assert check.main(["--jobs", "1"]) == 1
    assert "toy/one\n  exit\n    kept 2\n    now  1" in capsys.readouterr().out
    assert record.main(["--jobs", "1"]) == 0
    assert kept.read("toy")[CASE]["exit"] == 1
    assert check.main(["--jobs", "1"]) == 0


def test_what_is_missing_is_skipped(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(folder: Path) -> Facts:
        raise corpus.Missing("no network")

    monkeypatch.setattr(corpus, "group", lambda _: {CASE: missing})
    assert check.main(["--jobs", "1"]) == 0
    assert "skipped toy/one: no network" in capsys.readouterr().out
    assert record.main(["--jobs", "1"]) == 0
    assert kept.read("toy") == {CASE: FACTS}


def test_a_case_that_breaks_is_a_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path) -> Facts:
        raise KeyError("gone")

    monkeypatch.setattr(corpus, "group", lambda _: {CASE: broken})
    assert check.main(["--jobs", "1"]) == 1


def test_texts_have_no_places_and_times() -> None:
    assert (
        facts.cleaned("took 1.25 s in /tmp/octavo-golden-ab12/m.onnx") == "took TIME in TMP/m.onnx"
    )


def test_the_record_is_small_and_whole() -> None:
    files = sorted(kept.FOLDER.glob("*.json"))
    assert sum(path.stat().st_size for path in files) < 1_250_000
    assert {path.stem for path in files} == {*corpus.GROUPS, "about"}


@pytest.mark.slow
@pytest.mark.models
def test_everything_is_as_it_was() -> None:
    assert check.main([]) == 0
