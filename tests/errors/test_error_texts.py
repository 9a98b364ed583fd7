"""Every error path says what its transcript says, to the letter, and leaves nothing behind.

`OCTAVO_SNAPSHOT=update pytest -n 0 tests/errors` writes what is said now; review the difference: a
message names the part (file, node, option, key), the value, what is allowed and what to do.
"""

from __future__ import annotations

import os
from pathlib import Path

import error_files
import pytest
import transcripts
from transcripts import Case

FOLDER = Path(__file__).parent / "transcripts"
CASES = [
    pytest.param(path, i, id=f"{path.stem}-{i}", marks=pytest.mark.slow if case.slow else ())
    for path in sorted(FOLDER.glob("*.txt"))
    for i, case in enumerate(transcripts.read(path))
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("template")
    error_files.write_shared(made)
    return made


@pytest.mark.vnni("machines-3")  # doctor names the session that it needs
@pytest.mark.parametrize(("path", "index"), CASES)
def test_an_error_says(path: Path, index: int, template: Path, tmp_path: Path) -> None:
    case = transcripts.read(path)[index]
    found = transcripts.run(case, template, tmp_path / "folder")
    if found is None:
        pytest.skip("a small disk can be mounted by root only")
    if os.environ.get("OCTAVO_SNAPSHOT") == "update":
        transcripts.write(path, index, found)
    else:
        assert found == case.answer, case.source


@pytest.mark.slow
def test_a_process_of_its_own_answers_alike(template: Path, tmp_path: Path) -> None:
    (case,) = (c for c in transcripts.read(FOLDER / "options.txt") if "quantise" in c.source)
    case.apart = True
    assert transcripts.run(case, template, tmp_path / "folder") == case.answer


@pytest.mark.parametrize(
    ("command", "wrong"),
    [("touch out.onnx", "left behind: .'out.onnx'"), ("echo >> conf.yaml", "files changed")],
)
def test_what_is_left_or_changed_is_seen(
    command: str, wrong: str, template: Path, tmp_path: Path
) -> None:
    case = Case(command, False, [], [], apart=True, keeps=("hist*",))
    with pytest.raises(AssertionError, match=wrong):
        transcripts.run(case, template, tmp_path / "folder")


def test_a_transcript_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    text = "# why\n@ a b(path)\n@ c\n| d\n! apart keeps='e/* f'\n$ g\n  h\n\n  i\n  [2]\n\n"
    path.write_text(f"{text}>>> j\n... k\n")
    first, second = transcripts.read(path)
    assert (first.source, first.files, first.keeps) == (
        "g",
        {"a": "b(path)", "c": ["d"]},
        ("e/*", "f"),
    )
    assert first.apart and first.answer == ["h", "", "i", "[2]"]
    assert (second.source, second.python, second.answer) == ("j\nk", True, [])
    transcripts.write(path, 1, ["l", "[ValueError]"])
    assert path.read_text() == f"{text}>>> j\n... k\n  l\n  [ValueError]\n"
