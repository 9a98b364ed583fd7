"""The record holds; and the checker finds what is not as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import check, corpus, facts, kept
from tests.golden.facts import Facts

CASE = "one"
FACTS: Facts = {
    "portable: ops": "Add:2 Cast:3 Mul:4 QuantizeLinear ms.MatMulIntegerToFloat:2",
    "portable: out y": [0.5, -1.25, 3.0, 4.0, 12],
    "portable: w w0_quantized": "int8[32x32] 0123456789",
    "portable: notes": ["Q, K and V of an attention are one product", "1 mask is added as given"],
    "native: ops": "octavo.Linear 2",
    "native: out y": [0.5, -1.25, 3.0, 4.0, 12],
    "native: out y bits": "float32[5, 32] 0123456789",
    "native: layer layer0": "int8 per channel, activations per row ; bytes=4096>1152 sqnr=46.7",
    "any: ops": "Add:2 Cast:3 Mul:4 QuantizeLinear ms.MatMulIntegerToFloat:2",
    "block: error": "octavo.errors.OptionError: target='nativ'. Did you mean 'native'?",
    "exit": 2,
}
PLANTED: dict[str, tuple[Any, str, str]] = {
    "portable: ops": ("Add:2 Cast:4 Mul:4", "one: portable", "ops"),
    "portable: out y": ([0.50002, -1.25, 3.0, 4.0, 12], "one: portable", "out y"),
    "portable: w w0_quantized": ("int8[32x32] 0123456788", "one: portable", "weights"),
    "portable: notes": (["1 mask is added as given"], "one: portable", "said"),
    "native: out y bits": ("float32[5, 32] 0123456780", "one: native", "bits"),
    "native: layer layer0": ("float reason=excluded ; bytes=4096>4096", "one: native", "rows"),
    "block: error": ("octavo.errors.OptionError: target='nativ'.", "one: block", "error"),
    "exit": (1, "one", "said"),
    "any: ops": (None, "one: any", "ops"),
}
LINES = kept.lines({CASE: FACTS})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of one case, and a corpus that gives it."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    monkeypatch.setattr(corpus, "GROUPS", ("toy",))
    given(monkeypatch, FACTS)
    kept.write("toy", LINES)
    return tmp_path


def given(monkeypatch: pytest.MonkeyPatch, facts: Facts | Exception) -> None:
    """Lets the only case of the corpus give or raise this."""

    def case(folder: Path) -> Facts:
        if isinstance(facts, Exception):
            raise facts
        return dict(facts)

    monkeypatch.setattr(corpus, "group", lambda _: {CASE: case})


def test_a_line_a_form_is_read_as_it_was_written(folder: Path) -> None:
    assert kept.read("toy") == LINES
    assert len((folder / "toy.json").read_text().splitlines()) == len(LINES) + 2 == 7
    assert LINES["one: native"].keys() == {"ops", "bits", "rows"}


def changed(name: str) -> Facts:
    planted = PLANTED[name][0]
    return {n: f for n, f in {**FACTS, name: planted}.items() if f is not None}


@pytest.mark.parametrize("name", PLANTED)
def test_each_kind_of_difference_is_found(name: str) -> None:
    _, form, fact = PLANTED[name]
    (found,) = kept.differences("toy", LINES, kept.lines({CASE: changed(name)}))
    assert (found.form, found.fact) == (f"toy/{form}", fact)
    assert fact in str(found)


def test_a_new_and_a_missing_case_are_differences() -> None:
    number = sum(map(len, LINES.values()))
    assert len(list(kept.differences("toy", LINES, {}))) == number
    assert len(list(kept.differences("toy", {}, LINES))) == number


def test_numbers_have_a_tolerance() -> None:
    now = {**FACTS, "portable: out y": [0.5 + 2e-6, -1.25, 3.0, 4.0, 12]}
    assert not list(kept.differences("toy", LINES, kept.lines({CASE: now})))
    assert kept.same([float("nan"), 1.0, 2.0], [float("nan"), 1.0, 2.0])
    assert not kept.same([1.0, 2.0], [1.0, 2.0, 3.0])


def test_check_and_record(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check.main(["--jobs", "1"]) == 0
    given(monkeypatch, {**FACTS, "exit": 1})
    assert check.main(["--jobs", "1"]) == 1
    assert "toy/one\n  said\n" in (said := capsys.readouterr().out)
    assert said.count("\n      exit: 1\n") == 1
    assert check.main(["--jobs", "1", "--record"]) == 0
    assert check.main(["--jobs", "1"]) == 0


def test_what_is_gone_is_dropped_and_the_rest_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {name: fact for name, fact in FACTS.items() if not name.startswith("block")}
    given(monkeypatch, facts | {"exit": 1, "new: ops": "Add"})
    assert check.main(["--jobs", "1", "--record", "--gone"]) == 0
    assert kept.read("toy") == {form: line for form, line in LINES.items() if form != "one: block"}
    assert not (folder / "about.json").exists()


def test_numbers_of_another_processor_are_not_compared(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, FACTS | {"portable: out y": [0.75, 1], "native: out y bits": "float32 98"})
    assert check.main(["--jobs", "1"]) == 1
    here = kept.about()
    (folder / "about.json").write_text(json.dumps(here))
    assert check.main(["--jobs", "1"]) == 1
    (folder / "about.json").write_text(json.dumps(here | {"cpu": "Other: avx2 none"}))
    assert check.main(["--jobs", "1"]) == 0
    assert "NOT TESTED: bits and numbers" in capsys.readouterr().out
    given(monkeypatch, FACTS | {"exit": 1})
    assert check.main(["--jobs", "1"]) == 1


def test_two_runs_are_compared_fact_by_fact(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = str(folder / "saved")
    assert check.main(["--jobs", "1", "--save", saved]) == 0
    assert check.main(["--jobs", "1", "--against", saved]) == 0
    given(monkeypatch, {**FACTS, "portable: out y": [0.5, -1.25, 3.0001, 4.0, 12]})
    assert check.main(["--jobs", "1", "--against", saved]) == 1
    assert "out y\n    kept [0.5, -1.25, 3.0, 4.0, 12]\n" in capsys.readouterr().out
    assert check.main(["--show", "toy/one", "port*"]) == 0
    shown = capsys.readouterr().out
    assert "toy/one: portable" in shown and "out y: [0.5, -1.25, 3.0001" in shown
    assert "native" not in shown


def test_what_is_missing_is_skipped(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, corpus.Missing("no network"))
    assert check.main(["--jobs", "1"]) == 0
    assert "skipped toy/one: no network" in capsys.readouterr().out
    assert check.main(["--jobs", "1", "--record"]) == 0
    assert kept.read("toy") == LINES


def test_a_case_that_breaks_is_a_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, KeyError("gone"))
    assert check.main(["--jobs", "1"]) == 1
    assert check.main(["--jobs", "1", "--record"]) == 1


def test_texts_have_no_places_and_times() -> None:
    text = "took 1.25 s in /tmp/octavo-golden-ab12/m.onnx"
    assert facts.cleaned(text) == "took TIME in TMP/m.onnx"


def test_the_record_is_small_and_whole() -> None:
    files = sorted(kept.FOLDER.glob("*.json"))
    assert sum(len(path.read_text().splitlines()) for path in files) < 3_000
    assert {path.stem for path in files} == {*corpus.GROUPS, "about"}


@pytest.mark.slow
@pytest.mark.models
def test_everything_is_as_it_was() -> None:
    assert check.main([]) == 0
