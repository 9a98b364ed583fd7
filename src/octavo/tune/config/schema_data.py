"""Neural Compressor's data loaders: data sets, transforms, filters and what follows a model.

Octavo ships none of them. They are read so that a file's mistakes are found, and so that it can say
what data the file means.
"""

from __future__ import annotations

from octavo.tune.config import values
from octavo.tune.config.section import (
    FLAG,
    LIST,
    NAMES,
    NUMBER,
    NUMBERS,
    POSITIVE,
    TEXT,
    WHOLE,
    Section,
    checked,
    section,
    word,
)

_SIZE = checked(values.many(values.numeral(values.whole(1)), "a size"))
_WHOLES = checked(values.many(values.numeral(values.whole()), "a list of whole numbers"))
_INTERPOLATION = {"interpolation": word("an interpolation", "nearest", "bilinear", "bicubic")}
_IMAGE = {"height": POSITIVE, "width": POSITIVE}
_CROP_IMAGENET = {
    "random_crop": FLAG,
    "slice_crop": FLAG,
    "resize_side": POSITIVE,
    "resize_method": word(
        "a way to resize",
        *("bilinear", "lanczos3", "lanczos5", "bicubic", "gaussian", "nearest", "area"),
        "mitchellcubic",
    ),
    "random_flip_left_right": FLAG,
    "data_format": word("a data format", "channels_first", "channels_last"),
    "subpixels": word("an order of colours", "BGR", "RGB"),
    "mean_value": NUMBERS,
    "scale": NUMBER,
}
_BARE = """ToNDArray RandomHorizontalFlip RandomVerticalFlip ToTensor ToPILImage Rescale ToArray
ParseDecodeImagenet ParseDecodeCoco ParseDecodeVoc ImageTypeParse""".split()

TRANSFORMS = {
    "ResizeWithRatio": section(
        "ResizeWithRatio",
        optional={"min_dim": WHOLE, "max_dim": WHOLE, "padding": FLAG, "constant_value": WHOLE},
    ),
    "CropToBoundingBox": section(
        "CropToBoundingBox",
        {
            "offset_height": WHOLE,
            "offset_width": WHOLE,
            "target_height": WHOLE,
            "target_width": WHOLE,
        },
    ),
    "Cast": section("Cast", optional={"dtype": TEXT}),
    "RandomResizedCrop": section(
        "RandomResizedCrop",
        {"size": _SIZE},
        {"scale": NUMBERS, "ratio": NUMBERS, **_INTERPOLATION},
    ),
    "AlignImageChannel": section("AlignImageChannel", optional={"dim": WHOLE}),
    "CropResize": section(
        "CropResize",
        {"x": WHOLE, "y": WHOLE, "width": WHOLE, "height": WHOLE, "size": _SIZE},
        _INTERPOLATION,
    ),
    "Normalize": section("Normalize", optional={"mean": NUMBERS, "std": NUMBERS, "rescale": LIST}),
    "Resize": section("Resize", {"size": _SIZE}, _INTERPOLATION),
    "RandomCrop": section("RandomCrop", {"size": _SIZE}),
    "CenterCrop": section("CenterCrop", {"size": _SIZE}),
    "PaddedCenterCrop": section("PaddedCenterCrop", {"size": _SIZE}, {"crop_padding": POSITIVE}),
    "QuantizedInput": section(
        "QuantizedInput",
        optional={
            "dtype": word("an integer type", "int8", "uint8"),
            "scale": checked(values.number(0, above=True)),
        },
    ),
    "Transpose": section("Transpose", {"perm": _WHOLES}),
    "BilinearImagenet": section(
        "BilinearImagenet",
        _IMAGE,
        {"central_fraction": NUMBER, "mean_value": NUMBERS, "scale": NUMBER},
    ),
    "ResizeCropImagenet": section("ResizeCropImagenet", _IMAGE, _CROP_IMAGENET),
    "ResizeWithAspectRatio": section("ResizeWithAspectRatio", _IMAGE),
    **{name: section(name) for name in _BARE},
}

_SQUAD = {"do_lower_case": FLAG, "max_seq_length": WHOLE}
_SQUAD_FILES = {"label_file": TEXT, "vocab_file": TEXT}

Transform = section("Transform", optional=TRANSFORMS)
Filter = section("Filter", optional={"LabelBalance": section("LabelBalance", {"size": POSITIVE})})
PostTransform = section(
    "PostTransform",
    optional={
        "LabelShift": WHOLE,
        "Collect": section("Collect", {"length": WHOLE}),
        "SquadV1": section("SquadV1", _SQUAD_FILES, _SQUAD),
        "SquadV1ModelZoo": section("SquadV1ModelZoo", _SQUAD_FILES, _SQUAD),
    },
)
Postprocess = section("Postprocess", optional={"transform": PostTransform})

_ROOT = {"root": TEXT}
_DOWNLOAD = {"train": FLAG, "download": FLAG}
_SHAPE = checked(values.shapes)
_RANGE = {"low": NUMBERS, "high": NUMBERS, "dtype": NAMES}
_BERT = {
    "task": word("a task", "classifier", "squad"),
    "model_type": word("a kind of model", "bert", "xlnet", "xlm"),
}
_CORES = {"num_cores": WHOLE}

DATASETS = {
    **{
        name: section(name, _ROOT, _DOWNLOAD)
        for name in ("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST")
    },
    **{
        name: section(name, _ROOT)
        for name in ("ImageFolder", "TFRecordDataset", "ImageRecord", "VOCRecord", "Imagenet")
    },
    "dummy": section("dummy", {"shape": _SHAPE}, {**_RANGE, "label": FLAG}),
    "dummy_v2": section("dummy_v2", {"input_shape": _SHAPE}, {"label_shape": _SHAPE, **_RANGE}),
    "sparse_dummy_v2": section(
        "sparse_dummy_v2",
        {"dense_shape": _SHAPE},
        {"label_shape": _SHAPE, "sparse_ratio": NUMBERS, **_RANGE},
    ),
    "bert": section("bert", {"root": TEXT, "label_file": TEXT}, _BERT),
    "mzbert": section("mzbert", {"root": TEXT, "label_file": TEXT}, _BERT),
    "COCORecord": section("COCORecord", _ROOT, _CORES),
    "COCORaw": section("COCORaw", _ROOT, {"img_dir": TEXT, "anno_dir": TEXT, **_CORES}),
    "COCONpy": section("COCONpy", {"root": TEXT, "npy_dir": TEXT}, {"anno_dir": TEXT, **_CORES}),
    "ImagenetRaw": section("ImagenetRaw", {"data_path": TEXT}, {"image_list": TEXT}),
    "style_transfer": section(
        "style_transfer",
        {"content_folder": TEXT, "style_folder": TEXT},
        {"crop_ratio": NUMBER, "resize_shape": _WHOLES, "image_format": TEXT},
    ),
    "GLUE": section(
        "GLUE",
        {"data_dir": TEXT, "model_name_or_path": TEXT},
        {
            "max_seq_length": WHOLE,
            "do_lower_case": FLAG,
            "task": TEXT,
            "model_type": TEXT,
            "dynamic_length": FLAG,
            "evaluate": FLAG,
        },
    ),
}
Dataset = section("Dataset", optional=DATASETS)


Dataloader = section(
    "Dataloader",
    {"dataset": Dataset},
    {
        "batch_size": POSITIVE,
        "last_batch": word("a way to end", "rollover", "discard"),
        "shuffle": FLAG,
        "distributed": FLAG,
        "filter": Filter,
        "transform": Transform,
    },
)


def dataset_words(loader: Section | None) -> str | None:
    """`GLUE (data_dir /data, task mrpc)`; None where no data set is named."""
    given = {} if loader is None else loader.get("dataset").given()
    for name, options in given.items():
        said = ", ".join(f"{key} {value}" for key, value in options.given().items())
        return f"{name} ({said})" if said else name
    return None
