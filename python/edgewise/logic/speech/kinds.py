"""Models of several graphs that speak, which are told apart by the names of their files."""

from __future__ import annotations

from collections.abc import Sequence

TASK = "text-to-speech"
GRAPHS: dict[str, list[str]] = {
    "supertonic": ["text_encoder", "latent_denoiser", "voice_decoder"],
    "chatterbox": ["speech_encoder", "embed_tokens", "language_model", "conditional_decoder"],
    "pocket": [
        *("mimi_encoder", "text_conditioner", "flow_lm_main", "flow_lm_flow"),
        "mimi_decoder",
    ],
    "speecht5": [
        *("encoder_model", "decoder_model_merged", "decoder_model", "decoder_with_past_model"),
        "decoder_postnet_and_vocoder",
    ],
}
"""Names of files, without suffixes of element types."""

SIGNS: dict[str, str] = {
    "latent_denoiser": "supertonic",
    "conditional_decoder": "chatterbox",
    "flow_lm_main": "pocket",
    "decoder_model_merged": "speecht5",
    "decoder_model": "speecht5",
}
"""The graphs that show the kind, the first one that is there."""

CLONING = ("chatterbox", "pocket")
"""Those that speak in the voice of a reference."""


def missing(kind: str, names: Sequence[str]) -> str:
    """A graph that a model of a kind lacks; "": it has all that it needs."""
    for name in GRAPHS[kind]:
        if kind != "speecht5" and name not in names:
            return name
    if kind == "speecht5":
        if "encoder_model" not in names:
            return "encoder_model"
        if "decoder_model_merged" not in names and "decoder_model" not in names:
            return "decoder_model"
    return ""


def kind_of(names: Sequence[str]) -> str | None:
    """The kind of a model that has files of these names; None: it is none of these."""
    for name in SIGNS:
        if name in names:
            return SIGNS[name]
    return None
