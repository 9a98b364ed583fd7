"""Where the demo takes Octavo from, and what its environment is made of."""

from __future__ import annotations

import platform
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks import demo_setup
from octavo import __version__

pytestmark = pytest.mark.slow

if sys.version_info >= (3, 11):
    import tomllib

HERE = f"cp{sys.version_info.major}{sys.version_info.minor}"
OTHER = "cp39"


def wheel(folder: Path, tags: str, version: str = __version__) -> None:
    """One that holds what pip asks of it."""
    folder.mkdir(exist_ok=True)
    info = f"octavo-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: octavo\nVersion: {version}\n"
    kind = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tags}\n"
    with zipfile.ZipFile(folder / f"octavo-{version}-{tags}.whl", "w") as archive:
        for name, text in (("METADATA", about), ("WHEEL", kind), ("RECORD", "")):
            archive.writestr(f"{info}/{name}", text)


MACHINE = f"manylinux_2_17_{platform.machine()}"
CASES = {
    "none": ([], None),
    "for this Python": ([f"{HERE}-{HERE}-{MACHINE}"], f"{HERE}-{HERE}-{MACHINE}"),
    "for this and later ones": ([f"cp310-abi3-{MACHINE}"], f"cp310-abi3-{MACHINE}"),
    "for another Python": ([f"{OTHER}-{OTHER}-{MACHINE}"], None),
    "for another processor": ([f"{HERE}-{HERE}-manylinux_2_17_s390x"], None),
    "for another system": ([f"{HERE}-{HERE}-win_amd64"], None),
    "the one that fits among others": (
        [f"{OTHER}-{OTHER}-{MACHINE}", f"{HERE}-{HERE}-{MACHINE}", f"{HERE}-{HERE}-win_amd64"],
        f"{HERE}-{HERE}-{MACHINE}",
    ),
}


@pytest.mark.parametrize(("tags", "taken"), CASES.values(), ids=CASES)
def test_the_wheel_that_fits(tmp_path: Path, tags: list[str], taken: str | None) -> None:
    for one in tags:
        wheel(tmp_path / "dist", one)
    found = demo_setup.fitting_wheel(
        Path(sys.executable), tmp_path / "dist", __version__, tmp_path / "into"
    )
    assert (found and found.name) == (taken and f"octavo-{__version__}-{taken}.whl")


def test_a_wheel_of_another_version_is_not_taken(tmp_path: Path) -> None:
    wheel(tmp_path / "dist", f"{HERE}-{HERE}-{MACHINE}", "0.0.9")
    wheel(tmp_path / "dist", f"{HERE}-{HERE}-{MACHINE}", "99.0")
    into = tmp_path / "into"
    python = Path(sys.executable)
    assert demo_setup.fitting_wheel(python, tmp_path / "dist", __version__, into) is None


def test_a_wheel_of_other_sources_is_not_taken_silently(tmp_path: Path) -> None:
    wheel(tmp_path, f"{HERE}-{HERE}-{MACHINE}", "0.0.9")
    wheel(tmp_path, f"{HERE}-{HERE}-{MACHINE}")
    made = next(tmp_path.glob(f"octavo-{__version__}-*.whl")).stat().st_mtime
    other, *old = demo_setup.not_taken(tmp_path, __version__, made - 1)
    assert "0.0.9" in other and f"are of version {__version__}" in other and not old
    _, old = demo_setup.not_taken(tmp_path, __version__, made + 1)
    assert "it is older than these sources; make wheel" in old
    assert demo_setup.not_taken(tmp_path / "none", __version__, made) == []
    assert demo_setup.last_change() >= (demo_setup.ROOT / "CMakeLists.txt").stat().st_mtime


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot read TOML")
def test_requirements_are_those_of_the_project() -> None:
    text = (demo_setup.ROOT / "pyproject.toml").read_text("utf-8")
    project = tomllib.loads(text)["project"]
    expected = [*project["dependencies"], *project["optional-dependencies"]["demo"]]
    assert demo_setup.requirements("demo") == expected
    with pytest.raises(LookupError, match="no list nothing"):
        demo_setup.requirements("nothing")
    assert set(demo_setup.PEERS) <= set(project["optional-dependencies"]["bench"])
