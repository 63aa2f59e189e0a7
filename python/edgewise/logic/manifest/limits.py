"""Limits and names in manifests of `.edge` packages.

`make gen` writes them to web/src/gen/manifest.ts, the counterpart of this module in pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from ...element_types import ELEMENT_BITS

FORMAT = 2
"""Version. Version 1 had no checksums of weights; such packages must be built again."""
PIECE = 4 << 20
"""Bytes of a weight that one checksum covers; the last piece may be shorter."""
MAX_MANIFEST = 64 << 20  # bytes of JSON
MAX_DEPTH = 64  # of nested lists and objects
MAX_FILE = 1 << 30  # bytes of a part that is read as a whole: plans, tokenizer, configs
MAX_SIZE = (1 << 53) - 1  # any other number of bytes, and any dimension
MAX_TEXT = 4096  # UTF-16 units of a name
MAX_METADATA_TEXT = 1 << 20  # UTF-16 units of a text in a model's metadata
MAX_LIST = 1_000_000
MAX_KERNELS = 1000
MAX_CAPACITY = 1 << 24  # tokens of a sequence
ROOM_STEP = 256  # tokens by which caches grow, at least
MAX_LENGTH = 1 << 24  # maximum value of a plan's register
MAX_REGISTERS = 1024  # of a plan
MAX_VOCABULARY = 1 << 24
MAX_CACHES = 100_000
MAX_DECODER_PLANS = 64
MAX_INFERENCE_PLANS = 1024
MAX_VALUES = 10_000  # inputs, and outputs, of a model
MAX_PROGRAMS = 16
MAX_BATCH = 1 << 20
MAX_RANK = 16  # of tensors in plans
MAX_DECLARED_RANK = 64  # of inputs and outputs as the model declares them
MAX_LORA_RANK = 1 << 16
MAX_TEMPS = 16  # slots of kind "temp" of a plan; plans need 3 or 4
MAX_DRAWN = 1 << 30  # streams of random numbers


def _bytes(*dtypes: str) -> Mapping[str, int]:
    return {dtype: ELEMENT_BITS[dtype] // 8 for dtype in dtypes}


SIZES = _bytes(
    "float32",
    "float64",
    "float16",
    "int64",
    "uint64",
    "int32",
    "uint32",
    "int16",
    "uint16",
    "int8",
    "uint8",
    "bool",
)
"""Bytes of an element, of the types of a page's tensors."""
STATE_SIZES = _bytes("float32", "int64", "int32", "float16", "bfloat16", "int8", "uint8")
CacheDType = Literal["float32", "float16", "int8", "int4"]  # of keys and values
CACHE_DTYPES: tuple[str, ...] = get_args(CacheDType)
Seq2SeqTask = Literal[
    "automatic-speech-recognition", "translation", "summarization", "text2text-generation"
]
PictureTextTask = Literal["image-to-text", "document-question-answering"]
SEQ2SEQ_TASKS: tuple[str, ...] = get_args(Seq2SeqTask)
"""Tasks whose packages may have an encoder and a decoder; see compile/seq2seq.py."""
PICTURE_TEXT_TASKS: tuple[str, ...] = get_args(PictureTextTask)
"""Likewise, where the encoder sees pictures."""
ProgramTask = Literal[
    "feature-extraction",
    "text-classification",
    "zero-shot-classification",
    "token-classification",
    "text-ranking",
    "fill-mask",
    "question-answering",
    "image-classification",
    "audio-classification",
    "voice-activity-detection",
    "speaker-verification",
    "text-to-image",
    "text-to-speech",
    "image-feature-extraction",
    "object-detection",
    "image-segmentation",
    "background-removal",
    "depth-estimation",
    "mask-generation",
    "keypoint-detection",
    "image-to-image",
    "optical-character-recognition",
    "zero-shot-image-classification",
    "zero-shot-audio-classification",
    "image-text-to-text",
    "audio-text-to-text",
    "zero-shot-object-detection",
    "visual-question-answering",
    "codec",
    "speaker-diarization",
    "audio-to-audio",
    Seq2SeqTask,
    PictureTextTask,
]
PROGRAM_TASKS: tuple[str, ...] = get_args(ProgramTask)
"""Tasks whose packages have `programs`; see task_package."""
_HEARING = (
    ("audio_encoder", "embed_tokens", "decoder_model_merged"),
    ("audio_encoder", "embed_tokens", "decoder_model"),
)
_SEEING = (
    ("vision_encoder", "embed_tokens", "decoder_model_merged"),
    ("vision_encoder", "embed_tokens", "decoder_model"),
    ("vision", "embedding", "model"),
    ("vision", "embedding", "text"),
    ("prepare_inputs_embeds", "language_model", "lm_head"),
)
_PICTURE_TEXT = (
    ("vision_encoder", "embed_tokens", "encoder_model", "decoder_model_merged"),
    ("encoder_model", "decoder_model_merged"),
    ("encoder_model", "decoder_model", "decoder_with_past_model"),
)
GRAPHS: dict[str, tuple[tuple[str, ...], ...]] = {
    # "decode" is the step of a model that transformers 5 exports for generation.
    "text-generation": (("model",), ("decoder_model_merged",), ("decode",)),
    "text-ranking": (("model",), ("decoder_model_merged",)),
    **dict.fromkeys(
        SEQ2SEQ_TASKS,
        (
            ("encoder_model", "decoder_model_merged"),
            ("encoder_model", "decoder_model", "decoder_with_past_model"),
        ),
    ),
    "image-to-text": _PICTURE_TEXT,
    "document-question-answering": (*_PICTURE_TEXT, *_SEEING),
    "automatic-speech-recognition": (
        ("encoder_model", "decoder_model_merged"),
        ("encoder_model", "decoder_model", "decoder_with_past_model"),
        ("model",),
        ("encoder-model", "decoder_joint-model"),
        ("encoder-model", "decoder-model"),
        ("encoder", "decoder", "joiner"),
        ("encoder", "decoder", "joint"),
        *_HEARING,
    ),
    "optical-character-recognition": (("det", "rec", "cls?"),),
    "image-text-to-text": _SEEING,
    "visual-question-answering": (*_SEEING, ("model",)),
    "audio-text-to-text": (
        *_HEARING,
        ("speech", "embedding", "model"),
        ("speech", "embedding", "text"),
    ),
    "zero-shot-image-classification": (("model",), ("vision_model", "text_model")),
    "zero-shot-audio-classification": (("model",), ("audio_model", "text_model")),
    "mask-generation": (("vision_encoder", "prompt_encoder_mask_decoder"),),
    "text-to-image": (
        (
            "text_encoder/model",
            "unet/model",
            "vae_decoder/model",
            "text_encoder_2/model?",
            "vae_encoder/model?",
            "safety_checker/model?",
        ),
    ),
}
"""The .onnx files of tasks that have several, without dtype's suffix and ending: alternatives, of
which the first is taken whose files exist. "unet/model" is in a folder of its own, "vae_encoder?"
may be absent. Other tasks have the file "model"."""
EMBEDDINGS = ("embed_tokens", "embedding", "embeddings", "text_embeddings", "decoder_embed")
"""Files of the graphs that embed token ids, for decoders that take embeddings, without suffix and
ending: of transformers.js, of ONNX Runtime GenAI, and of others."""
FEATURES = "edgewise.features"
SELECTED = "edgewise.selected"
POSITIONS = "edgewise.positions"
REACH = "edgewise.reach"
"""Inputs of a decoder's plans: rows that replace embeddings, which tokens they are of, positions
of several dimensions, and what tokens see that come after them; see compile/features.py."""
SUFFIX_OF: dict[str, tuple[str, ...]] = {
    "fp32": ("",),
    "fp16": ("_fp16",),
    "q8": ("_quantized", "_q8"),
    "int8": ("_int8", ".int8"),
    "uint8": ("_uint8",),
    "q4": ("_q4",),
    "q4f16": ("_q4f16",),
    "q2": ("_q2",),
    "q2f16": ("_q2f16",),
    "q1": ("_q1",),
    "q1f16": ("_q1f16",),
    "bnb4": ("_bnb4",),
}
"""Suffixes of .onnx files by transformers.js' names of their types; pages know the first."""
Task = Literal["text-generation", "inference", ProgramTask]
TASKS: tuple[str, ...] = get_args(Task)
Run = Literal["first", "step", "align"]  # kinds of a seq2seq decoder's plans
# Inputs of encoders. "encoder_hidden_states": the program "encoder" has computed them.
EncoderInput = Literal["input_ids", "input_features", "input_values", "encoder_hidden_states"]
TargetName = Literal["cpu", "webgpu"]
TARGETS: tuple[str, ...] = get_args(TargetName)
"""Devices that the plans of a package are compiled for; "cpu" where the manifest does not say."""
Kind = Literal["weight", "computed", "cache", "state", "input", "output", "temp"]  # of slots
WRITABLE_KINDS = ("computed", "cache", "state", "output", "temp")
StateKind = Literal["parameter", "adapter", "buffer", "optimizer", "gradient", "step", "average"]
WEIGHT_FILES = ("weights", "//constants")  # parts that may contain weights; see compile.CONSTANTS
TrainingKind = Literal[
    "train", "accumulate", "update", "evaluate", "initialize", "magnitudes", "swap"
]
TRAINING_PLANS: Mapping[TrainingKind, tuple[str, ...]] = {
    "train": ("input_ids", "labels", "learning_rate", "loss"),
    "accumulate": ("input_ids", "labels", "loss"),
    "update": ("learning_rate", "gradient_scale"),
    "evaluate": ("input_ids", "labels", "loss"),
    "initialize": (),
    "magnitudes": (),
    "swap": (),
}
"""Inputs and outputs that each plan of a training program has; "magnitudes" is there for DoRA,
"swap" for averages of weights."""
