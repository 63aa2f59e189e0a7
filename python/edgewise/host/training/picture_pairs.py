"""Pairs of pictures with questions and answers, as models of image-text-to-text learn them: the
features of the pictures, which replace embeddings of the row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...compiler.arrays import as_output
from ...compiler.compile.features import fed_rows
from ...compiler.declare.dtypes import FLOAT
from ...compiler.formats.files import ModelFiles
from ...logic.manifest.limits import FEATURES, POSITIONS, REACH, SELECTED
from ...logic.multimodal.asking import asks_of
from ...logic.multimodal.prompt import check_room, positions_of_run, reach_of_run, rows_of_run
from ...logic.multimodal.questions import answered_by, asked_about
from ...logic.options import check_known
from ...logic.training.answers import answered
from ...logic.training.chat import Example
from ...logic.training.pairs import Pair, PairKind
from ...logic.training.targets import ends_of
from ..session.features import Features
from ..session.open import folder_files
from .card import base_of
from .pair_sources import Batch, folder_of, integers
from .trainer.options import TrainedModel

if TYPE_CHECKING:
    from ...compiler.ir import Graph
    from ..pipelines.image_text_to_text import ImageTextToTextPipeline

OPTIONS = ("add_special_tokens",)
"""Options of calls that say how a prompt is written."""


class PictureSource:
    """Of a pipeline of image-text-to-text.

    Args:
        pipe: of a model folder.
        options: of its calls: add_special_tokens.

    Raises:
        InputError: it is of a package, or an option is none of these.
    """

    kind: PairKind = "pictures"
    loss = "causal_lm"

    def __init__(self, pipe: ImageTextToTextPipeline, options: Mapping[str, Any]) -> None:
        check_known(list(options), OPTIONS, "call_options")
        root = folder_of(pipe).root
        self.pipe, self.options = pipe, pipe.options(options)
        self.graph = cast("Graph", pipe.package.graph)
        self.model = TrainedModel(self.graph, None, pipe.tokenizer)
        self.model.files, _ = folder_files(root)
        self.base = base_of(ModelFiles(self.model.files), os.fspath(root))
        self.most, self.pad = pipe.model.max_length, self.model.pad
        eos = getattr(pipe.tokenizer, "eos_token_id", None)
        configs = (pipe.model.generation_config, pipe.model.config, {"eos_token_id": eos})
        self.ends = ends_of(configs)

    def example(self, pair: Pair) -> tuple[Example, Features]:
        """The tokens of the prompt and of the answer, and the features of the pictures.

        Raises:
            InputError: a picture does not open, or the prompt is longer than a sequence.
        """
        pipe = self.pipe
        (ask,), _ = asks_of(None, asked_about(pair.source, pair.prompt), pipe.KIND)
        chat = ask.messages or []
        texts = [pipe.text_of(chat, True), pipe.text_of([*chat, answered_by(pair.target)], False)]
        made = pipe.prepared(ask, texts, self.options)
        asked, whole = made.prompts
        check_room(asked, self.most, pipe.task)
        row = answered(asked, whole, self.ends, pair.where)
        return row.example, made.features(row.prompt, None)

    def feeds(self, sources: Sequence[Features], sequence: int) -> Batch:
        """The features of the pictures at their tokens; positions, and what tokens see."""
        shapes = fed_rows(self.graph, len(sources), sequence)
        size = 4 * shapes[FEATURES][-1]
        data, chosen = bytearray(len(sources) * sequence * size), [0] * (len(sources) * sequence)
        for i, one in enumerate(sources):
            for run in rows_of_run(one.prompt.places, one.counts, 0, sequence):
                at = i * sequence + run.at
                part = memoryview(one.parts[run.part])
                ends = (run.first + run.count) * size
                data[at * size : (at + run.count) * size] = part[run.first * size : ends]
                chosen[at : at + run.count] = [1] * run.count
        made: Batch = {
            FEATURES: as_output(FLOAT, shapes[FEATURES], bytes(data)),
            SELECTED: integers(shapes[SELECTED], chosen),
        }
        if POSITIONS in shapes:
            each = [positions_of_run(one.prompt.positions, 0, sequence) for one in sources]
            numbers = [n for axis in range(3) for rows in each for n in rows[axis]]
            made[POSITIONS] = integers(shapes[POSITIONS], numbers)
        if REACH in shapes:
            seen = [n for one in sources for n in reach_of_run(one.prompt.reach, 0, sequence)]
            made[REACH] = integers(shapes[REACH], seen)
        return made
