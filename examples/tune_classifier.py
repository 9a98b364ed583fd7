"""Finds a fast form of an ONNX classifier that keeps the accuracy tune.yaml asks for.

    python tune_classifier.py                        # a sample: all-MiniLM-L6 that sorts questions
    python tune_classifier.py model.onnx labelled.npz --config my.yaml

The data have an array for each input of the model, and `label`. YAML is Neural Compressor 1.x's.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from octavo import OctavoError

CONFIG = Path(__file__).with_name("tune.yaml")


def arguments() -> argparse.Namespace:
    """Return what the command line says, and the sample where it names no model."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("model", nargs="?", help="the float model, an ONNX file")
    parser.add_argument("data", nargs="?", help="an .npz file")
    parser.add_argument("--config", default=CONFIG, help="default: tune.yaml beside this file")
    parser.add_argument("-o", default="tuned", help="the folder to write")
    given = parser.parse_args()
    if given.model and not given.data:
        parser.error("give the labelled data too, an .npz file")
    if not given.model:
        from samples import sample

        folder = Path(sample("classifier"))
        given.model, given.data = str(folder / "model.onnx"), str(folder / "labelled.npz")
    return given


def classify(session, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the best class of each row, 32 rows at a time."""
    rows = range(0, len(next(iter(inputs.values()))), 32)
    parts = [{name: array[i : i + 32] for name, array in inputs.items()} for i in rows]
    return np.concatenate([session.run(None, part)[0].argmax(axis=1) for part in parts])


def main(given: argparse.Namespace) -> None:
    """Tunes, saves, and uses what was saved."""
    print(f"tuning {given.model}", file=sys.stderr)
    import octavo.onnx
    from octavo.tune import Quantization

    with np.load(given.data) as data:
        inputs = {name: data[name] for name in data.files if name != "label"}
        label = data["label"]

    def evaluate(session) -> float:
        return float(np.mean(classify(session, inputs) == label))

    quantizer = Quantization(given.config)
    quantizer.model = given.model
    quantizer.eval_func = evaluate
    tuned = quantizer.fit()
    print(tuned.result)
    if not tuned.result.status.met:
        sys.exit("error: no recipe keeps the accuracy, so that nothing is saved")
    tuned.save(given.o)
    print(f"saved {given.o}/best_model.onnx and best_recipe.yaml")
    session = octavo.onnx.session(Path(given.o) / "best_model.onnx")
    found = classify(session, {name: array[:8] for name, array in inputs.items()})
    print(f"the first rows: classes {found}, labels {label[:8]}")


if __name__ == "__main__":
    try:
        main(arguments())
    except KeyboardInterrupt:
        sys.exit(130)
    except (ImportError, OSError, OctavoError) as error:
        sys.exit(f"error: {error}")
