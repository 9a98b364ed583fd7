"""Reads a tuning configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ConfigError, OptionError, did_you_mean
from octavo.recipe.yaml_files import Document, FileKind, read_text

if TYPE_CHECKING:
    from octavo.tune.config.result import Config

CONFIG = FileKind("configuration", "start with `model:`", ConfigError)


def load_config(path: str | Path, *, approach: str | None = None) -> Config:
    """The configuration in the YAML file `path`, of Neural Compressor 1.x.

    `approach` (`dynamic`, `static` or `auto`) takes the place of the file's quantization.approach,
    so that a file for static quantization or for training runs as dynamic. The file is read and
    never written. Raises ConfigError: one line for each mistake, with file, line, key, value and
    what is allowed; and OptionError for another approach.
    """
    from pydantic import ValidationError

    from octavo.tune.config.build import build
    from octavo.tune.config.checks import checks
    from octavo.tune.config.problems import error_of, problems_of
    from octavo.tune.config.schema import Root

    path = Path(path)
    document = Document(read_text(path, CONFIG), str(path), CONFIG)
    notes = [] if approach is None else _override(document, approach)
    try:
        root = Root.model_validate(document.data)
    except ValidationError as error:
        raise error_of(problems_of(error), document) from None
    problems = list(checks(root))
    if problems:
        raise error_of(problems, document)
    return build(root, document, path, notes)


def _override(document: Document, approach: str) -> list[str]:
    """Writes `approach` over the document's; says so where that changes something."""
    from octavo.tune.config.schema_quantization import APPROACHES

    names = {short: name for name, short in APPROACHES.items()}
    if approach not in names:
        raise OptionError(f"approach={approach!r} (--approach).{did_you_mean(approach, names)}")
    data = document.data
    section = data.get("quantization") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(section, dict | None):
        return []  # the schema says what is wrong with it
    said = (section or {}).get("approach")
    data["quantization"] = {**(section or {}), "approach": names[approach]}
    if said is None or said == names[approach]:
        return []
    line = document.line(("quantization", "approach"))
    return [f"line {line}: quantization.approach: {said} is done as {names[approach]}, as asked"]
