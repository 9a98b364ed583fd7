"""What `make wheel` would put out, as far as that can be seen without compiling."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import octavo
from tests.release import tag
from tests.release.contents import (
    ROOT,
    binary_faults,
    metadata_faults,
    sdist_faults,
    tag_faults,
    tracked,
    wheel_faults,
)

VERSION = octavo.__version__


def of_the_sdist(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test slow, and one of those that one worker runs: it makes the archive once."""
    return pytest.mark.slow(pytest.mark.xdist_group("a source distribution")(test))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@of_the_sdist
def test_the_sdist_holds_the_sources_the_license_and_nothing_else(sdist: Path) -> None:
    assert sdist.name == f"octavo-{VERSION}.tar.gz"
    assert list(sdist_faults(sdist, VERSION)) == []


@of_the_sdist
def test_an_sdist_with_something_else_is_found(sdist: Path, tmp_path: Path) -> None:
    other = tmp_path / sdist.name
    with tarfile.open(sdist) as old, tarfile.open(other, "w:gz") as new:
        for member in old.getmembers():
            if not member.name.endswith("/py.typed"):
                new.addfile(member, old.extractfile(member))
        new.add(ROOT / "Makefile", f"octavo-{VERSION}/benchmarks/results/x.md")
    assert list(sdist_faults(other, VERSION)) == [
        "src/octavo/py.typed is not in it",
        "benchmarks/results/x.md does not belong in it",
    ]


def information_of(sdist: Path) -> bytes:
    """Its metadata."""
    with tarfile.open(sdist) as archive:
        file = archive.extractfile(f"octavo-{VERSION}/PKG-INFO")
        assert file is not None
        return file.read()


@of_the_sdist
def test_metadata_that_is_not_ours_is_found(sdist: Path) -> None:
    information = information_of(sdist)
    assert list(metadata_faults(information, VERSION)) == []
    assert list(metadata_faults(information, "9.9")) == [f"its Version is '{VERSION}', not '9.9'"]
    (fault,) = metadata_faults(information.replace(b"# Octavo", b"# Octave"), VERSION)
    assert fault == "its description is not README.md"


def test_all_that_names_a_release_names_this_one() -> None:
    """Until there is another, but for what is not released yet."""
    found = tag.faults(ROOT, f"v{VERSION}")
    assert [fault for fault in found if tag.UNRELEASED not in fault] == []


def test_what_is_not_released_keeps_a_tag_from_fitting(tmp_path: Path) -> None:
    files_of_a_release(tmp_path)
    changes = tmp_path / "CHANGELOG.md"
    text = changes.read_text()
    changes.write_text(text.replace("\n## ", f"\n## {tag.UNRELEASED}\n\nMore.\n\n## ", 1))
    assert tag.faults(tmp_path, f"v{VERSION}") == [
        "CHANGELOG.md has entries under Unreleased: give them a version and a date"
    ]


def files_of_a_release(folder: Path) -> None:
    """Copies of what a tag is compared with, without changes that have no version."""
    for name in tag.FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    changes = folder / "CHANGELOG.md"
    before, _, rest = changes.read_text().partition(f"## {tag.UNRELEASED}\n")
    changes.write_text(before + (rest and "## " + rest.partition("\n## ")[2]))


def test_a_tag_that_does_not_fit_is_found(tmp_path: Path) -> None:
    files_of_a_release(tmp_path)
    assert tag.faults(tmp_path, f"v{VERSION}") == []
    assert tag.faults(tmp_path, "v9.9.9") == [
        f"the tag v9.9.9 is not v{VERSION}, as src/octavo/__init__.py has it"
    ]
    citation = tmp_path / "CITATION.cff"
    citation.write_text(citation.read_text().replace(f"version: {VERSION}", "version: 0.0.1"))
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace(f"## {VERSION} - ", "## 0.0.2 - 1"))
    install = tmp_path / "docs" / "install.md"
    install.write_text(install.read_text().replace(f"octavo-{VERSION}", "octavo-0.0.3"))
    assert tag.faults(tmp_path, f"v{VERSION}") == [
        f"CHANGELOG.md begins with '0.0.2', not {VERSION} and a date",
        f"CITATION.cff has version 0.0.1, not {VERSION}",
        f"docs/install.md names octavo-0.0.3, not octavo-{VERSION}",
    ]


def test_the_changelog_fits_two_screens() -> None:
    """Of a version: it is read by who decides whether to try it."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for version in text.split("\n## ")[1:]:
        assert len(version.splitlines()) <= 80, version[:20]


def compiled(folder: Path, *flags: str) -> bytes:
    source, library = folder / "library.c", folder / "library.so"
    source.write_text(
        "const char *file(void) { return __FILE__; }\n"
        "#ifdef ASKS\nint statx_of_tomorrow(void);\n"
        "int asks(void) { return statx_of_tomorrow(); }\n#endif\n"
    )
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", *flags, source, "-o", library]
    subprocess.run(command, check=True, capture_output=True)
    return library.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "faults"),
    [
        (["-s"], ["names the folder {} of the machine it was built on"]),
        (["-s", "-ffile-prefix-map={}=."], []),
        (["-ffile-prefix-map={}=."], ["is not stripped"]),
        (["-g", "-ffile-prefix-map={}=."], ["is not stripped", "has debug sections"]),
        (
            ["-s", "-ffile-prefix-map={}=.", "-Wl,-rpath,/opt"],
            ["names folders to look for libraries in"],
        ),
        (
            ["-s", "-ffile-prefix-map={}=.", "-DASKS"],
            ["asks for statx_of_tomorrow, which no library gives"],
        ),
        (
            ["-s", "-ffile-prefix-map={}=.", "-fsanitize=thread"],
            ["asks for __tsan_init, which no library gives", "has __tsan_ in it"],
        ),
    ],
)
def test_a_library_that_is_not_clean_is_found(
    flags: list[str], faults: list[str], tmp_path: Path
) -> None:
    binary = compiled(tmp_path, *(flag.format(tmp_path) for flag in flags))
    found = list(binary_faults(binary, [tmp_path, Path("/nowhere")]))
    assert found == [fault.format(tmp_path) for fault in faults]


@pytest.mark.parametrize(
    ("platform", "faults"),
    [
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", []),
        ("manylinux_2_28_aarch64", []),
        ("manylinux_2_34_x86_64", ["it needs a newer glibc than 2.28"]),
        ("linux_x86_64", ["it has no manylinux tag"]),
    ],
)
def test_a_wheel_for_newer_systems_alone_is_found(platform: str, faults: list[str]) -> None:
    assert list(tag_faults(Path(f"octavo-1.2.3-cp312-abi3-{platform}.whl"))) == faults


@of_the_sdist
def test_a_wheel_is_compared_with_the_package(tmp_path: Path, sdist: Path) -> None:
    """One made by hand: of the sources without a page's style, with one library, and a test."""
    library = compiled(tmp_path, "-s", f"-ffile-prefix-map={tmp_path}=.")
    notes = f"octavo-{VERSION}.dist-info"
    wheel = tmp_path / "octavo.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in sorted(tracked("src/octavo")):
            if not name.endswith((".css", "py.typed")):
                archive.write(ROOT / name, name.removeprefix("src/"))
        archive.writestr("octavo/liboctavo_ort.so", library)
        archive.writestr("tests/test_release.py", "")
        archive.writestr(f"{notes}/METADATA", information_of(sdist))
    assert list(wheel_faults(wheel, VERSION, [ROOT])) == [
        "it has no manylinux tag",
        "octavo/py.typed is not in it",
        "octavo/report/html/templates/page.css is not in it",
        "tests/test_release.py does not belong in it",
        "it has 0 files octavo/_native*.so, not one",
        "it has no LICENSE",
    ]
