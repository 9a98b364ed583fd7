"""Which Python makes and tries which wheel."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.release import pythons
from tests.release.run import serves

pytestmark = pytest.mark.slow


def test_a_python_is_found_by_its_version() -> None:
    version = sysconfig.get_python_version()
    found = pythons.find(version)
    if found is None:
        pytest.skip(f"NOT TESTED: no python{version} with headers is on the path or in pyenv")
    question = [found, "-c", "import sysconfig; print(sysconfig.get_python_version())"]
    done = subprocess.run(question, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == version


def test_a_python_that_nobody_has_is_not_found() -> None:
    assert pythons.find("3.99") is None


@pytest.mark.parametrize(
    ("tags", "versions"),
    [
        ("cp310-cp310-manylinux_2_24_x86_64", ["3.10"]),
        ("cp311-cp311-manylinux_2_24_aarch64", ["3.11"]),
        ("cp312-abi3-manylinux_2_24_x86_64", list(pythons.LIMITED)),
    ],
)
def test_a_wheel_serves_the_pythons_of_its_name(tags: str, versions: list[str]) -> None:
    wheel = Path(f"octavo-1.2.3-{tags}.whl")
    assert [v for v in (*pythons.OLDER, *pythons.LIMITED) if serves(wheel, v)] == versions
