"""`train`: how Neural Compressor trains. Read, and not done."""

from __future__ import annotations

from octavo.tune.config import values
from octavo.tune.config.schema_data import Dataloader, Postprocess
from octavo.tune.config.section import (
    FLAG,
    LIST,
    NUMBER,
    TEXT,
    WHOLE,
    checked,
    section,
    word,
)

_ADAM = {
    "learning_rate": NUMBER,
    "beta_1": NUMBER,
    "beta_2": NUMBER,
    "epsilon": NUMBER,
    "amsgrad": FLAG,
}
_REDUCTION = {
    "reduction": word("a reduction", "none", "sum", "mean", "auto", "sum_over_batch_size"),
    "from_logits": FLAG,
}
_POSITIVE_NUMBER = checked(values.number(0, above=True))
_WEIGHTS = checked(values.many(values.number(0), "a list of weights"))


def _losses(*known: str) -> object:
    return checked(values.many(values.one_of("a loss", *known), "a list of losses"))


Optimizer = section(
    "Optimizer",
    optional={
        "SGD": section(
            "SGD",
            {"learning_rate": NUMBER},
            {"momentum": NUMBER, "nesterov": FLAG, "weight_decay": NUMBER},
        ),
        "AdamW": section("AdamW", {"weight_decay": NUMBER}, _ADAM),
        "Adam": section("Adam", optional=_ADAM),
    },
)
TrainCriterion = section(
    "TrainCriterion",
    optional={
        "CrossEntropyLoss": section("CrossEntropyLoss", optional=_REDUCTION),
        "SparseCategoricalCrossentropy": section(
            "SparseCategoricalCrossentropy", optional=_REDUCTION
        ),
        "KnowledgeDistillationLoss": section(
            "KnowledgeDistillationLoss",
            optional={
                "temperature": _POSITIVE_NUMBER,
                "loss_types": _losses("CE", "KL", "MSE"),
                "loss_weights": _WEIGHTS,
            },
        ),
        "IntermediateLayersKnowledgeDistillationLoss": section(
            "IntermediateLayersKnowledgeDistillationLoss",
            {"layer_mappings": LIST},
            {
                "loss_types": _losses("MSE", "KL", "L1"),
                "loss_weights": _WEIGHTS,
                "add_origin_loss": FLAG,
            },
        ),
        "SelfKnowledgeDistillationLoss": section(
            "SelfKnowledgeDistillationLoss",
            {"layer_mappings": LIST},
            {
                "loss_types": _losses("L2", "CE", "KL"),
                "loss_weights": _WEIGHTS,
                "add_origin_loss": FLAG,
                "temperature": _POSITIVE_NUMBER,
            },
        ),
    },
)
Train = section(
    "Train",
    {"criterion": TrainCriterion},
    {
        "optimizer": Optimizer,
        "dataloader": Dataloader,
        "epoch": WHOLE,
        "start_epoch": WHOLE,
        "end_epoch": WHOLE,
        "iteration": WHOLE,
        "frequency": WHOLE,
        "execution_mode": word("an execution mode", "eager", "graph"),
        "postprocess": Postprocess,
        "hostfile": TEXT,
    },
)
