"""Pipelines of texts in a page: packages and folders give what transformers' pipelines give."""

import json

import edgewise
import pytest
import torch
from edgewise.cli import main
from edgewise.task_package import ALIASES
from transformers import pipeline

from .models import CONTEXT, KINDS, LABELS, QUESTION, TEXTS, save

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(files):
    return files / "tasks"


@pytest.fixture(scope="module")
def references(folder):
    """{task: transformers' pipeline}; writes folders and packages of the same models."""
    made = {}
    for task in KINDS:
        model, words = save(folder / task, task)
        made[task] = pipeline(task, model=model, tokenizer=words)
        main(["build", "--task", task, str(folder / task), "-o", str(folder / f"{task}.edge")])
    return made


@pytest.fixture
def page(visit, server, references):
    return visit(server)


def call(page, task, args, options=None, model=None):
    """The result of one call of a new pipeline; tensors as {dims, data}."""
    result = page.run(
        """
            const p = await ew.pipeline(arg.task, arg.model, arg.options ?? {});
            const result = await p(...arg.args);
            await p.dispose();
            return result instanceof ew.Tensor
              ? { type: result.type, dims: result.dims, data: Array.from(result.data) }
              : result;
        """,
        {
            "task": task,
            "model": model or f"/files/tasks/{ALIASES.get(task, task)}.edge",
            "args": args,
            "options": options,
        },
    )
    assert not (isinstance(result, dict) and "error" in result), result
    return result


def close(got, want, path=""):
    """Compares results: numbers to 2e-5, everything else exactly."""
    if isinstance(want, dict):
        assert set(got) == set(want), (path, got, want)
        for key in want:
            close(got[key], want[key], f"{path}.{key}")
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), (path, got, want)
        for i, (a, b) in enumerate(zip(got, want)):
            close(a, b, f"{path}[{i}]")
    elif hasattr(want, "item") or isinstance(want, float):
        assert got == pytest.approx(float(want), abs=2e-5), path
    else:
        assert got == want, path


def test_embeddings_of_texts(page, references):
    want = [torch.tensor(x)[0].mean(0) for x in references["feature-extraction"](TEXTS)]
    got = call(page, "feature-extraction", [TEXTS, {"pooling": "mean"}])
    assert got["dims"] == [len(TEXTS), 32] and got["type"] == "float32"
    assert got["data"] == pytest.approx(torch.cat(want).tolist(), abs=2e-4)
    one = call(page, "embeddings", [TEXTS[2]])
    state = torch.tensor(references["feature-extraction"](TEXTS[2]))
    assert one["dims"] == list(state.shape)
    assert one["data"] == pytest.approx(state.flatten().tolist(), abs=2e-4)


def test_sentence_transformers_files_choose_the_pooling(page, references, folder):
    model = folder / "feature-extraction"
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    modules = [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    modules += [{"type": "sentence_transformers.models.Normalize", "path": ""}]
    modules += [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    (model / "modules.json").write_text(json.dumps(modules))
    prompts = {"truncate_dim": 24, "default_prompt_name": "a", "prompts": {"a": "", "q": "fox "}}
    (model / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    (model / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    main(["build", "--task", "embeddings", str(model), "-o", str(folder / "sentences.edge")])
    short = {"truncation": True, "max_length": 9}
    pipe = references["feature-extraction"]
    state = torch.tensor(pipe(TEXTS[0], tokenize_kwargs=short))[0].mean(0)
    want = torch.nn.functional.normalize(state[:24], dim=0).tolist()
    got = call(page, "embeddings", [TEXTS[0]], model="/files/tasks/sentences.edge")
    assert got["dims"] == [1, 24] and got["data"] == pytest.approx(want, abs=2e-5)
    with edgewise.pipeline("embeddings", model) as ours:
        assert ours(TEXTS[0]) == pytest.approx(want, abs=2e-5)
    state = torch.tensor(pipe("fox " + TEXTS[0], tokenize_kwargs=short))[0].mean(0)
    asked = torch.nn.functional.normalize(state[:24], dim=0).tolist()
    for options in ({"prompt_name": "q"}, {"prompt": "fox "}):
        got = call(page, "embeddings", [TEXTS[0], options], model="/files/tasks/sentences.edge")
        assert got["data"] == pytest.approx(asked, abs=2e-5)
    packed = call(
        page,
        "embeddings",
        [TEXTS[0], {"precision": "ubinary", "dimensions": 16}],
        model="/files/tasks/sentences.edge",
    )
    bits = "".join(str(int(x > 0)) for x in want[:16])
    assert packed == {"type": "uint8", "dims": [1, 2], "data": [int(bits[:8], 2), int(bits[8:], 2)]}


def test_classification_of_texts(page, references):
    pipe = references["text-classification"]
    close(call(page, "sentiment-analysis", [TEXTS[0]]), pipe(TEXTS[0]))
    close(call(page, "text-classification", [TEXTS]), pipe(TEXTS))
    every = call(page, "text-classification", [TEXTS, {"top_k": None}])
    close(every, pipe(TEXTS, top_k=None))
    pair = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    close(call(page, "text-classification", [pair])[0], pipe(pair))
    long = " ".join(TEXTS * 10)
    close(call(page, "text-classification", [long]), pipe(long, truncation=True))


@pytest.mark.parametrize("multi", [False, True])
def test_zero_shot_classification(page, references, multi):
    want = references["zero-shot-classification"](TEXTS[:2], LABELS, multi_label=multi)
    got = call(page, "zero-shot-classification", [TEXTS[:2], LABELS, {"multi_label": multi}])
    close(got, want)


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_entities(page, references, strategy):
    pipe = references["token-classification"]
    options = {"aggregation_strategy": strategy, "ignore_labels": []}
    got = call(page, "ner", [TEXTS, options])
    close(got, pipe(TEXTS, aggregation_strategy=strategy, ignore_labels=[]))


def test_masked_tokens(page, references):
    pipe = references["fill-mask"]
    text = "Angela [MASK] met Obama."
    close(call(page, "fill-mask", [text, {"top_k": 3}]), pipe(text, top_k=3))
    two = "[MASK] Merkel met [MASK]."
    close(call(page, "fill-mask", [two, {"top_k": 2}]), pipe(two, top_k=2))
    targets = ["berlin", "film"]
    close(call(page, "fill-mask", [text, {"targets": targets}]), pipe(text, targets=targets))


def test_answers(page, references):
    pipe = references["question-answering"]
    close(call(page, "question-answering", [QUESTION, TEXTS[0]]), pipe(QUESTION, TEXTS[0]))
    options = {"max_seq_len": 48, "doc_stride": 16, "top_k": 3}
    got = call(page, "question-answering", [QUESTION, CONTEXT, options])
    close(got, pipe(QUESTION, CONTEXT, **options))
    refused = page.run(
        """
            const p = await ew.pipeline("question-answering", arg);
            const said = [];
            for (const [question, context] of [["a", ""], ["", "a"]])
              said.push(await p({ question, context }).catch((e) => e.message));
            await p.dispose();
            return said;
        """,
        "/files/tasks/question-answering.edge",
    )
    assert all("no question with a context" in text for text in refused), refused


def test_a_folder_is_compiled_once(page, references):
    want = references["text-classification"](TEXTS[0])
    model = "/files/tasks/text-classification/"
    close(call(page, "text-classification", [TEXTS[0]], {"dtype": "fp32"}, model), want)
    assert page.asked("pyodide.asm")
    before = len(page.requests)
    close(call(page, "text-classification", [TEXTS[0]], {"dtype": "fp32"}, model), want)
    assert not [r for r in page.requests[before:] if "pyodide" in r.url]


def test_async_iterables(page, references):
    got = page.run(
        """
            async function* typed() {
              for (const text of arg.texts) yield text;
            }
            const p = await ew.pipeline("text-classification", arg.model);
            const results = [];
            for await (const result of p(typed())) results.push(result);
            await p.dispose();
            return results;
        """,
        {"texts": TEXTS, "model": "/files/tasks/text-classification.edge"},
    )
    close(got, [references["text-classification"]([text]) for text in TEXTS])


def test_errors_leave_the_pipeline_usable(page, references):
    found = page.run(
        """
            const p = await ew.pipeline("text-classification", arg.model);
            const errors = [];
            const refused = async (work) => {
              try {
                await work();
                errors.push("nothing");
              } catch (e) {
                errors.push(`${e.name} ${e.where}: ${e.what}`);
              }
            };
            await refused(() => p(["fine", 7]));
            await refused(() => p("x", { nonsense: 1 }));
            await refused(() => p("x", { top_k: 0 }));
            await refused(() => p("x", { signal: AbortSignal.abort() }));
            await refused(() => ew.pipeline("fill-mask", arg.model));
            await refused(() => ew.pipeline("text-generation", arg.model));
            await refused(() => ew.pipeline("text-classification", "/files/model.edge"));
            await refused(() => ew.InferenceSession.create(arg.model));
            await refused(() => ew.pipeline("nonsense", arg.model));
            await refused(() => ew.pipeline("ner", arg.model, { capacity: 7 }));
            const result = await p("still fine");
            await p.dispose();
            await refused(() => p("x"));
            return [errors, result.length];
        """,
        {"model": "/files/tasks/text-classification.edge"},
    )
    errors, usable = found
    assert usable == 1
    names = [e.split(" ")[0] for e in errors]
    assert names == [
        *["InputError"] * 3,
        "Aborted",
        *["PackageError"] * 4,
        *["InputError"] * 2,
        "Aborted",
    ], errors
    assert "nonsense" in errors[1] and "top_k" in errors[2]


@pytest.mark.family("Cross-encoders", exporter="torch")
@pytest.mark.family("Qwen3-Reranker", exporter="torch")
def test_ranking(page, folder):
    """A cross-encoder from its folder, and a language model from a package and its folder."""
    from tests.pipelines import tiny
    from tests.pipelines.tiny_ranking import DOCUMENTS, QUERY, card_scores, make_qwen3, ranked

    (folder / "score").mkdir()
    tiny.make(folder / "score", "bert", "score")
    classify = pipeline("text-classification", str(folder / "score"))
    pairs = [{"text": QUERY, "text_pair": document} for document in DOCUMENTS]
    want = ranked([classify(pair)["score"] for pair in pairs], DOCUMENTS)
    given = [QUERY, DOCUMENTS, {"return_documents": True}]
    close(call(page, "text-ranking", given, model="/files/tasks/score/"), want)
    (folder / "qwen3").mkdir()
    model, words = make_qwen3(folder / "qwen3", "Qwen3ForCausalLM", "logits")
    main(["build", "--task", "text-ranking", str(folder / "qwen3"), "-o", str(folder / "q.edge")])
    want = ranked(card_scores(model, words, QUERY, DOCUMENTS))
    for name in ("q.edge", "qwen3/"):
        close(call(page, "text-ranking", [QUERY, DOCUMENTS], model=f"/files/tasks/{name}"), want)
    few = {"query": QUERY, "documents": DOCUMENTS}
    close(call(page, "text-ranking", [few, {"top_k": 2}], model="/files/tasks/q.edge"), want[:2])
    assert call(page, "text-ranking", [QUERY, []], model="/files/tasks/q.edge") == []


@pytest.mark.family("Qwen3-Embedding", exporter="torch")
def test_embeddings_of_decoders(page, folder):
    """The last token's state of a model with caches, which a page leaves empty."""
    from tests.pipelines import tiny
    from tests.pipelines.tiny_ranking import make_qwen3

    decoder = folder / "decoder"
    decoder.mkdir()
    model, words = make_qwen3(decoder, "Qwen3Model", "last_hidden_state")
    tiny.as_sentence_transformer(decoder, {"pooling_mode_lasttoken": True})
    with torch.no_grad():
        ids = torch.tensor([words(TEXTS[0])["input_ids"]])
        last = torch.nn.functional.normalize(model(ids).last_hidden_state[0, -1], dim=0)
    got = call(page, "feature-extraction", [TEXTS[0]], model="/files/tasks/decoder/")
    assert got["dims"] == [1, 32] and got["data"] == pytest.approx(last.tolist(), abs=2e-5)
