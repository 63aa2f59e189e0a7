"""`pipeline(task, model)`: a model with its processor, as in transformers."""

from __future__ import annotations

import importlib
import os
from typing import Any

from ...errors import InputError, memory_in_words
from ...logic.tasks.names import ALIASES

__all__ = ["TextGenerationPipeline", "pipeline"]

TASKS: dict[str, tuple[str, str]] = {
    "text-generation": ("text_generation", "TextGenerationPipeline"),
    "feature-extraction": ("feature_extraction", "FeatureExtractionPipeline"),
    "text-classification": ("text_classification", "TextClassificationPipeline"),
    "zero-shot-classification": ("text_classification", "ZeroShotClassificationPipeline"),
    "token-classification": ("token_classification", "TokenClassificationPipeline"),
    "text-ranking": ("text_ranking", "TextRankingPipeline"),
    "fill-mask": ("fill_mask", "FillMaskPipeline"),
    "question-answering": ("question_answering", "QuestionAnsweringPipeline"),
    "audio-classification": ("audio_classification", "AudioClassificationPipeline"),
    "voice-activity-detection": ("voice_activity", "VoiceActivityPipeline"),
    "audio-to-audio": ("audio_to_audio", "AudioToAudioPipeline"),
    "speaker-diarization": ("speaker_diarization", "SpeakerDiarizationPipeline"),
    "speaker-verification": ("speaker_verification", "SpeakerVerificationPipeline"),
    "image-classification": ("images.image_classification", "ImageClassificationPipeline"),
    "image-feature-extraction": ("images.image_classification", "ImageFeatureExtractionPipeline"),
    "object-detection": ("images.object_detection", "ObjectDetectionPipeline"),
    "image-segmentation": ("images.image_segmentation", "ImageSegmentationPipeline"),
    "background-removal": ("images.image_segmentation", "BackgroundRemovalPipeline"),
    "keypoint-detection": ("images.keypoint_detection", "KeypointDetectionPipeline"),
    "optical-character-recognition": ("images.ocr", "OpticalCharacterRecognitionPipeline"),
    "image-to-image": ("images.image_to_image", "ImageToImagePipeline"),
    "depth-estimation": ("images.depth_estimation", "DepthEstimationPipeline"),
    "mask-generation": ("images.mask_generation", "MaskGenerationPipeline"),
    "zero-shot-image-classification": ("zero_shot.pictures", "ZeroShotImageClassificationPipeline"),
    "zero-shot-object-detection": ("zero_shot.objects", "ZeroShotObjectDetectionPipeline"),
    "zero-shot-audio-classification": ("zero_shot.sounds", "ZeroShotAudioClassificationPipeline"),
    "automatic-speech-recognition": (
        "automatic_speech_recognition",
        "AutomaticSpeechRecognitionPipeline",
    ),
    "image-to-text": ("images.image_to_text", "ImageToTextPipeline"),
    "visual-question-answering": (
        "images.visual_question_answering",
        "VisualQuestionAnsweringPipeline",
    ),
    "document-question-answering": ("images.image_to_text", "DocumentQuestionAnsweringPipeline"),
    "text2text-generation": ("text2text", "Text2TextGenerationPipeline"),
    "summarization": ("text2text", "SummarizationPipeline"),
    "translation": ("text2text", "TranslationPipeline"),
    "text-to-speech": ("speech.text_to_speech", "TextToSpeechPipeline"),
    "audio-text-to-text": ("audio_text_to_text", "AudioTextToTextPipeline"),
    "image-text-to-text": ("image_text_to_text", "ImageTextToTextPipeline"),
    "text-to-image": ("text_to_image", "TextToImagePipeline"),
}
TASKS |= {alias: TASKS[name] for alias, name in ALIASES.items()}
"""{task or alias: (module of this package, class)}. Modules are imported on first use."""


def __getattr__(name: str) -> Any:
    for module, kind in TASKS.values():
        if kind == name:
            return getattr(importlib.import_module(f"{__name__}.{module}"), kind)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@memory_in_words
def pipeline(
    task: str,
    model: str | os.PathLike[str] | Any = None,
    tokenizer: str | os.PathLike[str] | Any = None,
    **options: Any,
) -> Any:
    """Creates a pipeline for a task. Mirrors transformers' `pipeline`.

    Example: `pipeline("text-generation", "models/smollm2")("Once upon a time", max_new_tokens=32)`

    Args:
        task: such as "text-generation"; see docs/guide/pipelines.md.
        model: path of a model folder, an .onnx or an .edge file; the id of a model of the hub,
            such as "HuggingFaceTB/SmolLM2-135M-Instruct" (needs `edgewise[hub]`); or a loaded
            model (edgewise.CausalLM for text generation, else an InferenceSession).
        tokenizer: default: the one beside the model. A path, or any object with encode(text) and
            decode(ids, skip_special_tokens=).
        **options: how to load the model, see edgewise.CausalLM and edgewise.pipelines.base, and
            defaults of the options of calls.

    Returns:
        the pipeline of the task, which is called with inputs and options

    Raises:
        InputError, ModelError, PackageError, UnsupportedOp, TokenizerError.
    """
    if not isinstance(task, str) or task not in TASKS:
        raise InputError(
            f"there is no pipeline for {task!r}", "pipeline", f"There are: {', '.join(TASKS)}."
        )
    if model is None:
        raise InputError(
            "there is no model", f'pipeline("{task}")', "Give a model: no task has a default model."
        )
    module, kind = TASKS[task]
    made = getattr(importlib.import_module(f"{__name__}.{module}"), kind)
    kind = made.of(model, options) if hasattr(made, "of") else made
    return kind(model, tokenizer, **options)
