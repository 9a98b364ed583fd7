"""`save_pretrained` of a model that Octavo quantized: a folder gets all of it, or stays as it was.

transformers writes config.json first and then file by file, over whatever is there. With this, it
writes into a hidden folder inside, whose files are moved to their places at the end. Models that
Octavo did not quantize are saved as before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
from pathlib import Path
from typing import Any

from transformers.modeling_utils import PreTrainedModel

from octavo.errors import ModelError, OutputError, listed
from octavo.files.checkpoints import CONFIG, WEIGHTS
from octavo.files.staging import StagedOutput, output_error
from octavo.torch.files.safetensors import read_metadata
from octavo.torch.hub.aligned_files import VERSION_KEY

_OF_MODELS = re.compile(r"(pytorch_)?model.*\.(safetensors|bin)")
_OF_ONE = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
"""Files of a model without a variant."""


def _refuse_float_weights(folder: Path) -> None:
    """Raise OutputError where the folder holds weights that a quantized model would replace."""
    found = [path for path in folder.glob("*") if _OF_MODELS.fullmatch(path.name)]
    names = sorted(path.name for path in found if not _is_ours(path))
    if names:
        raise OutputError(
            f"the folder {folder} holds {listed(names, 3)}: weights that Octavo did not write, "
            "which the quantized model would replace. Give another folder, or delete this one"
        )


def _is_ours(path: Path) -> bool:
    with contextlib.suppress(ModelError, OSError, ValueError):
        return path.suffix == ".safetensors" and VERSION_KEY in read_metadata(path)
    return False


def _move(source: Path, folder: Path, *, alone: bool) -> None:
    """Move the files to `folder`, config.json last; `alone`: other weights there are removed."""
    files = sorted(
        (path.relative_to(source) for path in source.rglob("*") if path.is_file()),
        key=lambda path: path.name == CONFIG,
    )
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).replace(folder / file)
    for path in folder.glob("model*"):
        if alone and _OF_ONE.fullmatch(path.name) and Path(path.name) not in files:
            path.unlink()


def _save_whole(save: Any, model: Any, folder: Path, options: dict[str, Any]) -> None:
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(error, folder) from error
    try:
        with StagedOutput(folder / WEIGHTS) as staging:
            save(model, staging.files, **{**options, "push_to_hub": False})
            _move(staging.files, folder, alone=not options.get("variant"))
    except BaseException:
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _whole(save: Any) -> Any:
    """Return a `save_pretrained` that saves models of Octavo's whole, and is `save` for others."""
    signature = inspect.signature(save)

    @functools.wraps(save)
    def save_pretrained(
        self: Any, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any
    ) -> Any:
        ours = getattr(getattr(self, "hf_quantizer", None), "saves_quantized", False) is True
        folder = Path(save_directory)
        if not ours or getattr(self, "_hf_peft_config_loaded", False) or folder.is_file():
            return save(self, save_directory, *args, **kwargs)
        bound = signature.bind(self, save_directory, *args, **kwargs)
        options = dict([*bound.arguments.items()][2:])
        options |= options.pop("kwargs", {})
        if not options.get("is_main_process", True) or options.get("distributed_checkpoint"):
            return save(self, save_directory, *args, **kwargs)
        _refuse_float_weights(folder)
        _save_whole(save, self, folder, options)
        if options.get("push_to_hub"):  # from where it is now: it stays there if that fails
            return save(self, save_directory, *args, **kwargs)
        return None

    return save_pretrained


_classes: Any = PreTrainedModel
_classes.save_pretrained = _whole(PreTrainedModel.save_pretrained)
