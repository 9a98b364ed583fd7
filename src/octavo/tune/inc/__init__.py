"""Neural Compressor 1.x: its YAML files, its Python call, its strategies and metrics by name.

Nothing else imports this folder but by name: `octavo.tune` gives `load_config`, `Config` and
`Quantization`, and strategies and metrics are looked up here when they are asked for.

    file -> load: schema (sections, values) -> config (entries) -> arguments of octavo.tune.tune
"""
