"""The versions of what Octavo writes. Each is raised where an older Octavo would misread it."""

RECIPE = 1
"""Recipes, as YAML files and inside files of models: another is refused with its line."""
OPERATORS = 1
"""Operators of `ai.octavo`, in native ONNX files: the import of their domain."""
HUB_FOLDER = 2
"""`quantization_config` in the config.json of a quantized checkpoint: a higher one is refused."""
HUB_INT8_FOLDER = 1
"""The same where all layers are int8: releases from before other formats read it."""
LAYERS = 2
"""What became of layers, in the metadata of a quantized file: another is left out of pages."""
HISTORY = 1
"""The history of a search, by which it is resumed: another is refused."""
PAGE = 1
"""JSON of reports, comparisons, results of a search and of `octavo doctor`, for who reads it."""
