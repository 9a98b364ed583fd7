"""torchao's way of saying it: `quantize_` with its configs, by Octavo's layers.

| module | what |
|---|---|
| `configs` | the configs, with torchao's names and fields |
| `schemes` | what a config, ours or torchao's own, means as a `Scheme` |
| `quantize` | `quantize_` |
"""
