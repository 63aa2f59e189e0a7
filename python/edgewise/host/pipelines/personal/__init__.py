"""`personalize(pipe, examples)`: a pipeline that learns labels of its user from a few examples.

backbone: features of a pipeline's inputs
pipeline: PersonalPipeline
nearest: classification by the nearest examples
lora: training of adapters on the model
measures: accuracy, confusion and error rates
files: heads in safetensors files
export: models with the head in the graph
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from ....errors import InputError, memory_in_words
from ....logic.personal.options import check_teaching, checked_seed, head_fields
from ..base import Pipeline
from .backbone import Backbone
from .pipeline import PersonalPipeline

__all__ = ["PersonalPipeline", "personalize"]


@memory_in_words
def personalize(
    pipe: Pipeline,
    examples: Mapping[str, Sequence[Any]] | str | os.PathLike[str] | bytes,
    *,
    other: Sequence[Any] = (),
    method: str = "logistic",
    neighbors: int = 5,
    c: float = 1.0,
    class_weight: str | dict[str, float] | None = "balanced",
    steps: int = 300,
    learning_rate: float = 0.05,
    validation_split: float = 0.0,
    seed: int = 0,
    pooling: str | None = None,
    name: str | None = None,
    lora: bool | Mapping[str, Any] = False,
    on_step: Callable[[int, float], None] | None = None,
    **unknown: object,
) -> PersonalPipeline:
    """Teaches a pipeline labels of your own.

    Example: `mine = personalize(pipe, {"cup": ["cup1.png", ...], "keys": [...]}); mine("x.png")`

    The model stays as it is. The features of the examples are computed once and kept; a head
    (logistic regression) is trained on them in the engine, which takes less than a second for a few
    examples. The head does not depend on the order of examples or on chance.

    Args:
        pipe: of image-classification, image-feature-extraction, audio-classification,
            speaker-verification, text-classification or feature-extraction. It can still be used,
            and must not be closed before the result.
        examples: {label: [inputs of pipe]}; or a file of PersonalPipeline.save, with which only
            `name`, `pooling` and `on_step` are taken.
        other: inputs of none of the labels. They get the label "other".
        method: "logistic", or "knn": by the nearest examples, which works from one example of one
            label on.
        neighbors: how many examples "knn" compares with.
        c, class_weight: as C and class_weight of scikit-learn's LogisticRegression, for features
            whose mean square is 1.
        steps, learning_rate: of Adam, each on all examples.
        validation_split: share of each label's examples on which a head that does not know them
            is evaluated: `validation` of the result. The head in use is trained on all.
        seed: that the choice of these examples follows from.
        pooling: how states of positions become features: "mean" or "first". Default: "first" for
            transformers of pictures, which have a class token, else "mean".
        name: of the head. Default: "default", of a file the name that it was saved with.
        lora: True, or {"rank": 8, "alpha": 16, "steps": 40, "learning_rate": 1e-3, "batch_size": 4,
            "evaluate_every": 5, "patience": 3} (these are the defaults): LoRA adapters on the
            linear layers of the model are trained as well, until the loss of held-out examples
            (`validation_split`, here 0.25 by default) has not fallen `patience` times. They are
            kept if held-out examples are told apart better with them: `lora` of the result. Of
            image-classification, image-feature-extraction, audio-classification,
            speaker-verification and text-classification.
        on_step: called with (step, loss) after each step of the head and of the adapters.

    Returns:
        a pipeline with the call of `pipe` (of text-classification for feature-extraction, of
        image-classification for image-feature-extraction) and the labels of the examples

    Raises:
        InputError: an option or an example is not valid, or the pipeline has no features.
    """
    for option in unknown:
        raise InputError(
            f"there is no option {option!r}", "personalize", f"There are: {', '.join(_defaults())}."
        )
    check_teaching("default" if name is None else name, validation_split)
    checked_seed(seed)
    fields = {"method": method, "neighbors": neighbors, "c": c, "class_weight": class_weight,
              "steps": steps, "learning_rate": learning_rate}  # fmt: skip
    checked = head_fields(fields)
    made = PersonalPipeline(Backbone(pipe, pooling), checked, on_step)
    if isinstance(examples, Mapping):
        made.teach(examples, other, name or "default", validation_split, seed, lora)
        return made
    given = {**fields, "other": tuple(other), "validation_split": validation_split, "seed": seed,
             "lora": lora}  # fmt: skip
    defaults = _defaults()
    for option, value in given.items():
        if value != defaults[option]:
            raise InputError(
                f"the option {option!r} has no effect with a file",
                "personalize",
                "Leave it out: the file has its own.",
            )
    made.load(examples, name)
    return made


def _defaults() -> dict[str, Any]:
    """{option of personalize: its default}."""
    options = signature(personalize).parameters.values()
    return {p.name: p.default for p in options if p.kind is p.KEYWORD_ONLY}
