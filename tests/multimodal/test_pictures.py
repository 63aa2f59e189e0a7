"""image-text-to-text in Python, from pixels to tokens, beside transformers."""

from __future__ import annotations

import json
import shutil
import threading

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.compiler.onnx import FileSource
from edgewise.compiler.package import Package
from edgewise.compiler.task_package import compile_task
from edgewise.errors import Aborted, InputError, PackageError, UnsupportedOp
from edgewise.host.session.open import folder_files

from .asking import QUESTION, answered, messages, pictures
from .kept import unpacked

TASK = "image-text-to-text"
GREEDY = {"max_new_tokens": 10, "do_sample": False}


@pytest.fixture(scope="module")
def pipe(tiny):
    with edgewise.pipeline(TASK, tiny("idefics3").root) as made:
        yield made


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("idefics3", marks=pytest.mark.family("Idefics3", exporter="torch")),
        pytest.param("smolvlm", marks=pytest.mark.family("SmolVLM", exporter="torch")),
        pytest.param("llava", marks=pytest.mark.family("LLaVA", exporter="torch")),
        pytest.param("gemma3", marks=pytest.mark.family("Gemma 3 with pictures", exporter="torch")),
        "gemma3-pairs",
        "gemma3-windows",
        pytest.param("paligemma", marks=pytest.mark.family("PaliGemma", exporter="torch")),
        "paligemma-pairs",
        pytest.param("onevision", marks=pytest.mark.family("LLaVA-OneVision", exporter="torch")),
        pytest.param("llava-next", marks=pytest.mark.family("LLaVA-NeXT", exporter="torch")),
        pytest.param("janus", marks=pytest.mark.family("Janus", exporter="torch")),
        "janus-parts",
        pytest.param(
            "granite-docling", marks=pytest.mark.family("Granite-Docling", exporter="torch")
        ),
        pytest.param("qwen2-vl", marks=pytest.mark.family("Qwen2-VL", exporter="torch")),
        pytest.param("qwen2.5-vl", marks=pytest.mark.family("Qwen2.5-VL", exporter="torch")),
        pytest.param("qwen3-vl", marks=pytest.mark.family("Qwen3-VL", exporter="torch")),
        "qwen3-vl stacked",
        pytest.param("pixtral", marks=pytest.mark.family("Pixtral", exporter="torch")),
        pytest.param("mistral3", marks=pytest.mark.family("Mistral 3", exporter="torch")),
        pytest.param("lfm2-vl", marks=pytest.mark.family("LFM2-VL", exporter="torch")),
    ],
)
def test_tokens_are_those_of_transformers(tiny, name):
    model = tiny(name)
    answers = set()
    with edgewise.pipeline(TASK, model.root) as made:
        for count in (0, 1, 2, 3):
            images = pictures(count)
            [got] = made(images, messages(count), return_tensors=True, **GREEDY)
            if not count and "paligemma" in name:  # whose processor needs pictures
                continue
            wanted = answered(model, messages(count), images, 10)
            assert got["generated_token_ids"] == wanted
            answers.add(tuple(wanted[-10:]))
    assert len(answers) > 1  # they depend on the pictures


def test_a_picture_sees_no_more_of_what_comes_before_it_than_its_window(tiny):
    """The tokens of a picture see each other, and in layers of a window no picture before it."""
    model, many = tiny("gemma3-windows"), {**GREEDY, "max_new_tokens": 24}
    with edgewise.pipeline(TASK, model.root) as made:
        for count in (3, 8):
            images = pictures(count)
            [got] = made(images, messages(count), return_tensors=True, **many)
            assert got["generated_token_ids"] == answered(model, messages(count), images, 24)


def test_prompts_are_divided_between_pictures(tiny):
    """Where the mask is the host's; where the model makes it, the pictures must fit into a run."""
    images, chat = pictures(30), messages(30)
    model = tiny("gemma3-pairs")
    with edgewise.pipeline(TASK, model.root) as made:
        longest = max(p["tokens"] for p in made.package.manifest["decoder"]["plans"])
        [got] = made(images, chat, return_tensors=True, **GREEDY)
    wanted = answered(model, chat, images, 10)
    assert got["generated_token_ids"] == wanted
    assert len(wanted) > longest + 10
    with edgewise.pipeline(TASK, tiny("gemma3").root) as made:
        with pytest.raises(InputError, match="tokens of the prompt see each other.*fewer pictures"):
            made(images, chat, **GREEDY)
        assert made(pictures(1), messages(1), **GREEDY)  # it goes on


def test_an_encoder_without_the_end_of_rows_is_refused(tiny, tmp_path):
    root = tmp_path / "model"
    shutil.copytree(tiny("onevision").root, root)
    shutil.copy(tiny("janus").root / "onnx/vision_encoder.onnx", root / "onnx")
    with (
        pytest.raises(UnsupportedOp, match="gives 16 features of a tile; 16 and the one that ends"),
        edgewise.pipeline(TASK, root) as made,
    ):
        made(pictures(1), messages(1), **GREEDY)


def test_graphs_of_janus_that_do_not_belong_together_are_refused(tiny, tmp_path):
    root = tmp_path / "model"
    shutil.copytree(tiny("janus-parts").root, root)
    shutil.copy(tiny("llava").root / "onnx/embed_tokens.onnx", root / "onnx")
    (root / "onnx/embed_tokens.onnx").rename(root / "onnx/prepare_inputs_embeds.onnx")
    with (
        pytest.raises(UnsupportedOp, match="no tensor depends on 'pixel_values' alone"),
        edgewise.pipeline(TASK, root) as made,
    ):
        made(pictures(1), messages(1), **GREEDY)


def _other_version(model):
    model.opset_import[0].version += 1


def _other_function(model):
    """As in the decoder and the head of two exports, which may have the name for other things."""
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    opsets = list(model.opset_import)
    model.functions.append(
        onnx.helper.make_function("own", "Same", ["x"], ["y"], [node], opset_imports=opsets)
    )
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))


@pytest.mark.parametrize(
    ("change", "files", "says"),
    [
        (_other_version, ["lm_head"], "its operator set 'ai.onnx' is 18, the decoder's 17"),
        (_other_function, ["lm_head", "language_model"], "a function that the decoder has, too"),
    ],
)
def test_a_head_with_other_operators_is_refused(tiny, tmp_path, change, files, says):
    root = tmp_path / "model"
    shutil.copytree(tiny("janus-parts").root, root)
    for name in files:
        path = root / f"onnx/{name}.onnx"
        model = onnx.load(path)
        change(model)
        onnx.save(model, path)
    with (
        pytest.raises(UnsupportedOp, match=f"head .*{says}"),
        edgewise.pipeline(TASK, root) as made,
    ):
        made(pictures(1), messages(1), **GREEDY)


def test_special_tokens_of_answers_can_be_kept(tiny):
    """Granite-Docling answers with special tokens."""
    model = tiny("granite-docling")
    with edgewise.pipeline(TASK, model.root) as made:
        options = {"return_full_text": False, "skip_special_tokens": False}
        [got] = made(pictures(1), messages(1), **options, max_new_tokens=30, do_sample=False)
        [words] = made(pictures(1), messages(1), return_full_text=False, **GREEDY)
    ids = answered(model, messages(1), pictures(1), 30)
    words_of = model.processor.tokenizer
    answer = words_of.decode(ids)[len(words_of.decode(ids[:-30])) :]
    assert got["generated_text"] == answer
    assert any(tag in answer for tag in words_of.all_special_tokens)
    assert not any(tag in words["generated_text"] for tag in words_of.all_special_tokens)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("qwen3_5", marks=pytest.mark.family("Qwen3.5-VL", exporter="torch")),
        pytest.param("lighton_ocr", marks=pytest.mark.family("LightOnOCR", exporter="torch")),
        pytest.param("glm_ocr", marks=pytest.mark.family("GLM-OCR", exporter="torch")),
        pytest.param("fastvlm", marks=pytest.mark.family("FastVLM", exporter="torch")),
    ],
)
def test_answers_that_are_kept(name, tmp_path):
    """make_qwen3_5.py, make_ocr.py and make_fastvlm.py write them with transformers 5."""
    expected = unpacked(name, tmp_path / "model")
    images = pictures(3)
    with edgewise.pipeline(TASK, tmp_path / "model") as made:
        for of, answer in zip(expected["asked"], expected["answers"], strict=True):
            given = [images[i] for i in of]
            [got] = made(given, messages(len(of)), return_tensors=True, **GREEDY)
            assert got["generated_token_ids"] == answer
    assert len({tuple(answer[-10:]) for answer in expected["answers"]}) > 1


def test_the_first_form_of_lighton_ocr(tmp_path):
    """Its files have the type of Mistral 3, whose rows of patches have ends."""
    root = tmp_path / "model"
    expected = unpacked("lighton_ocr", root)
    config = json.loads((root / "config.json").read_text())
    config |= {"model_type": "mistral3", "architectures": ["LightOnOCRForConditionalGeneration"]}
    (root / "config.json").write_text(json.dumps(config))
    both = json.loads((root / "processor_config.json").read_text())
    (root / "preprocessor_config.json").write_text(json.dumps(both.pop("image_processor")))
    both |= {"processor_class": "LightOnOCRProcessor", "image_break_token": "<|vision_pad|>"}
    (root / "processor_config.json").write_text(json.dumps(both))
    with edgewise.pipeline(TASK, root) as made:
        [got] = made(pictures(1), messages(1), return_tensors=True, **GREEDY)
    assert got["generated_token_ids"] == expected["answers"][expected["asked"].index([0])]


def test_a_plan_is_kept_for_each_size(tiny):
    small, large = pictures(2)
    with edgewise.pipeline(TASK, tiny("qwen2.5-vl").root) as made:
        counts = []
        for image in (small, large, small, large):
            made._kept.clear()
            made([image], messages(1), **GREEDY)
            counts.append(len(made.session("vision").plans))
    assert 0 < counts[0] < counts[1] == counts[2] == counts[3]


@pytest.mark.parametrize("name", ["qwen2-vl", "qwen3-vl", "pixtral", "lfm2-vl"])
def test_packages_with_encoders_of_any_size(tiny, tmp_path, name):
    """They have the encoder as an .onnx file, of which plans are compiled for each size."""
    model, path = tiny(name), tmp_path / "model.edge"
    compile_task(folder_files(model.root)[0], TASK).save(str(path))
    with edgewise.pipeline(TASK, path) as made:
        for count in (0, 1, 3):
            [got] = made(pictures(count), messages(count), return_tensors=True, **GREEDY)
            wanted = answered(model, messages(count), pictures(count), 10)
            assert got["generated_token_ids"] == wanted


def test_an_encoder_of_another_model_is_refused(tiny, tmp_path):
    root = tmp_path / "model"
    shutil.copytree(tiny("pixtral").root, root)
    shutil.copy(tiny("qwen2-vl").root / "onnx/vision_encoder.onnx", root / "onnx")
    with edgewise.pipeline(TASK, root) as made:
        with pytest.raises(InputError, match=r"input 'pixel_values': 4 dimensions .* expected 2"):
            made(pictures(1), messages(1), **GREEDY)
        assert made(None, messages(0), **GREEDY)  # it goes on


def test_a_package_is_the_same(tiny, tmp_path):
    model = tiny("idefics3")
    package = compile_task(folder_files(model.root)[0], TASK)
    package.save(str(tmp_path / "model.edge"))
    assert Package.read(FileSource(str(tmp_path / "model.edge"))).manifest["task"] == TASK
    with edgewise.pipeline(TASK, tmp_path / "model.edge") as made:
        [got] = made(pictures(2), messages(2), return_tensors=True, **GREEDY)
    assert got["generated_token_ids"] == answered(model, messages(2), pictures(2), 10)


def test_a_package_without_its_encoder_is_refused(tiny, tmp_path):
    package = compile_task(folder_files(tiny("idefics3").root)[0], TASK)
    del package.manifest["programs"]["vision"]
    package.save(str(tmp_path / "model.edge"))
    with (
        edgewise.pipeline(TASK, tmp_path / "model.edge") as made,
        pytest.raises(PackageError, match="it has no program 'vision'"),
    ):
        made(pictures(1), messages(1), **GREEDY)


def test_results_have_the_form_of_transformers(tiny, pipe):
    from transformers import pipeline

    model = tiny("idefics3")
    theirs = pipeline(TASK, model.model, processor=model.processor, device="cpu")
    [image] = pictures(1)
    chat = [{"role": "user", "content": [{"type": "image", "image": image}, QUESTION]}]

    def fields():  # theirs changes what it gets
        return {"generate_kwargs": {"max_new_tokens": 6, "do_sample": False}}

    for options in ({}, {"return_full_text": False}, {"return_full_text": True}):
        assert pipe(text=chat, **options, **fields()) == theirs(text=chat, **options, **fields())
    two = [chat, [{"role": "user", "content": [QUESTION]}]]
    assert pipe(two, **fields()) == theirs(two, **fields())
    text = "<image> a cat"
    assert pipe(images=image, text=text, **fields()) == theirs(images=image, text=text, **fields())


def test_the_last_message_is_continued(tiny, pipe):
    chat = [*messages(1), {"role": "assistant", "content": [{"type": "text", "text": "a dog"}]}]
    [got] = pipe(pictures(1), chat, **GREEDY)
    last = got["generated_text"][-1]
    assert last["role"] == "assistant"
    assert last["content"][0]["text"].startswith("a dog")
    assert len(got["generated_text"]) == 2


def test_features_are_kept(pipe, monkeypatch):
    [image] = pictures(1)
    pipe._kept.clear()
    pipe([image], messages(1), **GREEDY)
    vision = pipe.session("vision")
    monkeypatch.setattr(vision, "run", None)
    pipe([image, image], messages(2), **GREEDY)  # is not encoded again
    monkeypatch.undo()
    pipe._kept.most = 1
    pipe._kept.clear()
    pipe([image], messages(1), **GREEDY)
    assert pipe._kept.bytes == 0


def test_beams_and_several_sequences_see_the_picture(tiny, pipe):
    import torch

    model, images = tiny("idefics3"), pictures(1)
    text = model.processor.apply_chat_template(messages(1), add_generation_prompt=True)
    given = model.processor(text=text, images=images, return_tensors="pt", add_special_tokens=False)
    fields = {"max_new_tokens": 6, "do_sample": False, "num_beams": 3, "num_return_sequences": 2}
    with torch.no_grad():
        wanted = model.model.generate(**given, **fields)
    got = pipe(images, messages(1), return_tensors=True, **fields)
    assert [one["generated_token_ids"] for one in got] == [list(map(int, w)) for w in wanted]


def test_streams_and_aborts(pipe):
    class Streamer:
        def __init__(self):
            self.ids, self.over = [], False

        def put(self, ids):
            self.ids += list(ids)

        def end(self):
            self.over = True

    streamer = Streamer()
    [got] = pipe(pictures(1), messages(1), streamer=streamer, return_tensors=True, **GREEDY)
    assert streamer.ids == got["generated_token_ids"]
    assert streamer.over
    stop = threading.Event()
    stop.set()
    pipe._kept.clear()
    with pytest.raises(Aborted):
        pipe(pictures(1), messages(1), signal=stop, **GREEDY)
    assert pipe(pictures(1), messages(1), **GREEDY)


def test_bad_input_is_refused_in_words(pipe):
    [image] = pictures(1)
    cases = [
        (([image], messages(2)), "a part of a message has no picture"),
        (([image, image], messages(1)), "1 of the pictures have no place"),
        (([image], "a cat"), "0 placeholders '<image>', and 1 pictures"),
        ((None, "<image> a cat"), "1 placeholders '<image>', and 0 pictures"),
        (([image] * 100, messages(100)), "the prompt has"),
        (([b"RIFF\x24\x00\x00\x00WAVEfmt "], messages(1)), "not a picture that can be read"),
        ((["/no/such/file.png"], messages(1)), "cannot be read"),
        (([np.zeros((4, 4), np.float32)], messages(1)), "is not a picture"),
        ((None, [{"role": "user", "content": [{"type": "sound"}]}]), "has the type 'sound'"),
        ((None, [{"role": "user", "content": [{"type": "video"}]}]), "a video is not a list of"),
        ((None, [{"role": "user", "content": 5}]), "neither a text nor a list of parts"),
        ((None, 7), "neither text nor chat messages"),
        ((None, "<image>" * 3), "3 placeholders"),
    ]
    for given, words in cases:
        with pytest.raises(InputError, match=words):
            pipe(*given, **GREEDY)
    with pytest.raises(InputError, match="no option"):
        pipe([image], messages(1), pictures=3)
    assert pipe([image], messages(1), **GREEDY)  # it goes on


def test_files_of_two_models_are_refused(tiny, tmp_path):
    root = tmp_path / "model"
    shutil.copytree(tiny("idefics3").root, root)
    config = json.loads((root / "processor_config.json").read_text())
    (root / "processor_config.json").write_text(json.dumps({**config, "image_seq_len": 9}))
    with edgewise.pipeline(TASK, root) as made, pytest.raises(InputError, match="gives 112 feat"):
        made(pictures(1), messages(1), **GREEDY)
    (root / "preprocessor_config.json").unlink()
    with pytest.raises(InputError, match=r"preprocessor_config\.json"):
        edgewise.pipeline(TASK, root)
