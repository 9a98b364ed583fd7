"""The doctor: what is missing or too old, which kernels would run, whether a file fits."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from octavo.core.packages import CPU_BUILDS, OPTIONAL
from octavo.measure import doctor
from octavo.measure.doctor import Finding, Package

REQUIREMENTS = [
    "rich>=13.7",
    "onnxruntime>=1.23",
    "numpy>=1.26",
    "ruamel.yaml (>=0.18)",
    'torch>=2.4; extra == "torch"',
    'torch==2.13.0; extra == "dev"',
    'optuna>=4.0; extra == "tune"',
]
OLD_X86 = ["sse2", "fma", "avx2", "avx512f"]


def packages(versions: Mapping[str, str]) -> list[Package]:
    return doctor.check_packages(REQUIREMENTS, versions.get)


def test_what_is_required_comes_first_and_then_what_some_uses_take() -> None:
    required, optional = [], []
    for package in packages({"numpy": "2.0", "rich": "14.1", "optuna": "4.5"}):
        (required if package.required else optional).append(package)
    assert required == [
        Package("numpy", "2.0", ">=1.26", True, "pip install 'numpy>=1.26'"),
        Package("onnxruntime", None, ">=1.23", True, "pip install 'onnxruntime>=1.23'"),
        Package("rich", "14.1", ">=13.7", True, "pip install 'rich>=13.7'"),
        Package("ruamel.yaml", None, ">=0.18", True, "pip install 'ruamel.yaml>=0.18'"),
    ]
    assert len(optional) == len(OPTIONAL)
    assert all(package.purpose and package.install for package in optional)
    assert [package.name for package in optional if package.installed] == ["optuna"]


def test_nothing_is_missing_when_all_are_new_enough() -> None:
    new = {"numpy": "1.26.0", "onnxruntime": "1.23", "rich": "13.10.1", "ruamel.yaml": "0.18"}
    assert doctor.package_findings(packages(new)) == []
    assert doctor.package_findings(packages({**new, "torch": "2.13.0+cpu"})) == []


def test_missing_and_old_packages_come_with_the_command() -> None:
    old = {"numpy": "1.9.3", "onnxruntime": "1.23.0rc1", "rich": "13.7", "torch": "2.3.1"}
    pip = f"{sys.executable} -m pip install "
    found = doctor.package_findings(packages(old))
    assert [(f.level, f.message.split(" is ")[0], f.fix) for f in found] == [
        ("problem", "numpy 1.9.3", pip + "'numpy>=1.26'"),
        ("problem", "ruamel.yaml", pip + "'ruamel.yaml>=0.18'"),
        ("warning", "torch 2.3.1", pip + f"torch==2.13.0 --extra-index-url {CPU_BUILDS}"),
    ]


@pytest.mark.parametrize(
    ("features", "name", "exact"),
    [
        ([*OLD_X86, "avx512vnni", "amxint8"], "AMX and VNNI", True),
        ([*OLD_X86, "avxvnni"], "VNNI", True),
        (OLD_X86, "AVX2 without VNNI", False),
        (["sse2"], "none for int8 (no AVX2, VNNI or NEON)", True),
        (["neon"], "NEON", True),
        ([], "none for int8 (no AVX2, VNNI or NEON)", True),
    ],
)
def test_kernels(features: list[str], name: str, exact: bool) -> None:
    found = doctor.kernels(features)
    assert (found.name, found.exact) == (name, exact)
    assert ("--cpu any" in found.advice) == (not exact)


@pytest.mark.parametrize("extra", [[], ["avx512vnni"], ["avxvnni"], ["amxint8"]])
def test_the_doctor_and_the_session_agree_on_who_saturates(
    extra: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = importlib.import_module("octavo.onnx.session")
    for features in ([*OLD_X86, *extra], ["neon"]):
        monkeypatch.setattr("octavo.core.kernels.cpu_features", lambda found=features: found)
        assert session._saturates() == (not doctor.kernels(features).exact)


def findings(
    said: Mapping[str, str], features: Sequence[str], runtime: str | None = "1.31.1"
) -> list[Finding]:
    return doctor.file_findings("m.onnx", said, features, runtime)


def test_a_vnni_file_on_a_processor_without_it_is_a_warning() -> None:
    said = {"octavo.cpu": "vnni", "octavo.min_onnxruntime": "1.17"}
    (found,) = findings(said, OLD_X86)
    assert found.level == "warning"
    assert "octavo.onnx.session" in found.fix and "its results are wrong" in found.message
    assert findings(said, [*OLD_X86, "avxvnni"]) == []
    assert findings(said, ["neon"]) == []
    assert findings({"octavo.cpu": "any"}, OLD_X86) == []
    assert findings({**said, "octavo.target": "native"}, OLD_X86) == []
    assert findings({}, OLD_X86) == []


def test_a_file_that_needs_a_newer_onnxruntime_is_a_problem() -> None:
    said = {"octavo.min_onnxruntime": "1.23"}
    (found,) = findings(said, [], "1.17.3")
    assert found.level == "problem"
    assert "1.23" in found.message and "1.17.3" in found.message
    assert found.fix.endswith("-m pip install 'onnxruntime>=1.23'")
    assert findings(said, [], "1.23.0") == []
    assert findings(said, [], None) == []  # its absence is a finding of its own


def test_this_environment_is_fine() -> None:
    found = doctor.diagnose()
    assert found.ok, found.findings
    assert {p.name for p in found.packages} >= {"numpy", "onnx", "onnx-ir", "onnxruntime", "torch"}
    assert found.cpu_features
    assert json.loads(json.dumps(found.to_dict()))["ok"] is True
    assert re.search("(?m)^nothing .*is missing$", found.text()) or found.findings


def test_a_package_that_does_not_load_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    load = importlib.import_module

    def broken(name: str, package: str | None = None) -> object:
        if name == "onnx_ir":
            raise OSError("libfoo.so.1: cannot open shared object file")
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", broken)
    found = doctor.diagnose()
    assert not found.ok
    (finding,) = found.findings
    assert finding.message.startswith(
        f"onnx-ir {doctor.installed_version('onnx-ir')} does not load"
    )
    assert "libfoo.so.1" in finding.message
    assert "problem: onnx-ir" in found.text()
    assert "pip install --force-reinstall 'onnx-ir>=" in found.text()


def test_without_the_native_module_the_doctor_still_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "octavo.core.kernels", None)
    found = doctor.diagnose()
    assert not found.ok
    assert "native module does not load" in found.findings[0].message
    assert found.tables == ()
    assert re.search(r"^instruction sets +unknown$", found.text(), re.MULTILINE)


OURS = {
    "octavo.version": "0.1.0",
    "octavo.recipe": "int8",
    "octavo.target": "portable",
    "octavo.cpu": "vnni",
    "octavo.min_onnxruntime": "1.17",
}


@pytest.mark.parametrize(
    ("changes", "features", "says"),
    [
        ({}, ["avx512vnni"], "runs here exactly, on VNNI, in any ONNX Runtime session"),
        ({"octavo.cpu": "any"}, OLD_X86, "runs exactly on every processor"),
        ({"octavo.target": "native"}, OLD_X86, "runs on Octavo's own operators, which octavo.onnx"),
    ],
)
def test_a_file_is_a_few_sentences_about_this_machine(
    changes: dict[str, str], features: list[str], says: str
) -> None:
    said = doctor.about_file({**OURS, **changes}, features, "1.32.0")
    target = changes.get("octavo.target", "portable")
    assert said[0] == f"made by Octavo 0.1.0: recipe int8, target {target}"
    assert said[1].startswith(says)
    assert said[2:] == ["needs ONNX Runtime 1.17 or newer; this one is 1.32.0"]
    assert len(doctor.about_file(OURS, OLD_X86, "1.32.0")) == 2, "it would be wrong here"


def test_the_page_of_a_file_is_short_and_without_what_is_for_programs() -> None:
    said = {**OURS, "octavo.recipe": "int8\x1b[1m", "octavo.layers": "[" + "x" * 20_000}
    found = doctor.diagnose("m.onnx", said)
    out = found.text()
    assert out.startswith("m.onnx\n  made by Octavo 0.1.0: recipe int8\\x1b[1m, target portable\n")
    assert len(out.splitlines()) < 8 and "xxx" not in out
    assert "octavo.layers" not in found.to_dict()["metadata"]
    foreign = doctor.diagnose("m.onnx", {}).text()
    assert foreign.startswith("m.onnx\n  Octavo did not make this file")


def test_an_optional_package_that_is_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = doctor.installed_version
    monkeypatch.setattr(
        doctor, "installed_version", lambda name: None if name == "torch" else installed(name)
    )
    found = doctor.diagnose()
    assert found.ok
    assert re.search(
        r"(?m)^torch +not installed, for PyTorch modules and checkpoints: pip install torch==2.13",
        found.text(),
    )
    assert "\nnothing that Octavo itself needs is missing" in found.text() or found.findings
    assert re.search(r"(?m)^jinja2 +3\.[\d.]+, for reports as HTML pages$", found.text())


def test_builds_of_onnxruntime_under_other_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "onnxruntime-gpu":
            return "1.30.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    assert doctor.installed_version("onnxruntime") == "1.30.0"
    assert doctor.installed_version("onnx") is None
