"""Every error path that can be run in this process says what benchmarks/error_paths.py asks of it:
the part, the value, what is allowed, what to do; and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import error_paths, results
from benchmarks.error_cases import CASES, folder, running
from benchmarks.error_cases.case import Case, Outcome
from benchmarks.results import Row

HERE = [
    pytest.param(case, id=f"{title}-{number}")
    for title, cases in CASES.items()
    for number, case in enumerate(cases)
    if case.here
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("template")
    folder.write(made)
    return made


@pytest.mark.parametrize("case", HERE)
def test_a_message_says_all(case: Case, template: Path, tmp_path: Path) -> None:
    found = running.here(case, template, tmp_path / "folder")
    assert found.problems == (), f"{case.run}\n{found.message}"


def test_a_process_of_its_own_ends_alike(template: Path, tmp_path: Path) -> None:
    (case,) = (c for c in CASES["Commands and options"] if c.run == "octavo quantise m.onnx")
    found = running.apart(case, template, tmp_path / "folder")
    assert found.problems == ()
    assert found.message == running.here(case, template, tmp_path / "folder").message


def test_words_that_do_not_apply_have_a_reason() -> None:
    for case in (case for cases in CASES.values() for case in cases):
        assert case.why or "" not in (case.part, case.value, case.allowed, case.fix), case.run


# --- the checks themselves ---

CASE = Case("octavo quantize m.onnx", 3, "m.onnx", "7", "1 to 6", "give")
GOOD = {"ended": 3, "message": "error: m.onnx: 7: give 1\nto 6"}


def test_an_outcome_as_wanted_has_no_problem() -> None:
    assert Outcome(CASE, **GOOD).problems == ()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"ended": 1}, "ends with 1, not 3"),
        ({"message": "error: 7: give 1 to 6"}, "does not name the part: 'm.onnx'"),
        ({"message": "error: m.onnx: give 1 to 6"}, "does not name the value: '7'"),
        ({"message": "error: m.onnx: 7: give 1 to 5"}, "does not name the allowed: '1 to 6'"),
        ({"message": "error: m.onnx: 7: 1 to 6"}, "does not name the fix: 'give'"),
        ({"message": f"Traceback\n{GOOD['message']}"}, "shows a traceback"),
        ({"message": f"\x1b[31m{GOOD['message']}"}, "has escape codes"),
        ({"stdout": "{}"}, "prints to stdout"),
        ({"left": ("out.onnx",)}, "leaves out.onnx"),
        ({"changed": ("m.onnx",)}, "changes m.onnx"),
    ],
)
def test_what_is_wrong_is_found(said: dict[str, object], problem: str) -> None:
    assert Outcome(CASE, **{**GOOD, **said}).problems == (problem,)  # type: ignore[arg-type]


def test_files_that_are_left_or_changed_are_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    before = folder.snapshot(tmp_path)
    (tmp_path / "a").write_text("A")
    (tmp_path / "b").unlink()
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "history").write_text("")
    found = folder.differences(before, folder.snapshot(tmp_path), ("hist*",))
    assert found == ((".hidden",), ("a", "b"))


def test_the_page_shows_the_message_and_what_it_lacks() -> None:
    lacking = Outcome(CASE, 3, "error: m.onnx: 7 | <8>:\n1 to 6")
    skipped = Outcome(CASE, skipped="needs root")
    found = {"Here": [Outcome(CASE, **GOOD), lacking, skipped]}  # type: ignore[arg-type]
    (row,) = error_paths.rows(found)
    assert (row.measured, row.at_least, row.reached) == (1, 2, False)
    assert "octavo quantize m.onnx: does not name the fix: 'give'" in row.note
    assert "is not run: needs root" in row.note
    (_, line, _) = map(error_paths._line, found["Here"])
    assert line == (
        "| `octavo quantize m.onnx` | 3 | error: m.onnx: 7 \\| &lt;8>:<br>1 to 6 | m.onnx | 7 "
        "| 1 to 6 | **give** |"
    )


def test_figures_are_read_back_without_the_messages(tmp_path: Path) -> None:
    plain = results.result("error_paths", "Error paths", [Row("a", 1.0, at_least=1.0)])
    review = error_paths.Review(**vars(plain), outcomes={"Files": [Outcome(CASE, **GOOD)]})
    data, page = results.write(review, tmp_path)
    assert results.read(data) == plain
    assert json.loads(data.read_text())["cases"][0]["run"] == CASE.run
    text = page.read_text()
    assert text.startswith(plain.to_markdown()) and "## Files" in text
