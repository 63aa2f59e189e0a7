"""Embeddings of decoders, as Qwen3-Embedding's card makes them: the state of the last token."""

import edgewise
import numpy as np
import pytest
from edgewise.cli import main

from . import tiny
from .tiny_ranking import DOCUMENTS, make_qwen3

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

TASK = "Instruct: Given a query, retrieve passages that answer it\nQuery:"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """(folder, function that embeds a list of texts as the card does)"""
    folder = tmp_path_factory.mktemp("qwen3-embedding")
    model, words = make_qwen3(folder, "Qwen3Model", "last_hidden_state")
    tiny.as_sentence_transformer(
        folder, {"pooling_mode_lasttoken": True}, prompts={"query": TASK, "document": ""}
    )

    def embed(texts):
        given = words(texts, padding=True, return_tensors="pt")
        assert len(texts) == 1 or (given.attention_mask[:, 0] == 0).any()
        given.pop("token_type_ids", None)
        with torch.no_grad():
            last = model(**given).last_hidden_state[:, -1]
        return torch.nn.functional.normalize(last, dim=1).numpy()

    return folder, embed


def test_last_token(model):
    folder, embed = model
    with edgewise.pipeline("feature-extraction", folder) as pipe:
        np.testing.assert_allclose(pipe(DOCUMENTS), embed(DOCUMENTS), atol=2e-5)
        np.testing.assert_allclose(pipe(DOCUMENTS, batch_size=4), embed(DOCUMENTS), atol=2e-5)
        asked = pipe(DOCUMENTS[0], prompt_name="query")
        np.testing.assert_allclose(asked, embed([TASK + DOCUMENTS[0]])[0], atol=2e-5)


def test_package(model, tmp_path):
    folder, embed = model
    main(["build", "--task", "embeddings", str(folder), "-o", str(tmp_path / "model.edge")])
    with edgewise.pipeline("feature-extraction", tmp_path / "model.edge") as pipe:
        assert list(pipe.session("model").inputs) == ["input_ids", "attention_mask", "position_ids"]
        np.testing.assert_allclose(pipe(DOCUMENTS), embed(DOCUMENTS), atol=2e-5)
        asked = pipe(DOCUMENTS[0], prompt_name="query")
        np.testing.assert_allclose(asked, embed([TASK + DOCUMENTS[0]])[0], atol=2e-5)
