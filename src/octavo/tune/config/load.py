"""Reads a tuning configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ConfigError
from octavo.recipe.document import Document, FileKind, read_text

if TYPE_CHECKING:
    from octavo.tune.config.result import Config

CONFIG = FileKind("configuration", "start with `model:`", ConfigError)


def load_config(path: str | Path) -> Config:
    """The configuration in the YAML file `path`, of Neural Compressor 1.x.

    The file is read and never written. Raises ConfigError: one line for each mistake, with file,
    line, key, value and what is allowed.
    """
    from pydantic import ValidationError

    from octavo.tune.config.build import build
    from octavo.tune.config.checks import checks
    from octavo.tune.config.problems import error_of, problems_of
    from octavo.tune.config.schema import Root

    path = Path(path)
    document = Document(read_text(path, CONFIG), str(path), CONFIG)
    try:
        root = Root.model_validate(document.data)
    except ValidationError as error:
        raise error_of(problems_of(error), document) from None
    problems = list(checks(root))
    if problems:
        raise error_of(problems, document)
    return build(root, document, path)
