"""What a machine has for running int8 models, what is missing, and how to get it."""

from __future__ import annotations

import importlib
import importlib.metadata as dist
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

from octavo.core.cpu import made_by_amd, release, saturates, uses_vnni
from octavo.core.layer import Kind
from octavo.core.packages import OPTIONAL, OptionalPackage, pip_install
from octavo.measure.kernel_tables import kernel_tables, slower_by_choice, work_of_layers
from octavo.results.diagnosis import Diagnosis, Finding, Kernels, KernelTable, Package
from octavo.results.stored import outcomes_from_json

_TOLD = ("recipe", "target")
LONGEST = 200  # characters of an entry of a file's metadata; longer ones are for programs
_FIRST = ("numpy", "onnx", "onnx-ir", "onnxruntime")
# Builds that install the same module under other distribution names.
_BUILDS = {
    "onnxruntime": (
        *("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml"),
    ),
    "tensorflow-cpu": ("tensorflow-cpu", "tensorflow"),
}


def diagnose(
    model: str | None = None, metadata: Mapping[str, str] | None = None, by_others: str = ""
) -> Diagnosis:
    """Examine this process's machine, and what a file says of itself where one is given.

    `metadata` are the `metadata_props` of the file at `model`; `by_others` says what a file is that
    another tool quantized.
    """
    import octavo

    packages = check_packages(_requirements(), installed_version)
    findings = [*package_findings(packages), *_import_findings(packages)]
    features, tables, broken = _processor()
    findings += broken
    said = {key: text for key, text in (metadata or {}).items() if len(text) <= LONGEST}
    about: list[str] = []
    if model is not None:
        runtime = next((p.installed for p in packages if p.name == "onnxruntime"), None)
        findings += file_findings(model, said, features, runtime)
        about = [by_others] if by_others else about_file(said, features, runtime)
        if tables and said.get("octavo.target") == "native":
            about += work_of_layers(_macs(metadata or {}), tables, _peak())
    return Diagnosis(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        octavo=octavo.__version__,
        packages=tuple(packages),
        cpu_features=features,
        kernels=kernels(features),
        findings=tuple(findings),
        model=model,
        about=tuple(about),
        metadata=said,
        tables=tables,
    )


def about_file(
    metadata: Mapping[str, str], features: Sequence[str], onnxruntime: str | None
) -> list[str]:
    """Say what a file is and how it runs on a processor with `features`, a sentence each."""
    if not any(key.startswith("octavo.") for key in metadata):
        return [
            "Octavo did not make this file, so nothing is known of how it runs here; octavo "
            "inspect shows what is in it"
        ]
    told = [f"{key} {metadata[f'octavo.{key}']}" for key in _TOLD if f"octavo.{key}" in metadata]
    by = f"made by Octavo {metadata.get('octavo.version', '')}".rstrip()
    said = [": ".join(filter(None, (by, ", ".join(told))))]
    if metadata.get("octavo.target") == "native":
        said.append(
            "runs on Octavo's own operators, which octavo.onnx.session registers: the same result "
            "on every processor"
        )
    elif metadata.get("octavo.cpu") == "any":
        said.append("runs exactly on every processor; with VNNI, --cpu vnni is twice as fast")
    elif kernels(features).exact:
        said.append(f"runs here exactly, on {kernels(features).name}, in any ONNX Runtime session")
    needed = metadata.get("octavo.min_onnxruntime")
    if needed and onnxruntime and release(onnxruntime) >= release(needed):
        said.append(f"needs ONNX Runtime {needed} or newer; this one is {onnxruntime}")
    return said


def kernels(features: Sequence[str]) -> Kernels:
    """Return what ONNX Runtime's int8 matrix products use on a processor with `features`."""
    has = set(features)
    if "neon" in has:
        return Kernels("NEON", True, "exact for every file; dot-product instructions where present")
    if uses_vnni(has):
        name = "AMX and VNNI" if "amxint8" in has else "VNNI"
        return Kernels(name, True, "exact and fast with int8 weights (--cpu vnni, the default)")
    if saturates(has):
        return Kernels(
            "AVX2 without VNNI",
            False,
            "int8 weights saturate here: open files made for cpu vnni with octavo.onnx.session, "
            "which sets session.x64quantprecision=1, or make them with --cpu any",
        )
    return Kernels("none for int8 (no AVX2, VNNI or NEON)", True, "exact, and slower than float")


def check_packages(
    requirements: Sequence[str], installed: Callable[[str], str | None]
) -> list[Package]:
    """List the packages that `requirements` (of `importlib.metadata`) name, then optional ones."""
    found: dict[str, Package] = {}
    for line in requirements:
        specifier, _, marker = line.partition(";")
        match = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[.*\])?\s*\(?([^)]*)\)?", specifier)
        if match is not None and "extra" not in marker:
            name, needs = match[1], match[2].strip()
            install = f"pip install {shlex.quote(name + needs)}"
            found[name] = Package(name, installed(name), needs, True, install)
    order = {name: i for i, name in enumerate(_FIRST)}
    required = sorted(found.values(), key=lambda p: order.get(p.name, len(order)))
    return [*required, *(_optional(package, installed) for package in OPTIONAL)]


def _optional(package: OptionalPackage, installed: Callable[[str], str | None]) -> Package:
    name, needs = package.bare_name, f">={package.least}" if package.least else ""
    install = pip_install(package.module)
    return Package(name, installed(name), needs, False, install, package.purpose)


def package_findings(packages: Sequence[Package]) -> list[Finding]:
    """List packages missing or older than needed, each with the pip command that mends it."""
    findings = []
    for p in packages:
        fix = f"{sys.executable} -m {p.install}"
        if p.installed is None:
            if p.required:
                findings.append(Finding("problem", f"{p.name} is not installed", fix))
            continue
        least = re.search(r">=\s*([\d.]+)", p.needs)
        if least and release(p.installed) < release(least[1]):
            level = "problem" if p.required else "warning"
            message = f"{p.name} {p.installed} is older than {least[1]}, the least that works"
            findings.append(Finding(level, message, fix))
    return findings


def file_findings(
    model: str, metadata: Mapping[str, str], features: Sequence[str], onnxruntime: str | None
) -> list[Finding]:
    """List where a file written by Octavo and this machine do not fit.

    Foreign files give nothing.
    """
    findings = []
    needed = metadata.get("octavo.min_onnxruntime")
    if needed and onnxruntime and release(onnxruntime) < release(needed):
        findings.append(
            Finding(
                "problem",
                f"{model} needs ONNX Runtime {needed} or newer; installed is {onnxruntime}",
                f"{sys.executable} -m pip install 'onnxruntime>={needed}'",
            )
        )
    own = metadata.get("octavo.target") == "native"  # operators that are exact everywhere
    if metadata.get("octavo.cpu") == "vnni" and not own and not kernels(features).exact:
        findings.append(
            Finding(
                "warning",
                f"{model} was made for processors with VNNI, and this one has none: opened "
                "plainly in ONNX Runtime its products saturate and its results are wrong",
                "open it with octavo.onnx.session, or quantize the float model with --cpu any",
            )
        )
    return findings


def installed_version(name: str) -> str | None:
    """Return the version of the distribution `name`, None where it is not installed."""
    for candidate in _BUILDS.get(name, (name,)):
        try:
            return dist.version(candidate)
        except dist.PackageNotFoundError:
            continue
    return None


def _requirements() -> list[str]:
    try:
        return dist.requires("octavo") or []
    except dist.PackageNotFoundError:  # run from a source tree: name what matters, any version
        return list(_FIRST)


def _import_findings(packages: Sequence[Package]) -> list[Finding]:
    """List installed packages that do not load: a broken wheel, a missing system library."""
    findings = []
    for p in packages:
        if p.installed is None or not p.required:
            continue
        try:
            importlib.import_module(p.name.replace("-", "_"))
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            findings.append(
                Finding(
                    "problem",
                    f"{p.name} {p.installed} does not load: {type(error).__name__}: {error}",
                    f"{sys.executable} -m pip install --force-reinstall '{p.name}{p.needs}'",
                )
            )
    return findings


def _processor() -> tuple[tuple[str, ...], tuple[KernelTable, ...], list[Finding]]:
    """Instruction sets, Octavo's kernels for them, and what is wrong with either."""
    try:
        from octavo.core.kernels import cpu_features, isa, isas
    except ImportError as error:
        fix = "install Octavo again, from its wheel or a clone of its repository"
        return (), (), [Finding("problem", f"Octavo's native module does not load: {error}", fix)]
    runnable = isas()
    try:
        in_use = isa()
    except ValueError as error:
        problem = Finding("problem", str(error), "unset OCTAVO_ISA")
        return tuple(cpu_features()), (), [problem]
    tables = kernel_tables(runnable, in_use, cpu_features(), amd=made_by_amd())
    return tuple(cpu_features()), tables, list(slower_by_choice(runnable, in_use))


def _peak() -> float:
    from octavo.core.kernels import isa, peak_gops

    return peak_gops(isa(), seconds=0.05)


def _macs(metadata: Mapping[str, str]) -> int:
    """Multiply-accumulates a row of the layers that a file of Octavo holds as integers."""
    try:
        outcomes = outcomes_from_json(metadata["octavo.layers"])
    except (KeyError, ValueError):  # another's file, or an older one
        return 0
    return sum(
        o.layer.macs_per_row or 0
        for o in outcomes
        if o.quantized and o.layer.kind is not Kind.EMBEDDING
    )
