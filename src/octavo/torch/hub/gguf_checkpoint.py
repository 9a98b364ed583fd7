"""A GGUF file as a checkpoint: its class, its configuration, its tokenizer, and its layers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from octavo.checkpoints.gguf_file import GgufFile, open_gguf
from octavo.core.packages import GGUF, need
from octavo.errors import ModelError, OctavoError, brief, did_you_mean, typed
from octavo.files.checkpoints import is_gguf
from octavo.recipe import Recipe
from octavo.torch.hub.checkpoint import Checkpoint, find_checkpoint, refuse_depth
from octavo.torch.hub.config import OctavoConfig
from octavo.torch.hub.gguf_config import complete, windowed
from octavo.torch.hub.headers import StoredTensor
from octavo.torch.hub.libraries import quiet_libraries


@dataclass(frozen=True)
class GgufCheckpoint(Checkpoint):
    """`file` lies in `folder`, whose other files are none of its own."""

    file: GgufFile

    @property
    def architecture(self) -> str:
        """The class that answers for its architecture: of text generation, if it is not said."""
        named = getattr(self.config, "architectures", None)
        return str(named[0]) if named else "AutoModelForCausalLM"

    @cached_property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """Return what the file holds, by the names that the file has for its tensors."""
        return tuple(
            StoredTensor(t.name, t.shape, t.kind.name, t.bytes, self.file.path.name)
            for t in self.file.tensors
        )

    @property
    def loader(self) -> Any:
        """The class's from_pretrained; floats become float32."""
        return self._load

    def _load(self, folder: Path, **given: Any) -> Any:
        given |= {"gguf_file": self.file.path.name, "dtype": torch.float32}
        try:
            return self.model_class.from_pretrained(folder, config=self.config, **given)
        except OctavoError:
            raise
        except Exception as error:  # whatever transformers raises of a file
            raise ModelError(
                f"{self.name} ({self.file.architecture}): transformers cannot load it: "
                f"{typed(error)}"
            ) from error

    @property
    def kept_by(self) -> str:
        """Whoever wrote the file."""
        return "llama.cpp"

    def load(self, dtype: torch.dtype = torch.float32, *, quantized: bool = False) -> Any:
        """Load the module in eval mode with the file's integers.

        Raises ModelError, always where `quantized` is false: floats are asked for then.
        """
        if not quantized:
            self.refuse_quantized()
        with quiet_libraries():
            return self._load(self.folder, quantization_config=OctavoConfig()).eval()

    def refuse_quantized(self, *, readable: bool = False) -> None:
        """Raise ModelError unless `readable`: the file's weights are integers already."""
        if not readable:
            raise ModelError(
                f"{self.name} is a GGUF file, whose weights are integers already: octavo quantize "
                "makes a folder of it that keeps them, and from_pretrained opens; give the float "
                "checkpoint where floats are needed"
            )

    def write_others(self, place: Path) -> None:
        """Write the tokenizer that is in the file, if there is one, to `place`."""
        if "tokenizer.ggml.model" not in self.file.metadata:
            return
        from transformers import AutoTokenizer

        try:
            found = AutoTokenizer.from_pretrained(self.folder, gguf_file=self.file.path.name)
        except Exception as error:  # whatever transformers raises of a file
            raise ModelError(
                f"{self.name}: transformers cannot read its tokenizer: {brief(error)}; load the "
                "model alone with octavo.torch.hub.load_gguf"
            ) from error
        found.save_pretrained(place)


def find_gguf(path: str | os.PathLike[str]) -> GgufCheckpoint:
    """Open a GGUF file as a checkpoint.

    Raises ModelError where transformers, gguf or accelerate are missing, for a damaged file (see
    `open_gguf`), for an architecture that transformers does not read and for fields that its class
    has no place for (see `complete`).
    """
    need("GGUF files need", *GGUF)
    file = open_gguf(path)
    _check_architecture(file)
    from transformers import AutoConfig

    folder = file.path.parent
    try:
        with quiet_libraries():
            config = AutoConfig.from_pretrained(folder, gguf_file=file.path.name)
    except Exception as error:  # whatever transformers raises of a file
        if isinstance(error, KeyError) and error.args:
            raise ModelError(
                f"{path} ({file.architecture}) lacks the field {error.args[0]!r} in its metadata: "
                "get the file again, or convert the model anew with llama.cpp"
            ) from error
        raise ModelError(f"{path}: transformers cannot use its metadata: {typed(error)}") from error
    refuse_depth(config, file.path, len(file.tensors))
    config = windowed(config, file)
    complete(config, file)
    return GgufCheckpoint(os.fspath(path), folder, folder, config, file)


def find_either(name_or_path: str | os.PathLike[str], *, cached_only: bool = False) -> Checkpoint:
    """Find a GGUF file as `find_gguf` does, everything else as `find_checkpoint` does."""
    if is_gguf(os.fspath(name_or_path)):
        return find_gguf(name_or_path)
    return find_checkpoint(name_or_path, cached_only=cached_only)


def load_gguf(
    path: str | os.PathLike[str],
    recipe: str | Path | Recipe = "int8",
    skip: Iterable[str] = (),
) -> Any:
    """Load the model in a GGUF file of llama.cpp, in eval mode, with the file's own integers.

    Blocks of Q4_0, Q4_1, Q4_K, Q5_0 and Q8_0 stay as they are, others are rounded to groups of 8
    bits, or of 4 where they have less than 5; `octavo.torch.report(model)` says which. What the
    file has in floats is quantized as `recipe` says. `skip` names layers that become float, as in
    `OctavoConfig`. Raises ModelError as `find_gguf`, RecipeError and OptionError.
    """
    found = find_gguf(path)
    config = OctavoConfig(recipe=recipe, skip=skip)
    config.refuse_limits(found.name, found.kept_by)
    try:
        with quiet_libraries():
            return found.loader(found.folder, quantization_config=config)
    except OctavoError:
        raise
    except Exception as error:  # whatever transformers raises of a file
        raise ModelError(
            f"{path} ({found.file.architecture}): transformers cannot load it: {typed(error)}"
        ) from error


def _check_architecture(file: GgufFile) -> None:
    import transformers
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    known = {*GGUF_SUPPORTED_ARCHITECTURES, "t5encoder", *_newer_architectures()}
    known.discard("general")
    plain = str.maketrans("", "", "-_")  # llama.cpp has gpt-oss and qwen2moe
    if file.architecture.translate(plain) not in {name.translate(plain) for name in known}:
        raise ModelError(
            f"{file.path} is of the architecture {file.architecture!r}, which transformers "
            f"{transformers.__version__} does not read of GGUF files."
            f"{did_you_mean(file.architecture, sorted(known))}"
        )


def _newer_architectures() -> Iterable[str]:
    try:
        from transformers.integrations.gguf import GGUF_CONFIG_ARCHS
    except ImportError:
        return ()
    return tuple(GGUF_CONFIG_ARCHS)
