"""Edgewise: runs and trains ONNX models, in a web page as on a desktop."""

from __future__ import annotations

from importlib import import_module

from .compiler.arrays import Array
from .errors import EdgewiseError
from .host.session import InferenceSession, NodeArg, RunOptions, SessionOptions
from .host.session.face.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from .model_metadata import ModelMetadata

__version__ = "0.1.0"


_LAZY = {  # modules of names that are imported on first use, to keep `import edgewise` fast
    "host.pipelines": ("TextGenerationPipeline", "pipeline"),
    "host.pipelines.personal": ("personalize",),
    "host.pipelines.speech.codec": ("Codec",),
    "host.pipelines.speech.phonemes": ("english_phonemizer",),
    "host.text": ("GenerationConfig", "TextIteratorStreamer", "TextStreamer", "generate"),
    "compiler.training.peft": ("LoraConfig",),
    "host.training.trainer": ("Trainer",),
    "host.training.merge": ("convert_adapter", "merge_adapter"),
    "host.training.adapters": ("CausalLM",),
    "host.training.pairs": ("fine_tune",),
    "host.devices": ("open_engine",),
    "logic.speech.word_errors": ("word_error_rate",),
    "host.session.face.ort_value": ("IOBinding", "OrtValue"),
    "host.session.face.environment": (
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_all_providers",
        "get_available_providers",
        "get_device",
        "set_default_logger_severity",
        "set_default_logger_verbosity",
        "set_seed",
    ),
}
_MODULE_OF = {name: module for module, names in _LAZY.items() for name in names}


def get_version_string() -> str:
    """The version of Edgewise. Mirrors onnxruntime.get_version_string."""
    return __version__


def get_build_info() -> str:
    """The version of Edgewise in a sentence. Mirrors onnxruntime.get_build_info."""
    return f"Edgewise Build Info: version={__version__}"


def __getattr__(name: str) -> object:
    if name == "capi":  # as `onnxruntime.capi`, which scripts use without importing it
        return import_module(".capi", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'edgewise' has no attribute '{name}'")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


__all__ = [
    "Array",
    "CausalLM",
    "Codec",
    "EdgewiseError",
    "ExecutionMode",
    "ExecutionOrder",
    "GenerationConfig",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraConfig",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "TextGenerationPipeline",
    "TextIteratorStreamer",
    "TextStreamer",
    "Trainer",
    "convert_adapter",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "english_phonemizer",
    "fine_tune",
    "generate",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "merge_adapter",
    "open_engine",
    "personalize",
    "pipeline",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
    "word_error_rate",
]
