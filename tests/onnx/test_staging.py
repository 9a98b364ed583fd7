"""Outputs appear whole or not at all, whatever happens at whatever line."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
import pytest
from onnx import helper

from octavo.errors import OutputError
from octavo.files import locks
from octavo.files import staging as module
from octavo.files.ownership import own_name
from octavo.files.staging import ASIDE, PREFIX, Staging, output_error, remove_abandoned
from tests import fresh
from tests.graphs import mlp, snapshot

OLD, NEW = b"the old model", b"the new model"
FULL = "No space left on device"


@cache
def model_with_data(name: str | None) -> bytes:
    """A file that says which data file belongs to it."""
    model = mlp(1, 2)
    if name is not None:
        helper.set_model_props(model, {"octavo.data_file": name})
    return model.SerializeToString()


def write(out: Path, data: bytes | None = None, content: bytes = NEW, **more: Any) -> str:
    """One conversion's worth of staging; returns the name of the data file."""
    with Staging(out, **more) as staging:
        staging.model.write_bytes(content)
        if data is not None:
            staging.data.write_bytes(data)
        staging.commit()
    return staging.data.name


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_nothing_is_there_before_the_commit(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    out.write_bytes(OLD)
    staging = Staging(out)
    assert names(tmp_path) == ["out.onnx"]
    with staging:
        staging.model.write_bytes(NEW)
        staging.data.write_bytes(b"data")
        assert out.read_bytes() == OLD
        hidden = [n for n in names(tmp_path) if n != "out.onnx"]
        assert len(hidden) == 1 and hidden[0].startswith(PREFIX) and PREFIX.startswith(".octavo-")
    assert names(tmp_path) == ["out.onnx"] and out.read_bytes() == OLD


def test_the_commit_puts_both_files_in_place(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert write(out, b"data") == "out.onnx.data"
    assert names(tmp_path) == ["out.onnx", "out.onnx.data"]
    assert out.read_bytes() == NEW and (tmp_path / "out.onnx.data").read_bytes() == b"data"
    assert (tmp_path / "out.onnx.data").stat().st_nlink == 1
    plain = tmp_path / "plain"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode


def test_an_exception_inside_leaves_nothing(tmp_path: Path) -> None:
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), Staging(tmp_path / "out.onnx") as staging:
            staging.model.write_bytes(NEW)
            raise error
        assert names(tmp_path) == []


def test_a_foreign_data_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out.onnx.data").write_bytes(b"foreign")
    (tmp_path / "out.onnx.1.data").symlink_to("nowhere")
    assert write(tmp_path / "out.onnx", b"data") == "out.onnx.2.data"
    assert (tmp_path / "out.onnx.data").read_bytes() == b"foreign"
    assert (tmp_path / "out.onnx.1.data").is_symlink()


def test_a_data_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    out, data = tmp_path / "out.onnx", tmp_path / "out.onnx.data"
    out.write_bytes(OLD)
    with pytest.raises(OutputError, match=r"out\.onnx\.data appeared"), Staging(out) as staging:
        staging.model.write_bytes(NEW)
        staging.data.write_bytes(b"data")
        data.write_bytes(b"foreign")
        staging.commit()
    assert names(tmp_path) == ["out.onnx", "out.onnx.data"]
    assert out.read_bytes() == OLD and data.read_bytes() == b"foreign"


def test_the_data_of_a_replaced_model_goes(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    for i, name in enumerate(["out.onnx.data", "out.onnx.1.data", "out.onnx.data"]):
        assert write(out, b"%d" % i, model_with_data(name)) == name
        assert names(tmp_path) == sorted(["out.onnx", name])
        assert (tmp_path / name).read_bytes() == b"%d" % i
    write(out, None, model_with_data(None))
    assert names(tmp_path) == ["out.onnx"]


@pytest.mark.parametrize(
    "name",
    ["other.data", "sub/out.onnx.data", "../out.onnx.data", "out.onnx.d/../../x.data", "",
     "out.onnx", "out.onnx.backup", "/etc/passwd"],
)  # fmt: skip
def test_only_what_an_earlier_run_wrote_goes(tmp_path: Path, name: str) -> None:
    """A file may say anything about its data."""
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "out.onnx.d").mkdir()
    keep = ["other.data", "sub/out.onnx.data", "../out.onnx.data", "../x.data", "out.onnx.backup"]
    for other in keep:
        (folder / other).write_bytes(b"keep")
    out = folder / "out.onnx"
    out.write_bytes(model_with_data(name))
    write(out)
    assert out.read_bytes() == NEW
    assert all((folder / other).read_bytes() == b"keep" for other in keep)


def test_the_data_of_an_old_model_stays_if_it_is_the_inputs(tmp_path: Path) -> None:
    out, data = tmp_path / "out.onnx", tmp_path / "out.onnx.data"
    data.write_bytes(b"shared")
    out.write_bytes(model_with_data(data.name))
    write(out, sources=[data])
    assert data.read_bytes() == b"shared"


@pytest.mark.parametrize("content", [b"", b"text", b"\xff" * 99])
def test_what_is_replaced_need_not_be_a_model(tmp_path: Path, content: bytes) -> None:
    out = tmp_path / "out.onnx"
    out.write_bytes(content)
    (tmp_path / "out.onnx.data").write_bytes(b"foreign")
    write(out)
    assert out.read_bytes() == NEW and (tmp_path / "out.onnx.data").exists()


def test_two_conversions_to_one_output(tmp_path: Path) -> None:
    """The one that is later fails clearly; the output is one whole model with its data."""
    out = tmp_path / "out.onnx"
    with pytest.raises(OutputError, match="appeared during"), Staging(out) as first:
        with Staging(out) as second:
            for staging, text in ((first, b"1"), (second, b"2")):
                staging.model.write_bytes(text)
                staging.data.write_bytes(text)
            second.commit()
        first.commit()
    assert names(tmp_path) == ["out.onnx", "out.onnx.data"]
    assert {p.read_bytes() for p in tmp_path.iterdir()} == {b"2"}


def failing(number: int) -> Callable[..., Any]:
    def fail(*args: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    write(tmp_path / "out.onnx", b"data")
    assert names(tmp_path) == ["out.onnx", "out.onnx.data"]


@pytest.mark.parametrize("locks_of", ["file system", "system"])
def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks_of: str) -> None:
    left = []
    if locks_of == "file system":
        monkeypatch.setattr(fcntl, "flock", failing(errno.ENOTSUP))
    else:
        monkeypatch.setattr(locks, "open_folder", failing(errno.EACCES))
        monkeypatch.setattr(locks, "fcntl", None)
        left = [abandoned(tmp_path).name]  # by whom nobody can tell: it stays
    with Staging(tmp_path / "a.onnx") as staging:
        write(tmp_path / "b.onnx", b"data")  # takes nothing away from the other
        staging.model.write_bytes(NEW)
        staging.commit()
    assert names(tmp_path) == sorted([*left, "a.onnx", "b.onnx", "b.onnx.data"])


def abandoned(parent: Path, plan: dict[str, Any] | None = None) -> Path:
    """What a conversion that was killed left."""
    folder = parent / own_name(PREFIX, parent)
    folder.mkdir(mode=0o700)
    (folder / "files").mkdir()
    (folder / "files" / "out.onnx").write_bytes(NEW)
    if plan is not None:
        (folder / "commit.json").write_text(json.dumps(plan))
    return folder


def test_abandoned_folders_are_removed_and_others_are_not(tmp_path: Path) -> None:
    abandoned(tmp_path)
    (tmp_path / f"{PREFIX}file").write_bytes(b"a file")
    for folder in (".octavo-cache", "target"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "precious").write_bytes(b"mine")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "target")
    write(tmp_path / "out.onnx")
    kept = [".octavo-cache", f"{PREFIX}file", f"{PREFIX}link", "out.onnx", "target"]
    assert names(tmp_path) == sorted(kept)
    assert all((tmp_path / n / "precious").exists() for n in ("target", ".octavo-cache"))


def test_the_folder_of_a_living_process_stays(tmp_path: Path) -> None:
    code = f"""
from octavo.files.staging import Staging
with Staging({str(tmp_path / "a.onnx")!r}) as staging:
    staging.model.write_bytes(b"a")
    print("ready", flush=True)
    input()
    staging.commit()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        write(tmp_path / "b.onnx")
        other.communicate("\n")
    assert other.returncode == 0
    assert names(tmp_path) == ["a.onnx", "b.onnx"]


def test_a_folder_taken_away_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may see it between `mkdir` and `flock`, and think its process gone."""
    flock, times = fcntl.flock, []

    def slow(handle: int, how: int) -> None:
        if how == fcntl.LOCK_EX and len(times) < 2:
            times.append(1)
            remove_abandoned(tmp_path)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    write(tmp_path / "out.onnx", b"data")
    assert len(times) == 2 and names(tmp_path) == ["out.onnx", "out.onnx.data"]


def test_a_commit_that_had_not_begun_takes_no_foreign_file(tmp_path: Path) -> None:
    plan = {"model": "out.onnx", "data": "out.onnx.data", "old": {}}
    folder = abandoned(tmp_path, plan)
    (folder / "files" / "out.onnx.data").write_bytes(b"new data")
    (tmp_path / "out.onnx.data").write_bytes(b"foreign")
    remove_abandoned(tmp_path)
    assert names(tmp_path) == ["out.onnx.data"]


def test_a_commit_that_was_done_is_finished(tmp_path: Path) -> None:
    """Killed after the model was replaced: the old one's data goes, if it is still that file."""
    old, foreign = tmp_path / "out.onnx.data", tmp_path / "out.onnx.7.data"
    old.write_bytes(b"old data")
    foreign.write_bytes(b"somebody made this since")
    inodes = {old.name: old.stat().st_ino, foreign.name: foreign.stat().st_ino + 1}
    folder = abandoned(tmp_path, {"model": "out.onnx", "data": None, "old": inodes})
    (folder / "files" / "out.onnx").rename(tmp_path / "out.onnx")
    remove_abandoned(tmp_path)
    assert names(tmp_path) == ["out.onnx", "out.onnx.7.data"]


def test_a_folder_that_was_put_aside_is_put_back_unless_the_new_one_is_there(
    tmp_path: Path,
) -> None:
    for name in ("there", "missing"):
        (abandoned(tmp_path) / ASIDE / name).mkdir(parents=True)
    (tmp_path / "there" / "new").mkdir(parents=True)
    remove_abandoned(tmp_path)
    assert names(tmp_path) == ["missing", "there"] and names(tmp_path / "there") == ["new"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": 3}', '{"model": "out.onnx"}'])
def test_a_broken_plan(tmp_path: Path, text: str) -> None:
    (abandoned(tmp_path) / "commit.json").write_text(text)
    remove_abandoned(tmp_path)
    assert names(tmp_path) == []


def at_line(number: int, act: Callable[[], None]) -> Callable[..., Any]:
    """A trace function that acts before the `number`th line of the module that runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            count += 1
            if count == number:
                act()
        return trace

    return trace


def situation(folder: Path) -> Path:
    """An earlier result with external data, and what an earlier run that was killed left."""
    out = folder / "out.onnx"
    write(out, b"old data", model_with_data("out.onnx.data"))
    (abandoned(folder) / "killed").touch()
    model_with_data("out.onnx.1.data")  # here, where no trace makes it slow
    return out


def new(out: Path) -> None:
    write(out, b"new data", model_with_data("out.onnx.1.data"))


def data_name(out: Path) -> str:
    return next(p.value for p in onnx.load(out).metadata_props if p.key == "octavo.data_file")


def is_whole(out: Path) -> bool:
    """The output is a model with its own data, and nothing else is beside it."""
    name = data_name(out)
    expected = {"out.onnx.data": b"old data", "out.onnx.1.data": b"new data"}[name]
    assert (out.parent / name).read_bytes() == expected
    return names(out.parent) == sorted(["out.onnx", name])


INTERRUPT = """
import gc, sys
def interrupt():
    raise KeyboardInterrupt
def happened(number, out):
    sys.settrace(at_line(number, interrupt))
    try:
        new(out)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False
def each(number, out):
    came = happened(number, out)
    gc.collect()  # the last resort works when nothing holds the object any more
    return came
"""
KILL = """
import os, sys
def each(number, out):
    child = os.fork()
    if child == 0:
        sys.settrace(at_line(number, lambda: os._exit(9)))
        new(out)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
"""
AT_EVERY_LINE = """
import gc, itertools, os
os.fsync = lambda handle: None  # hundreds of them take longer than all the rest
from pathlib import Path
from tests.onnx.test_staging import at_line, new, situation
gc.freeze()  # or each collection walks through all that was imported
for number in itertools.count(1, {step}):
    folder = Path({folder!r}) / str(number)
    folder.mkdir()
    if not each(number, situation(folder)):
        break
print(number)
"""


STEP = 1 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 5
"""Each line in `make test-all`, each fifth in `make test`."""


def at_every_line(tmp_path: Path, act: str, step: int = 1) -> list[Path]:
    """The folders in which a conversion was stopped, at one line after the other."""
    path = f"import sys\nsys.path[:0] = {sys.path!r}\n"
    done = fresh.python(path + act + AT_EVERY_LINE.format(folder=str(tmp_path), step=step))
    assert int(done.stdout) > 100
    return [tmp_path / str(number) for number in range(1, int(done.stdout), step)]


def test_ctrl_c_at_every_line(tmp_path: Path) -> None:
    results = set()
    for folder in at_every_line(tmp_path, INTERRUPT, STEP):
        out = folder / "out.onnx"
        hidden = [n for n in names(folder) if n.startswith(PREFIX)]
        assert all((folder / name / "killed").exists() for name in hidden), (folder.name, hidden)
        remove_abandoned(folder)
        assert is_whole(out), (folder.name, names(folder))
        results.add(data_name(out))
    assert results == {"out.onnx.data", "out.onnx.1.data"}


def test_killed_at_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    results, between = set(), 0
    for folder in at_every_line(tmp_path, KILL, STEP):
        out = folder / "out.onnx"
        beside = [n for n in names(folder) if not n.startswith(PREFIX)]
        assert data_name(out) in beside
        between += len(beside) > 2
        write(folder / "another.onnx")
        (folder / "another.onnx").unlink()
        assert is_whole(out), (folder.name, names(folder))
        results.add(data_name(out))
    assert results == {"out.onnx.data", "out.onnx.1.data"}
    # Two files cannot be put in place at once: in between, the data files of both models are there.
    assert 0 < between < 30


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "folder that you may write to"),
        (errno.EPERM, "folder that you may write to"),
        (errno.EROFS, "not read-only"),
        (errno.EFBIG, "limit on file sizes"),
        (errno.ENAMETOOLONG, "shorter name"),
        (errno.EIO, "nothing was written"),
    ],
)
def test_messages_say_what_to_do(number: int, advice: str) -> None:
    error = output_error(OSError(number, os.strerror(number)), Path("/x/out.onnx"))
    assert str(error).startswith(f"/x/out.onnx cannot be written: {os.strerror(number)}; ")
    assert advice in str(error)


def test_failing_to_enter_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir, calls = Path.mkdir, []

    def second_fails(self: Path, *args: Any, **kwargs: Any) -> None:
        calls.append(self)
        if len(calls) == 2:
            failing(errno.ENOSPC)()
        mkdir(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", second_fails)
    before = snapshot(tmp_path)
    with pytest.raises(OutputError, match=FULL):
        Staging(tmp_path / "out.onnx").__enter__()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "error",
    [
        lambda files: OSError(errno.ENOSPC, FULL),
        lambda files: shutil.Error([("a", f"{files}/b", f"[Errno 28] {FULL}: 'b'")]),
        lambda files: RuntimeError(f"Error while serializing: {FULL} (os error 28)"),
        lambda files: OutputError(f"{files}/m.onnx cannot be written: {FULL}"),
    ],
    ids=["of the system", "of shutil", "of another library", "of a file within"],
)
def test_a_full_disk_is_said_of_the_output(
    error: Callable[[Path], Exception], tmp_path: Path
) -> None:
    out = tmp_path / "m.onnx"
    with pytest.raises(OutputError) as caught, Staging(out) as staging:
        raise error(staging.files)
    assert str(caught.value).startswith(f"{out} cannot be written: {FULL}")
    assert names(tmp_path) == []


def test_a_file_elsewhere_is_named_by_its_own_path(tmp_path: Path) -> None:
    """As a cache, or a log of somebody else's."""
    log = tmp_path / "elsewhere" / "log.txt"
    with pytest.raises(OutputError) as caught, Staging(tmp_path / "m.onnx"):
        raise OSError(errno.ENOSPC, FULL, str(log))
    assert str(caught.value).startswith(f"{log} cannot be written: {FULL}")


@pytest.mark.parametrize(
    "error", [ValueError(f"no label '{FULL}' in the data"), FileNotFoundError(2, "none", "input")]
)
def test_what_is_no_matter_of_the_disk_passes(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as caught, Staging(tmp_path / "m.onnx"):
        raise error
    assert caught.value is error
