"""What documents hold that nobody types: figures of results, help of commands, plots.

`python -m benchmarks.docs` writes all of it, README too. Run it after a result, a command or an
option changes; `tests/docs` fails until then.
"""
