"""What a checkpoint is for, by its class: transformers' own tables say which class does what."""

from __future__ import annotations

from enum import Enum

from octavo.errors import ModelError


class Task(str, Enum):
    """What a model is for, in the words of the Hub."""

    FEATURES = "feature-extraction"
    MASKED = "fill-mask"
    SEQUENCE_CLASSES = "text-classification"
    TOKEN_CLASSES = "token-classification"
    ANSWERS = "question-answering"
    TEXT = "text-generation"
    TEXT_TO_TEXT = "text2text-generation"
    SPEECH_TO_TEXT = "automatic-speech-recognition"
    IMAGE_CLASSES = "image-classification"

    __str__ = str.__str__


_TABLES = {
    # Encoder-decoder models first: some tables of text generation name them too.
    Task.SPEECH_TO_TEXT: "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    Task.TEXT_TO_TEXT: "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    Task.SEQUENCE_CLASSES: "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    Task.TOKEN_CLASSES: "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    Task.ANSWERS: "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    Task.IMAGE_CLASSES: "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    Task.MASKED: "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    Task.TEXT: "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    Task.FEATURES: "MODEL_MAPPING_NAMES",
}


def task_of(architecture: str) -> Task:
    """Return the task of a class of transformers; raise ModelError where no task has the class."""
    from transformers.models.auto import modeling_auto

    for task, name in _TABLES.items():
        for classes in getattr(modeling_auto, name, {}).values():
            if architecture == classes or (
                not isinstance(classes, str) and architecture in classes
            ):
                return task
    raise ModelError(
        f"{architecture} is for none of the tasks that are known: "
        f"{', '.join(task.value for task in Task)}. Quantize the model in Python: "
        "octavo.torch.quantize_dynamic(model)"
    )
