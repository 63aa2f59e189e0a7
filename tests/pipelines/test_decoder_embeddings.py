"""Embeddings of decoders, as Qwen3-Embedding's card makes them: the state of the last token."""

import shutil

import edgewise
import numpy as np
import pytest
from edgewise.cli import main

from . import tiny
from .tiny_ranking import DOCUMENTS, make_qwen3

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

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


@pytest.mark.family("Qwen3-Embedding", exporter="torch")
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


@pytest.mark.parametrize("packed", [False, True])
def test_features_that_a_text_has_not(tiny_model, tmp_path, packed):
    """The inputs of EmbeddingGemma 2 beside those of texts are empty."""
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path / "model"
    shutil.copytree(tiny_model("bert", "base"), folder)
    model = AutoModel.from_pretrained(folder).eval()

    class Any(torch.nn.Module):
        """Puts features in the places of a token."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, image_features, audio_features):
            embeds = self.model.get_input_embeddings()(ids)
            features = torch.cat([torch.zeros(1, 32), image_features, audio_features])
            places = ids == 4
            put = features[torch.cumsum(places.to(torch.int64).flatten(), 0) * places.flatten()]
            embeds = torch.where(places[..., None], put[None], embeds)
            states = self.model(inputs_embeds=embeds, attention_mask=mask).last_hidden_state
            return states, torch.nn.functional.normalize(states.mean(1), dim=1)

    ids = torch.tensor([[2, 9, 4, 4, 3]])
    given = (ids, torch.ones_like(ids), torch.rand(1, 32), torch.rand(1, 32))
    names = ["input_ids", "attention_mask", "image_features", "audio_features"]
    axes = {name: {1: "length"} for name in names[:2]} | {name: {0: "n"} for name in names[2:]}
    outputs = ["last_hidden_state", "sentence_embedding"]
    axes["last_hidden_state"] = {1: "length"}
    torch.onnx.export(
        Any(),
        given,
        str(folder / "onnx" / "model.onnx"),
        input_names=names,
        output_names=outputs,
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    tiny.as_sentence_transformer(folder, {"pooling_mode_mean_tokens": True})
    source = folder
    if packed:
        source = tmp_path / "model.edge"
        main(["build", "--task", "embeddings", str(folder), "-o", str(source)])
    words = AutoTokenizer.from_pretrained(folder)
    theirs = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"))
    none = np.zeros((0, 32), np.float32)
    with edgewise.pipeline("feature-extraction", source) as pipe:
        for text in DOCUMENTS[:2]:
            read = words(text, return_tensors="np", return_token_type_ids=False)
            feeds = {**read, "image_features": none, "audio_features": none}
            (want,) = theirs.run(["sentence_embedding"], feeds)
            np.testing.assert_allclose(pipe(text), want[0], atol=2e-5)
