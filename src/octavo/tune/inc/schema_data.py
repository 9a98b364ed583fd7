"""What a file says of data and of training: read so that its mistakes are found, and not done.

Octavo ships no data sets, and does not train.
"""

from __future__ import annotations

from octavo.tune.inc.sections import Kind, Section, needed
from octavo.tune.inc.values import (
    NUMBER,
    NUMBERS,
    POSITIVE,
    WHOLE,
    any_list,
    flag,
    many,
    names,
    number,
    numeral,
    one_of,
    shapes,
    some_of,
    text,
)

_ABOVE_0 = number(0, above=True)
_SIZE = many(numeral(POSITIVE), "a size")
_WHOLES = many(numeral(WHOLE), "a list of whole numbers")


def _all_needed(kind: Kind, *keys: str) -> dict[str, Kind]:
    return dict.fromkeys(keys, needed(kind))


_INTERPOLATION = {"interpolation": one_of("an interpolation", "nearest", "bilinear", "bicubic")}
_IMAGE = {"height": POSITIVE, "width": POSITIVE}
_RESIZE_METHODS = "bilinear lanczos3 lanczos5 bicubic gaussian nearest area mitchellcubic".split()
_BARE = """ToNDArray RandomHorizontalFlip RandomVerticalFlip ToTensor ToPILImage Rescale ToArray
ParseDecodeImagenet ParseDecodeCoco ParseDecodeVoc ImageTypeParse""".split()

TRANSFORMS: dict[str, Kind] = {
    "ResizeWithRatio": {
        "min_dim": WHOLE,
        "max_dim": WHOLE,
        "padding": flag,
        "constant_value": WHOLE,
    },
    "CropToBoundingBox": _all_needed(
        WHOLE, "offset_height", "offset_width", "target_height", "target_width"
    ),
    "Cast": {"dtype": text},
    "RandomResizedCrop": {
        "size": needed(_SIZE),
        "scale": NUMBERS,
        "ratio": NUMBERS,
        **_INTERPOLATION,
    },
    "AlignImageChannel": {"dim": WHOLE},
    "CropResize": {
        **_all_needed(WHOLE, "x", "y", "width", "height"),
        "size": needed(_SIZE),
        **_INTERPOLATION,
    },
    "Normalize": {"mean": NUMBERS, "std": NUMBERS, "rescale": any_list},
    "Resize": {"size": needed(_SIZE), **_INTERPOLATION},
    "RandomCrop": {"size": needed(_SIZE)},
    "CenterCrop": {"size": needed(_SIZE)},
    "PaddedCenterCrop": {"size": needed(_SIZE), "crop_padding": POSITIVE},
    "QuantizedInput": {"dtype": one_of("an integer type", "int8", "uint8"), "scale": _ABOVE_0},
    "Transpose": {"perm": needed(_WHOLES)},
    "BilinearImagenet": {
        **_IMAGE,
        "central_fraction": NUMBER,
        "mean_value": NUMBERS,
        "scale": NUMBER,
    },
    "ResizeCropImagenet": {
        **_IMAGE,
        "random_crop": flag,
        "slice_crop": flag,
        "resize_side": POSITIVE,
        "resize_method": one_of("a way to resize", *_RESIZE_METHODS),
        "random_flip_left_right": flag,
        "data_format": one_of("a data format", "channels_first", "channels_last"),
        "subpixels": one_of("an order of colours", "BGR", "RGB"),
        "mean_value": NUMBERS,
        "scale": NUMBER,
    },
    "ResizeWithAspectRatio": _IMAGE,
    **{key: {} for key in _BARE},
}

_SQUAD = {
    **_all_needed(text, "label_file", "vocab_file"),
    "do_lower_case": flag,
    "max_seq_length": WHOLE,
}
Postprocess: dict[str, Kind] = {
    "transform": {
        "LabelShift": WHOLE,
        "Collect": {"length": needed(WHOLE)},
        "SquadV1": _SQUAD,
        "SquadV1ModelZoo": _SQUAD,
    }
}

_ROOT = {"root": needed(text)}
_RANGE = {"low": NUMBERS, "high": NUMBERS, "dtype": names}
_BERT = {
    **_all_needed(text, "root", "label_file"),
    "task": one_of("a task", "classifier", "squad"),
    "model_type": one_of("a kind of model", "bert", "xlnet", "xlm"),
}
_CORES = {"num_cores": WHOLE}

DATASETS: dict[str, Kind] = {
    **{
        key: {**_ROOT, "train": flag, "download": flag}
        for key in ("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST")
    },
    **dict.fromkeys("ImageFolder TFRecordDataset ImageRecord VOCRecord Imagenet".split(), _ROOT),
    "dummy": {"shape": needed(shapes), **_RANGE, "label": flag},
    "dummy_v2": {"input_shape": needed(shapes), "label_shape": shapes, **_RANGE},
    "sparse_dummy_v2": {
        "dense_shape": needed(shapes),
        "label_shape": shapes,
        "sparse_ratio": NUMBERS,
        **_RANGE,
    },
    "bert": _BERT,
    "mzbert": _BERT,
    "COCORecord": {**_ROOT, **_CORES},
    "COCORaw": {**_ROOT, "img_dir": text, "anno_dir": text, **_CORES},
    "COCONpy": {**_all_needed(text, "root", "npy_dir"), "anno_dir": text, **_CORES},
    "ImagenetRaw": {"data_path": needed(text), "image_list": text},
    "style_transfer": {
        **_all_needed(text, "content_folder", "style_folder"),
        "crop_ratio": NUMBER,
        "resize_shape": _WHOLES,
        "image_format": text,
    },
    "GLUE": {
        **_all_needed(text, "data_dir", "model_name_or_path"),
        "max_seq_length": WHOLE,
        "do_lower_case": flag,
        "task": text,
        "model_type": text,
        "dynamic_length": flag,
        "evaluate": flag,
    },
}
Dataloader: dict[str, Kind] = {
    "dataset": needed(DATASETS),
    "batch_size": POSITIVE,
    "last_batch": one_of("a way to end", "rollover", "discard"),
    "shuffle": flag,
    "distributed": flag,
    "filter": {"LabelBalance": {"size": needed(POSITIVE)}},
    "transform": TRANSFORMS,
}

_ADAM = {
    **dict.fromkeys(("learning_rate", "beta_1", "beta_2", "epsilon"), NUMBER),
    "amsgrad": flag,
}
_CROSS_ENTROPY = {
    "reduction": one_of("a reduction", "none", "sum", "mean", "auto", "sum_over_batch_size"),
    "from_logits": flag,
}
_LOSS_WEIGHTS = many(number(0), "a list of weights")


def _distillation(*losses: str) -> dict[str, Kind]:
    return {"loss_types": some_of("a loss", *losses), "loss_weights": _LOSS_WEIGHTS}


Train: dict[str, Kind] = {
    "criterion": needed(
        {
            "CrossEntropyLoss": _CROSS_ENTROPY,
            "SparseCategoricalCrossentropy": _CROSS_ENTROPY,
            "KnowledgeDistillationLoss": {
                "temperature": _ABOVE_0,
                **_distillation("CE", "KL", "MSE"),
            },
            "IntermediateLayersKnowledgeDistillationLoss": {
                "layer_mappings": needed(any_list),
                **_distillation("MSE", "KL", "L1"),
                "add_origin_loss": flag,
            },
            "SelfKnowledgeDistillationLoss": {
                "layer_mappings": needed(any_list),
                **_distillation("L2", "CE", "KL"),
                "add_origin_loss": flag,
                "temperature": _ABOVE_0,
            },
        }
    ),
    "optimizer": {
        "SGD": {
            "learning_rate": needed(NUMBER),
            "momentum": NUMBER,
            "nesterov": flag,
            "weight_decay": NUMBER,
        },
        "AdamW": {"weight_decay": needed(NUMBER), **_ADAM},
        "Adam": _ADAM,
    },
    "dataloader": Dataloader,
    **dict.fromkeys("epoch start_epoch end_epoch iteration frequency".split(), WHOLE),
    "execution_mode": one_of("an execution mode", "eager", "graph"),
    "postprocess": Postprocess,
    "hostfile": text,
}


def dataset_words(loader: Section | None) -> str | None:
    """`GLUE (data_dir /data, task mrpc)`; None where no data set is named."""
    given = {} if loader is None else loader.get("dataset").given()
    for name, options in given.items():
        said = ", ".join(f"{key} {value}" for key, value in options.given().items())
        return f"{name} ({said})" if said else name
    return None
