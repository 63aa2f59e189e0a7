"""Models with a head in their graph."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ....compiler.heads.features import Features
from ....compiler.heads.graph import Vectors, check_has_head, model_with_head, with_labels
from ....compiler.task_package import task_texts
from ....errors import InputError
from ....logic.tasks.embedding import embedding
from ...heads.adapters import put_adapters
from ...heads.exports import embedding_vectors, package_with_head
from ...session.open import folder_files, name_in
from ..feature_extraction import FeatureExtractionPipeline
from ..speaker_verification import SpeakerVerificationPipeline

if TYPE_CHECKING:
    from .pipeline import PersonalPipeline


def export(mine: PersonalPipeline, target: str) -> None:
    """Writes a personal pipeline's model. See PersonalPipeline.export."""
    head = check_has_head(mine._head.head, mine.fields.method, mine.labels)
    files = mine.backbone.pipe.files
    if files is None:
        raise InputError(
            "the pipeline was made from sessions", "export", "Make it from a folder or a file."
        )
    path = files.graphs[mine.backbone.stem]
    editor = model_with_head(path, vectors_of(mine), head)
    adapters = mine._head.adapters
    if adapters is not None:
        put_adapters(editor, adapters.layout, adapters.data, mine.engine)
    if target.endswith(".onnx"):
        editor.write(target)
        return
    model = editor.write(None)
    assert model is not None
    found, root = folder_files(files.root)
    config = with_labels(mine.config, head)
    if target.endswith(".edge"):
        name = name_in(root, path)
        package_with_head(found, name, model, config, mine.task).save(target)
        return
    os.makedirs(os.path.join(target, "onnx"), exist_ok=True)
    texts = {**task_texts(found), "config.json": config}
    for name, data in {**texts, "onnx/model.onnx": model}.items():
        place = os.path.join(target, *name.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data)


def vectors_of(mine: PersonalPipeline) -> Vectors:
    """How the features of a personal pipeline's inputs are made.

    Raises:
        InputError: they are made in a way that has no nodes.
    """
    backbone, pipe = mine.backbone, mine.backbone.pipe
    if isinstance(pipe, FeatureExtractionPipeline):
        return _embedding_vectors(mine, pipe)
    assert backbone.features is not None
    unit = isinstance(pipe, SpeakerVerificationPipeline)
    return Vectors(backbone.features, backbone.rank, backbone.dtype, unit=unit)


def _embedding_vectors(mine: PersonalPipeline, pipe: FeatureExtractionPipeline) -> Vectors:
    graph = vars(pipe)["_own_graph"]
    options = {**pipe.defaults, **mine.backbone.embedding}
    how = pipe.vectors(options)
    if how.dimensions is not None or embedding(options, pipe.recipe).prompt:
        raise InputError(
            "its embeddings are shortened or have a prompt",
            "export",
            "Make the pipeline without dimensions and prompt.",
        )
    dtype = next(o.dtype for o in graph.outputs if o.name == how.output)
    if how.pooled:
        return Vectors(Features(how.output), 2, dtype, unit=how.normalize)
    return embedding_vectors(how.output, how.poolings, how.normalize, dtype)
