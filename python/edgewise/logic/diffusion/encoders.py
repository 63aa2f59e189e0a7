"""The two text encoders of Stable Diffusion XL."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

__all__ = ["POOLED", "joined", "text_outputs"]

LAYERS = "hidden_states"
POOLED = "text_embeds"
"""The output that is the vector of the whole text."""


def text_outputs(names: Sequence[str], xl: bool) -> list[str]:
    """The outputs of a text encoder that are read.

    Args:
        names: of all outputs.
        xl: whether the model is one of Stable Diffusion XL, which takes the states of the last
            layer but one, and the vector of the whole text, if the encoder has it.

    Returns:
        the states of the tokens, and maybe the vector of the text; empty if there are none
    """
    if not xl:
        return ["last_hidden_state"] if "last_hidden_state" in names else [*names[:1]]
    layers: list[tuple[int, str]] = []
    for name in names:
        number = name[len(LAYERS) + 1 :]
        if name.startswith(LAYERS) and number.isdigit():
            layers.append((int(number), name))
    layers.sort(key=lambda layer: layer[0])
    if len(layers) < 2:
        return []
    found = [layers[len(layers) - 2][1]]
    if POOLED in names:
        found.append(POOLED)
    return found


def joined(first: Sequence[float], second: Sequence[float], tokens: int) -> array[float]:
    """The states of both encoders, one after the other for each token.

    Args:
        first, second: [tokens, size] each.
        tokens: how many there are.
    """
    sizes = (len(first) // tokens, len(second) // tokens)
    made: list[float] = []
    for i in range(tokens):
        made.extend(first[i * sizes[0] : (i + 1) * sizes[0]])
        made.extend(second[i * sizes[1] : (i + 1) * sizes[1]])
    return array("f", made)
