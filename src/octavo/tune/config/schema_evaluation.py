"""`evaluation`: the metric, and how speed is measured."""

from __future__ import annotations

from octavo.tune.config import values
from octavo.tune.config.schema_data import Dataloader, Postprocess
from octavo.tune.config.section import (
    FLAG,
    NUMBER,
    NUMBERS,
    POSITIVE,
    TEXT,
    WHOLE,
    checked,
    idle,
    section,
    word,
)

_DATA = "Octavo ships no data sets: give the data with --data, or an evaluate function"
_AFTER = "it belongs to Neural Compressor's data loaders: do it in your evaluate function"
_PROCESSES = (
    "it is for Neural Compressor's benchmark of several processes: Octavo times one process, with "
    "the threads that it is given"
)

FLAGS = checked(values.many(values.flag, "a list of switches"))
_BATCHES = checked(values.count_or_all)

_MAP_KEY = {"anno_path": TEXT, "map_key": TEXT}
_TASK = {"task": TEXT}
_COMPARE = {"compare_label": FLAG}
_ORDER = section(
    "output_index_mapping",
    {"boxes": WHOLE, "scores": WHOLE, "classes": WHOLE},
    {"num_detections": WHOLE},
)
# Neural Compressor's, and ours.
_BARE = "Loss Pearson Spearman WER CER closeness".split()
_THRESHOLD = {"threshold": NUMBER}
_AVERAGE = {"average": word("an average", "binary", "micro", "macro", "weighted")}

METRICS = {
    "topk": word("a k that Neural Compressor has", 1, 5),
    "mAP": section(
        "mAP",
        optional={
            "anno_path": TEXT,
            "iou_thrs": checked(values.iou_thresholds),
            "map_points": word("a number of recall points", 0, 11, 101),
        },
    ),
    "COCOmAP": section("COCOmAP", optional=_MAP_KEY),
    "COCOmAPv2": section("COCOmAPv2", optional={**_MAP_KEY, "output_index_mapping": _ORDER}),
    "VOCmAP": section("VOCmAP", optional={"anno_path": TEXT}),
    **{name: section(name, optional=_COMPARE) for name in ("MSE", "RMSE", "MAE")},
    "mIOU": section("mIOU", optional={"num_classes": POSITIVE}),
    "GLUE": section("GLUE", optional=_TASK),
    "ROC": section("ROC", optional=_TASK),
    "F1": section("F1", optional={**_AVERAGE, **_THRESHOLD}),
    "SquadF1": section("SquadF1", optional={"exact": FLAG}),
    "BLEU": section("BLEU", optional={"tokenize": TEXT, "lowercase": FLAG}),
    **{name: section(name, optional=_THRESHOLD) for name in ("Accuracy", "agreement")},
    **{name: section(name) for name in _BARE},
}
Metric = section("Metric", optional=METRICS)
MultiMetrics = section(
    "MultiMetrics", optional={"weight": NUMBERS, "higher_is_better": FLAGS, **METRICS}
)
Configs = section(
    "Configs",
    optional={
        **{
            key: idle(POSITIVE, _PROCESSES)
            for key in (
                "cores_per_instance",
                "num_of_instance",
                "inter_num_of_threads",
                "intra_num_of_threads",
            )
        },
        "kmp_blocktime": idle(checked(values.whole(0)), _PROCESSES),
        "kmp_affinity": idle(TEXT, _PROCESSES),
    },
)
_COMMON = {
    "iteration": _BATCHES,
    "configs": Configs,
    "dataloader": idle(Dataloader, _DATA),
    "postprocess": idle(Postprocess, _AFTER),
}
Accuracy = section(
    "Accuracy", optional={"metric": Metric, "multi_metrics": MultiMetrics, **_COMMON}
)
Performance = section("Performance", optional={"warmup": checked(values.whole(0)), **_COMMON})
Evaluation = section("Evaluation", optional={"accuracy": Accuracy, "performance": Performance})
