import json
import math
import multiprocessing
from pathlib import Path

import pytest

from octavo.errors import HistoryError, OutputError
from octavo.tune.history import FILE, History, digest

SUBJECT = {"model": "abc", "seed": 3, "shapes": ({"x": (1, 2)},)}


def written(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_what_is_put_is_there_after_a_kill(tmp_path: Path) -> None:
    with History(tmp_path, SUBJECT) as history:
        history.put("trial", "a", {"accuracy": 0.5}, 1.5)
        history.put("errors", "b", [[0.1, math.inf], 4], 2.5)
        # Nothing is closed yet: what a kill would leave is what is on disk now.
        assert [line["kind"] for line in written(tmp_path)] == ["start", "trial", "errors"]
    with History(tmp_path, SUBJECT, resume=True) as again:
        assert again.get("trial", "a") == {"accuracy": 0.5}
        assert again.get("errors", "b") == [[0.1, math.inf], 4]
        assert again.get("trial", "b") is None
        assert (again.elapsed, again.resumed) == (2.5, 2)


@pytest.mark.parametrize(
    "torn", [b"{", b'{"kind": "trial", "key": "b", "value": 1, "elap', b"\xff"]
)
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    with History(tmp_path, SUBJECT) as history:
        history.put("trial", "a", 1, 0.0)
    with (tmp_path / FILE).open("ab") as file:
        file.write(torn)
    with History(tmp_path, SUBJECT, resume=True) as again:
        assert again.get("trial", "a") == 1
        again.put("trial", "b", 2, 0.0)
    assert [line.get("key") for line in written(tmp_path)] == [None, "a", "b"]


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    with History(tmp_path, SUBJECT) as history:
        history.put("trial", "a", 1, 0.0)
        history.put("trial", "b", 1, 0.0)
    lines = (tmp_path / FILE).read_text().splitlines()
    (tmp_path / FILE).write_text("\n".join([lines[0], lines[1][:20], lines[2]]) + "\n")
    with pytest.raises(HistoryError, match=rf"{FILE}:2: not a line of a history"):
        History(tmp_path, SUBJECT, resume=True)


def test_another_searchs_history_is_refused_and_left_alone(tmp_path: Path) -> None:
    with History(tmp_path, SUBJECT) as history:
        history.put("trial", "a", 1, 0.0)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(HistoryError, match="seed was 3, is 4"):
        History(tmp_path, {**SUBJECT, "seed": 4}, resume=True)
    assert (tmp_path / FILE).read_bytes() == before


def test_starting_anew_keeps_the_old_history(tmp_path: Path) -> None:
    for value in (1, 2, 3):
        with History(tmp_path, SUBJECT) as history:
            assert history.get("trial", "a") is None
            history.put("trial", "a", value, 0.0)
    old = sorted(p for p in tmp_path.iterdir() if p.name != FILE)
    assert sorted(json.loads(p.read_text().splitlines()[1])["value"] for p in old) == [1, 2]
    assert written(tmp_path)[1]["value"] == 3


def test_resuming_what_never_began_begins_it(tmp_path: Path) -> None:
    with History(tmp_path / "new" / "folder", SUBJECT, resume=True) as history:
        assert history.resumed == 0
        history.put("trial", "a", 1, 0.0)


def hold(folder: str, ready: object, done: object) -> None:
    with History(Path(folder), SUBJECT):
        ready.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_two_searches_in_one_workspace_are_refused(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(str(tmp_path), ready, done))
    other.start()
    try:
        assert ready.wait(30)
        for resume in (False, True):
            with pytest.raises(HistoryError, match="another search is writing it"):
                History(tmp_path, SUBJECT, resume=resume)
    finally:
        done.set()
        other.join(30)


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="history cannot be written"):
        History(tmp_path / "file" / "workspace", SUBJECT)


def test_in_memory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with History(None, SUBJECT) as history:
        history.put("trial", "a", 1, 0.0)
        assert history.get("trial", "a") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_digest_tells_data_apart_and_not_their_order() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert len({digest(x) for x in ({"a": 1}, {"a": 2}, {"a": "1"}, [1], [[1]])}) == 5
