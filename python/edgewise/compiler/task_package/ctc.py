"""What a package of a CTC model says about tokens and frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...errors import InputError
from ..compile.model_file import MAX_TEXT
from ..compile.seq2seq_files import json_of
from ..tokenizers.ctc import CTCTokenizer, frame_size, frame_windows

if TYPE_CHECKING:
    from ...logic.manifest.processor import CTCFields
    from . import Request


def ctc_description(request: Request) -> CTCFields:
    """The tokenizer of a CTC model, and how samples become frames, for the manifest.

    Returns:
        CTCTokenizer.description, `samples` of a frame, and `windows`: [size, step] of each
        convolution; none where a frame has just its samples

    Raises:
        InputError: config.json does not say it. TokenizerError: there is no vocabulary.
    """

    def read(name: str) -> bytes | None:
        source = request.files.get(name)
        return None if source is None else source.read_all(MAX_TEXT)

    config = json_of(request.texts, "config.json")
    samples = frame_size(config)
    if samples is None:
        raise InputError(
            "it does not say how many samples a frame has",
            "config.json",
            "Give the one of a CTC model, with conv_stride.",
        )
    described = {
        **CTCTokenizer.from_files(read).description(),
        "samples": samples,
        "windows": frame_windows(config),
    }
    return cast("CTCFields", described)
