"""Every option of transformers' and transformers.js' text pipelines works or raises; what is common
to all pipelines: unknown options, lists, iterators, closing, files.
"""

import importlib
import inspect
import shutil
from pathlib import Path

import edgewise
import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.errors import EdgewiseError, InputError, ModelError
from edgewise.host.pipelines import TASKS
from edgewise.onnx import FileSource
from edgewise.pipelines.files import DTYPES, ModelFiles

from .tiny import TEXTS

transformers = pytest.importorskip("transformers")

CONTEXT = TEXTS[1]
DEMO = str(Path(__file__).parents[2] / "web/demo/model")
ENCODING = {"truncation": True, "max_length": 9, "padding": True, "add_special_tokens": False}
# {task: (head of the model, input, {option: a value})}
TASKS_OF_TEXT = {
    "feature-extraction": (
        "base",
        (TEXTS[0],),
        {
            "pooling": "mean",
            "normalize": True,
            "dimensions": 8,
            "prompt": "a ",
            "quantize": False,
            "precision": "float32",
            "prompt_name": None,
            "return_tensors": True,
            "tokenize_kwargs": {"truncation": True},
            **ENCODING,
        },
    ),
    "text-classification": (
        "sequence",
        (TEXTS[0],),
        {"top_k": 2, "function_to_apply": "sigmoid", "return_all_scores": True, **ENCODING},
    ),
    "zero-shot-classification": (
        "sequence",
        (TEXTS[0], ["a", "b"]),
        {
            "candidate_labels": ["a"],
            "hypothesis_template": "It is {}.",
            "multi_label": True,
            "multi_class": True,
        },
    ),
    "token-classification": (
        "tokens",
        (TEXTS[0],),
        {
            "aggregation_strategy": "simple",
            "ignore_labels": [],
            "stride": None,
            "grouped_entities": True,
            "ignore_subwords": True,
            "offset_mapping": None,
            "is_split_into_words": False,
            "delimiter": "-",
        },
    ),
    "fill-mask": (
        "mask",
        ("The [MASK] fox.",),
        {"top_k": 1, "targets": ["the"], "tokenizer_kwargs": {"truncation": True}},
    ),
    "question-answering": (
        "questions",
        ("Who?", CONTEXT),
        {
            "top_k": 2,
            "topk": 2,
            "doc_stride": 4,
            "max_answer_len": 3,
            "max_seq_len": 40,
            "max_question_len": 5,
            "handle_impossible_answer": True,
            "align_to_words": False,
            "padding": "longest",
        },
    ),
}
# Options of a call in transformers.js 4.3.
OF_JAVASCRIPT = {
    "feature-extraction": ["pooling", "normalize", "quantize", "precision"],
    "text-classification": ["top_k"],
    "zero-shot-classification": ["hypothesis_template", "multi_label"],
    "token-classification": ["ignore_labels", "aggregation_strategy"],
    "fill-mask": ["top_k"],
    "question-answering": ["top_k", "padding"],
}
# Options of `pipeline` in transformers and transformers.js: {name: a value that means something}.
OF_CREATION = {
    "config": {},
    "revision": "v1",
    "dtype": "fp16",
    "device": "cuda",
    "batch_size": 0,
    "subfolder": "none",
    "model_file_name": "other",
    "framework": "pt",
    "use_fast": False,
    "torch_dtype": "float16",
    "device_map": "auto",
    "trust_remote_code": True,
    "model_kwargs": {},
    "num_workers": 2,
    "cache_dir": "x",
    "local_files_only": True,
    "progress_callback": print,
    "use_external_data_format": True,
    "token": "x",
}


@pytest.mark.parametrize("task", TASKS_OF_TEXT)
def test_every_option_works_or_raises(tiny_model, task):
    head, inputs, values = TASKS_OF_TEXT[task]
    pipe = edgewise.pipeline(task, tiny_model("bert", head))
    assert set(values) == set(type(pipe).CALL)
    theirs = {
        "feature-extraction": "FeatureExtraction", "text-classification": "TextClassification",
        "zero-shot-classification": "ZeroShotClassification", "fill-mask": "FillMask",
        "token-classification": "TokenClassification", "question-answering": "QuestionAnswering",
    }[task]  # fmt: skip
    theirs = getattr(transformers, f"{theirs}Pipeline")._sanitize_parameters
    named = [
        name
        for name, p in inspect.signature(theirs).parameters.items()
        if name != "self" and p.kind is not p.VAR_KEYWORD
    ]
    assert set(named) <= set(values) and set(OF_JAVASCRIPT[task]) <= set(values)
    for name, value in values.items():
        args = inputs[:1] if name == "candidate_labels" else inputs
        once = pipe(*args, **{name: value})
        again = edgewise.pipeline(task, tiny_model("bert", head), **{name: value})
        if name not in ("top_k", "return_tensors"):  # top_k: transformers nests the result
            assert again(*args) == once
        with pytest.raises(InputError):
            pipe(*args, **{name: object()})
    with pytest.raises(InputError, match=r"no option 'tempo'.*There are: .*batch_size"):
        pipe(*inputs, tempo=3)
    with pytest.raises(InputError, match="no option 'tempo'"):
        edgewise.pipeline(task, tiny_model("bert", head), tempo=3)


@pytest.mark.parametrize("name", OF_CREATION)
def test_options_of_creation(tiny_model, name):
    """Those with an effect have one, the others raise: here all values are of no use."""
    if name == "config":
        pipe = edgewise.pipeline("ner", tiny_model("bert", "tokens"), config={})
        assert {e["entity"] for e in pipe(CONTEXT, ignore_labels=[])} <= {
            f"LABEL_{i}" for i in range(5)
        }
        return
    with pytest.raises(InputError):
        edgewise.pipeline(
            "token-classification", tiny_model("bert", "tokens"), **{name: OF_CREATION[name]}
        )


def test_tasks():
    for module, kind in TASKS.values():
        assert inspect.isclass(
            getattr(importlib.import_module(f"edgewise.host.pipelines.{module}"), kind)
        )
    with pytest.raises(InputError, match="There are: .*fill-mask"):
        edgewise.pipeline("chess", "x")
    with pytest.raises(InputError, match="has a default model"):
        edgewise.pipeline("fill-mask")
    with pytest.raises(InputError, match="no such file"):
        edgewise.pipeline("fill-mask", "/nowhere/at/all")


def test_packages_without_a_task(tiny_model, tmp_path):
    graph = FileSource(str(tiny_model("bert", "base") / "onnx/model.onnx"))
    dims = [{"batch_size": 1, "sequence_length": 8}]
    with open(tmp_path / "model.edge", "wb") as file:
        compile_inference({"model.onnx": graph}, dims).write(file)
    with pytest.raises(InputError, match="no pipeline 'feature-extraction' of packages"):
        edgewise.pipeline("embeddings", tmp_path / "model.edge")


def test_a_model_of_another_task(tiny_model):
    for task, head in (("fill-mask", "base"), ("question-answering", "mask"), ("ner", "questions"),
                       ("text-classification", "base")):  # fmt: skip
        pipe = edgewise.pipeline(task, tiny_model("bert", head))
        given = ("a", "b") if task == "question-answering" else ("a [MASK]",)
        for _ in range(2):
            with pytest.raises(InputError, match="exported for another task"):
                pipe(*given)
    with pytest.raises(InputError, match="is not a text"):
        edgewise.pipeline("embeddings", tiny_model("bert", "base"))(3)


def test_lists_iterators_and_closing(tiny_model):
    pipe = edgewise.pipeline("embeddings", tiny_model("bert", "base"), pooling="mean")
    one = pipe(TEXTS[0])
    assert pipe([TEXTS[0]]) == [one] and pipe((TEXTS[0],), batch_size=7) == [one] and pipe([]) == []
    lazy = pipe(iter(TEXTS), batch_size=2)
    assert next(lazy) == one and list(lazy) == pipe(TEXTS[1:])
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(InputError, match="positive integer"):
            pipe(TEXTS, batch_size=wrong)
    with open(__file__, "rb") as file, pytest.raises(InputError, match="open file"):
        pipe(file)
    with pipe:
        pass
    with pytest.raises(InputError, match="is closed"):
        pipe(TEXTS[0])
    pipe.close()


def test_sessions_instead_of_files(tiny_model):
    folder = tiny_model("bert", "base")
    session = edgewise.InferenceSession(folder / "onnx/model.onnx")
    pipe = edgewise.pipeline("embeddings", session, tokenizer=folder, pooling="cls")
    assert pipe("a") == edgewise.pipeline("embeddings", folder, pooling="cls")("a")
    with pytest.raises(InputError, match="no tokenizer"):
        edgewise.pipeline("embeddings", session)
    with pytest.raises(InputError, match="is not a model"):
        edgewise.pipeline("embeddings", 3)


def test_files_of_a_task(tmp_path):
    def put(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"{}")

    def graphs(*args, **options):
        found = ModelFiles(tmp_path, *args, **options).graphs
        return {stem: str(path)[len(str(tmp_path)) + 1 :] for stem, path in found.items()}

    put("config.json", "onnx/model_quantized.onnx", "onnx/model_fp16.onnx")
    assert graphs() == {"model": "onnx/model_quantized.onnx"}
    put("onnx/model.onnx")
    assert graphs() == graphs(dtype="fp32") == {"model": "onnx/model.onnx"}
    assert graphs(dtype="q8") == {"model": "onnx/model_quantized.onnx"}
    assert graphs(dtype={"model": "fp16"}) == {"model": "onnx/model_fp16.onnx"}
    with pytest.raises(InputError, match=r"no model\.onnx of dtype 'q4'.*It has: "):
        graphs(dtype="q4")
    with pytest.raises(InputError, match="is not a dtype"):
        graphs(dtype="float16")
    with pytest.raises(InputError, match="has no graph 'encoder'"):
        graphs(dtype={"encoder": "fp16"})
    put("encoder_model.onnx", "onnx/decoder_model.onnx", "unet/model.onnx")
    several = ["encoder_model", ("decoder_model_merged", "decoder_model"), "unet/model"]
    assert graphs(several, ["decoder_with_past_model"]) == {
        "encoder_model": "encoder_model.onnx",
        "decoder_model": "onnx/decoder_model.onnx",
        "unet/model": "unet/model.onnx",
    }
    with pytest.raises(InputError, match="several graphs"):
        ModelFiles(tmp_path / "encoder_model.onnx", several)
    assert graphs(model_file_name="encoder_model") == {"encoder_model": "encoder_model.onnx"}
    inside = ModelFiles(tmp_path / "onnx/model_fp16.onnx")
    assert inside.json("config.json") == {} and inside.json("other.json") is None
    with pytest.raises(InputError, match="revisions"):
        graphs(revision="main")
    shutil.rmtree(tmp_path / "onnx")
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ModelError, match=r"config\.json"):
        ModelFiles(tmp_path, ["encoder_model"]).json("config.json")
    assert set(DTYPES) >= {"fp32", "fp16", "q8", "int8", "uint8", "q4", "q4f16", "bnb4"}


def test_mistakes_in_making_a_pipeline(tmp_path):
    """An EdgewiseError that names what was meant, at once."""
    make = edgewise.pipeline
    with pytest.raises(InputError, match="'max_lenght'. Did you mean 'max_length'"):
        make("text-generation", DEMO, max_lenght=64)
    with pytest.raises(InputError, match="'asistant_model'. Did you mean 'assistant_model'"):
        make("text-generation", "no/such/model", asistant_model=DEMO)
    with pytest.raises(EdgewiseError, match="'stop'. Did you mean 'stop_strings'"):
        make("text-generation", DEMO)("Once", stop=["."])
    with pytest.raises(InputError, match="'lr'. Did you mean 'learning_rate'"):
        edgewise.Trainer(DEMO, lr=1e-3)
    with pytest.raises(InputError, match="no device 'cuda'"):
        make("text-generation", DEMO, device="cuda")
    assert make("text-generation", DEMO, device="cpu").model.max_length
    with pytest.raises(InputError, match="a model of texts"):
        make("image-classification", DEMO)
    with pytest.raises(InputError, match="Did you mean 'session_options'"):
        make("text-classification", str(tmp_path), sesion_options=None)


def test_pipelines_are_shown():
    assert "max_length=" in repr(edgewise.pipeline("text-generation", DEMO))


def test_notebooks_show_objects() -> None:
    """A table of what an object was made of, and of a run its losses; names are escaped."""
    from edgewise.host.training.trainer.loop import History

    pipe = edgewise.pipeline("text-generation", DEMO)
    assert "<td" in pipe._repr_html_() and "max_length=" in pipe._repr_html_()
    assert "<caption>CausalLM</caption>" in pipe.model._repr_html_()
    trainer = edgewise.Trainer(DEMO, adapters=edgewise.LoraConfig(r=2), sequence_length=8)
    assert "LoRA of rank 2" in trainer._repr_html_()
    shown = History([2.0, 1.0], stopped="<early>")._repr_html_()
    assert "20.0,20.0 460.0,80.0" in shown and "<early>" not in shown
