"""text-ranking gives the order and scores of CrossEncoder.rank and of Qwen3-Reranker's card."""

import edgewise
import pytest
from edgewise.cli import main
from edgewise.errors import InputError

from .test_text_tasks import same
from .tiny_ranking import DOCUMENTS, QUERY, card_scores, make_qwen3, ranked, set_json

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    """(folder, model, tokenizer)"""
    folder = tmp_path_factory.mktemp("qwen3-reranker")
    return folder, *make_qwen3(folder, "Qwen3ForCausalLM", "logits")


@pytest.fixture
def encoder(tiny_model):
    """(folder, logits of pairs)"""
    folder = tiny_model("bert", "score")
    words = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def logits(query, documents, **options):
        rows = [words(query, d, truncation=True, return_tensors="pt", **options) for d in documents]
        with torch.no_grad():
            return [model(**row).logits[0, 0] for row in rows]

    return folder, logits


@pytest.mark.family("Cross-encoders", exporter="torch")
def test_cross_encoder(encoder):
    folder, logits = encoder
    raw = logits(QUERY, DOCUMENTS)
    with edgewise.pipeline("text-ranking", folder) as rank:
        want = ranked([torch.sigmoid(x).item() for x in raw])
        same(rank(QUERY, DOCUMENTS), want)
        same(rank({"query": QUERY, "documents": DOCUMENTS}, top_k=2), want[:2])
        plain = rank(QUERY, DOCUMENTS, function_to_apply="none", return_documents=True)
        same(plain, ranked([x.item() for x in raw], DOCUMENTS))
        prompted = [torch.sigmoid(x).item() for x in logits("fox " + QUERY, DOCUMENTS)]
        same(rank(QUERY, DOCUMENTS, prompt="fox "), ranked(prompted))
        long = [" ".join(DOCUMENTS * 3)]
        same(rank(QUERY, long), ranked([torch.sigmoid(x).item() for x in logits(QUERY, long)]))
        short = [torch.sigmoid(x).item() for x in logits(QUERY, DOCUMENTS, max_length=16)]
        same(rank(QUERY, DOCUMENTS, max_length=16), ranked(short))
        assert rank(QUERY, []) == []


IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("config.json", {"sbert_ce_default_activation_function": IDENTITY}),
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}),
        ("config_sentence_transformers.json", {"activation_fn": IDENTITY}),
    ],
)
def test_files_name_the_function(encoder, tmp_path, file, fields):
    import shutil

    folder, logits = encoder
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    set_json(copy / file, **fields)
    with edgewise.pipeline("text-ranking", copy) as rank:
        same(rank(QUERY, DOCUMENTS), ranked([x.item() for x in logits(QUERY, DOCUMENTS)]))


@pytest.mark.family("Qwen3-Reranker", exporter="torch")
def test_language_model(qwen3):
    folder, model, words = qwen3
    with edgewise.pipeline("text-ranking", folder) as rank:
        want = card_scores(model, words, QUERY, DOCUMENTS)
        assert len({round(x, 3) for x in want}) > 2
        same(rank(QUERY, DOCUMENTS), ranked(want))
        assert rank.session("model").run(["logits"], _feeds(rank))[0].shape[1] == 1
        asked = card_scores(model, words, QUERY, DOCUMENTS, "Find the fox.")
        same(rank(QUERY, DOCUMENTS, prompt="Find the fox."), ranked(asked))
        cut = card_scores(model, words, QUERY, [" ".join(DOCUMENTS * 9)], most=300)
        same(rank(QUERY, [" ".join(DOCUMENTS * 9)], max_length=300), ranked(cut))
        with pytest.raises(InputError, match="the prompt alone has"):
            rank(QUERY, DOCUMENTS, max_length=20)
        same(rank(QUERY, DOCUMENTS), ranked(want))


def _feeds(rank):
    """The inputs of the graph for three tokens."""
    from edgewise.logic.text.encoding import Encoding

    read = Encoding([5, 6, 7], [0] * 3)
    session = rank.session("model")
    return {name: rank._feed(info, [read], 3) for name, info in session.inputs.items()}


def test_files_name_the_answers(qwen3, tmp_path):
    """1_LogitScore/config.json: of one token the score is its logit."""
    import shutil

    folder, model, words = qwen3
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    module = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    (copy / "modules.json").write_text(f'[{{"path": "1_LogitScore", "type": "{module}"}}]')
    (copy / "1_LogitScore").mkdir()
    set_json(copy / "1_LogitScore" / "config.json", true_token_id=words.convert_tokens_to_ids("no"))
    set_json(copy / "config_sentence_transformers.json", activation_fn="torch.nn.Identity")
    with edgewise.pipeline("text-ranking", copy) as rank:
        found = {one["corpus_id"]: one["score"] for one in rank(QUERY, DOCUMENTS)}
    with edgewise.pipeline("text-ranking", folder, function_to_apply="none") as rank:
        other = {one["corpus_id"]: one["score"] for one in rank(QUERY, DOCUMENTS)}
    assert found != other and len(found) == len(other)


def test_packages(encoder, qwen3, tmp_path):
    folder, logits = encoder
    main(["build", "--task", "text-ranking", str(folder), "-o", str(tmp_path / "encoder.edge")])
    with edgewise.pipeline("text-ranking", tmp_path / "encoder.edge") as rank:
        want = ranked([torch.sigmoid(x).item() for x in logits(QUERY, DOCUMENTS)])
        same(rank(QUERY, DOCUMENTS), want)
    folder, model, words = qwen3
    main(["build", "--task", "text-ranking", str(folder), "-o", str(tmp_path / "qwen3.edge")])
    with edgewise.pipeline("text-ranking", tmp_path / "qwen3.edge") as rank:
        same(rank(QUERY, DOCUMENTS), ranked(card_scores(model, words, QUERY, DOCUMENTS)))


def test_what_is_refused(tiny_model):
    with edgewise.pipeline("text-ranking", tiny_model("bert", "sequence")) as rank:
        with pytest.raises(InputError, match="its logits are \\[1, 3\\]"):
            rank(QUERY, DOCUMENTS)
        for given, what in (
            ((QUERY,), "no query with documents"),
            ((QUERY, "a text"), "no list of documents"),
            ((QUERY, [1]), "document 0"),
            ((3, DOCUMENTS), "query"),
            (({"query": QUERY},), "no query with documents"),
        ):
            with pytest.raises(InputError, match=what):
                rank(*given)
        with pytest.raises(InputError, match="no prompt 'web'"):
            rank(QUERY, DOCUMENTS, prompt_name="web")
        with pytest.raises(InputError, match="top_k"):
            rank(QUERY, DOCUMENTS, top_k=0)
