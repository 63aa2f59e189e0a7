"""Names of the tasks of pipelines."""

from __future__ import annotations

from typing import Literal

Kind = Literal["text", "image", "sound", "chat"]

KINDS: dict[str, Kind] = {
    "feature-extraction": "text",
    "text-classification": "text",
    "zero-shot-classification": "text",
    "token-classification": "text",
    "text-ranking": "text",
    "fill-mask": "text",
    "question-answering": "text",
    "image-classification": "image",
    "text-to-image": "text",
    "text-to-speech": "text",
    "audio-classification": "sound",
    "voice-activity-detection": "sound",
    "speaker-verification": "sound",
    "speaker-diarization": "sound",
    "audio-to-audio": "sound",
    "image-feature-extraction": "image",
    "object-detection": "image",
    "image-segmentation": "image",
    "background-removal": "image",
    "depth-estimation": "image",
    "mask-generation": "image",
    "keypoint-detection": "image",
    "image-to-image": "image",
    "optical-character-recognition": "image",
    "zero-shot-image-classification": "image",
    "zero-shot-audio-classification": "sound",
    "zero-shot-object-detection": "image",
    "automatic-speech-recognition": "sound",
    "image-to-text": "image",
    "document-question-answering": "image",
    "translation": "text",
    "summarization": "text",
    "text2text-generation": "text",
    "image-text-to-text": "chat",
    "audio-text-to-text": "chat",
    "visual-question-answering": "image",
}
"""What the inputs of each task are; text-generation, which takes chats too, is none of them."""

ALIASES = {
    "embeddings": "feature-extraction",
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "text-to-audio": "text-to-speech",
    "asr": "automatic-speech-recognition",
    "ocr": "optical-character-recognition",
}
"""Other names of tasks."""


ALSO: dict[str, list[str]] = {
    "automatic-speech-recognition": ["audio-text-to-text"],
    "document-question-answering": ["image-text-to-text"],
    "visual-question-answering": ["image-text-to-text"],
}
"""Tasks whose packages are for another task, too."""


def is_for(package: str, task: str) -> bool:
    """Whether a package for a task is for another one, too.

    Args:
        package: task in its manifest.
        task: name of a task.
    """
    others = ALSO.get(task)
    return package == task or (others is not None and package in others)


def task_of(name: str) -> str:
    """The name of a task, or that of the task that an alias stands for."""
    return ALIASES.get(name, name)
