"""Packages that Octavo does without until somebody asks for what they are for.

need("checkpoints", "torch", "transformers")
ModelError: checkpoints need transformers, which is not installed: pip install 'transformers>=5'
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.core.cpu import release
from octavo.errors import ModelError, OctavoError, typed

TORCH = "2.13.0"
"""The PyTorch that Octavo is tested with."""
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch without the libraries of graphics cards is, some gigabytes smaller."""


@dataclass(frozen=True)
class OptionalPackage:
    """What is imported as `module`: the `least` release, what it is for, and pip's name for it.

    `loads` is a part of it that shows whether the whole can be loaded.
    """

    module: str
    least: str
    purpose: str
    name: str = ""
    loads: str = ""

    @property
    def distribution(self) -> str:
        """Pip's name, with extras."""
        return self.name or self.module

    @property
    def bare_name(self) -> str:
        """Pip's name, without extras."""
        return self.distribution.partition("[")[0]

    @property
    def requirement(self) -> str:
        """Return the requirement that pip is asked for."""
        if self.module == "torch":
            return f"torch=={TORCH}"
        return f"{self.distribution}>={self.least}" if self.least else self.distribution

    @property
    def installed(self) -> str | None:
        """The release that is there; "" where nobody knows it, None where there is none."""
        try:
            if importlib.util.find_spec(self.module) is None:
                return None
            return importlib.metadata.version(self.bare_name)
        except ValueError:  # a module that was put there by hand
            return ""
        except importlib.metadata.PackageNotFoundError:
            return ""

    @property
    def fault(self) -> str:
        """Say why the package cannot be used: it is missing, or too old; "" where it can."""
        found = self.installed
        if found is None:
            return "is not installed"
        if found and self.least and release(found) < release(self.least):
            return f"is {found} here and has to be {self.least} or newer"
        return ""


_DRAWING = "matplotlib.backends.backend_agg"

OPTIONAL = (
    OptionalPackage("torch", "2.4", "PyTorch modules and checkpoints"),
    OptionalPackage("safetensors", "0.4", "checkpoints"),
    OptionalPackage("tokenizers", "0.20", "checkpoints"),
    OptionalPackage("transformers", "5", "checkpoints"),
    OptionalPackage("gguf", "0.17", "GGUF files"),
    OptionalPackage("accelerate", "1", "GGUF files"),
    OptionalPackage("peft", "0.17", "LoRA adapters"),
    OptionalPackage("jinja2", "3.1", "reports as HTML pages"),
    OptionalPackage("matplotlib", "3.8", "pictures: --plot, and on pages", loads=_DRAWING),
    OptionalPackage("optuna", "4", "tuning with strategies tpe and bayesian"),
    OptionalPackage("scipy", "1.12", "tuning with strategy bayesian, and some metrics"),
    OptionalPackage("sklearn", "1.4", "metrics such as f1", "scikit-learn"),
    OptionalPackage("sacrebleu", "2.4", "metric BLEU"),
    OptionalPackage("jiwer", "3", "metric WER"),
    OptionalPackage("torchmetrics", "", "metrics of boxes and pixels"),
    OptionalPackage("torchvision", "", "metrics of boxes"),
    OptionalPackage("pycocotools", "", "metrics of boxes"),
    OptionalPackage("pyarrow", "15", "data in .csv and .parquet files"),
    OptionalPackage("tf2onnx", "", "TensorFlow models"),
    OptionalPackage("tensorflow", "", "TensorFlow models", "tensorflow-cpu"),
)
_BY_MODULE = {package.module: package for package in OPTIONAL}

CHECKPOINTS = ("torch", "transformers", "safetensors", "tokenizers")
"""What a checkpoint of transformers takes."""
GGUF = ("torch", "transformers>=5.20", "safetensors", "tokenizers", "gguf", "accelerate")
"""What a GGUF file takes."""


def pip_install(*modules: str, again: bool = False) -> str:
    """Return the command that installs `modules`, as a shell takes it, wherever Octavo came from.

    A module may have the least release behind it, `transformers>=5.20`. PyTorch comes in its build
    for CPUs. `again`: in place of what is broken.
    """
    wanted = sorted(map(_package, modules), key=lambda p: p.module == "torch")
    words = ["pip", "install", *(["--force-reinstall"] if again else [])]
    words += [package.requirement for package in wanted]
    if any(package.module == "torch" for package in wanted):
        words += ["--extra-index-url", CPU_BUILDS]
    return shlex.join(words)


def need(
    what: str,
    *modules: str,
    error: type[OctavoError] = ModelError,
    otherwise: str = "",
    load: bool = True,
) -> None:
    """Raise `error` where some of `modules` are missing, too old or broken.

    `what` is what needs them, with that word: "--report needs". All that are missing are named at
    once. `otherwise` is an end of the message: what needs none of them. Without `load` nobody looks
    whether they can be imported.
    """
    if fault := what_is_wrong(*modules, load=load):
        raise error(f"{what} {fault}{otherwise}")


def what_is_wrong(*modules: str, load: bool = True) -> str:
    """Say which of `modules` are missing, too old or do not load, and what to do; mostly ""."""
    packages = [_package(text) for text in modules]
    if wrong := [package for package in packages if package.fault]:
        return f"{_faults(wrong)}: {pip_install(*(f'{p.module}>={p.least}' for p in wrong))}"
    for package in packages if load else ():
        try:
            importlib.import_module(package.loads or package.module)
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            return (
                f"{package.module}, which is installed and does not load: "
                f"{typed(error)}. Install it again: "
                f"{pip_install(package.module, again=True)}"
            )
    return ""


def _package(text: str) -> OptionalPackage:
    module, _, least = text.partition(">=")
    package = _BY_MODULE[module]
    return replace(package, least=least) if least else package


def _faults(wrong: Sequence[OptionalPackage]) -> str:
    """Return `a and b, which are not installed`, and what is too old."""
    missing = [package.module for package in wrong if package.installed is None]
    old = [f"{p.module}, which {p.fault}" for p in wrong if p.installed is not None]
    verb = "are" if len(missing) > 1 else "is"
    said = [f"{all_of(missing)}, which {verb} not installed"] if missing else []
    return ", and ".join([*said, *old])


def all_of(names: Sequence[str]) -> str:
    """Join `names` as `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
