"""What stands for pictures in the prompts of families of models, and positions of three dimensions:
vectors that tests/conformance/make_picture_prompts.py writes with transformers.
"""

import pytest
from edgewise.compiler.processors.images.vision import read_vision
from edgewise.compiler.processors.prompts import picture_rule
from edgewise.errors import InputError
from edgewise.logic.multimodal.prompt import Prepared, Shown

from tests.conformance.vectors import vectors

from .forms import both, module

PICTURES = vectors("picture_prompts")["pictures"]
by_name = pytest.mark.parametrize("v", PICTURES, ids=[v["name"] for v in PICTURES])


def rule_of(v):
    vision = read_vision(v["image"], processor=v["processor"])
    return vision, picture_rule(vision, v["config"], v["processor"], v["image"], v["tokenizer"])


@both
@by_name
def test_texts_of_pictures(form, v):
    vision, rule = rule_of(v)
    pictures = module(form, "multimodal.families.pictures")
    views = module(form, "images.views")
    for wanted in v["pictures"]:
        what = views.seen(vision.rule, *wanted["size"])
        found = pictures.shown(rule, what)
        text = "".join(part * count for part, count in wanted["text"])
        assert found.text == text, wanted["size"]
        assert found.count == text.count(rule["token"])


@both
def test_texts_of_prompts(form):
    """PaliGemma's have a bos_token after their pictures, and an end; others stay as they are."""
    pictures = module(form, "multimodal.families.pictures")
    rules = {v["name"]: rule_of(v)[1] for v in PICTURES}
    one = Shown("<image>" * 2, 2)
    text = pictures.prompt_text(rules["PaliGemma"], "<image>caption en", [one])
    assert text == "<image><image><bos>caption en\n"
    assert pictures.prompt_text(rules["PaliGemma"], "caption en", [one]) == text
    llava = rules["Llava"]
    assert pictures.prompt_text(llava, "a<image>b", [one]) == "a<image><image>b"
    assert pictures.prompt_text(llava, "no picture", []) == "no picture"
    with pytest.raises(InputError, match="2 placeholders '<image>', and 1 pictures"):
        pictures.prompt_text(llava, "<image><image>", [one])
    with pytest.raises(InputError, match="0 placeholders"):
        pictures.prompt_text(llava, "a", [one])


@both
def test_positions(form):
    positions = module(form, "multimodal.families.positions")
    for v in vectors("picture_prompts")["positions"]:
        places = [i for i, kind in enumerate(v["types"]) if kind]
        shown = [Shown("", h * w, [t, h, w]) for t, h, w in v["grids"]]
        made = positions.with_positions(Prepared(v["types"], places), shown)
        assert made.positions == v["positions"]
        assert max(map(max, made.positions)) + 1 - len(v["types"]) == v["delta"]
    with pytest.raises(InputError, match="other tokens are between"):
        positions.with_positions(Prepared([0] * 9, [1, 2, 4, 5]), [Shown("", 4, [1, 2, 2])])


def test_rules_of_files():
    """Numbers of tokens that processor_config.json does not have come from config.json."""
    vision = read_vision({"image_processor_type": "Idefics3ImageProcessor"})
    config = {"vision_config": {"image_size": 512, "patch_size": 16}, "scale_factor": 4}
    assert picture_rule(vision, config)["count"] == 64
    assert picture_rule(vision, config, {"image_seq_len": 100})["count"] == 100
    with pytest.raises(InputError, match="image_seq_len"):
        picture_rule(vision, config, {"image_seq_len": -1})
    clip = read_vision({"image_processor_type": "CLIPImageProcessor", "size": 336})
    fast = picture_rule(clip, {"model_type": "llava_qwen2"}, {"patch_size": 64})
    assert (fast["unit"], fast["extra"], fast["token"]) == (64, 0, "<image>")
    pali = {"model_type": "paligemma", "vision_config": {"image_size": 224, "patch_size": 14}}
    assert picture_rule(clip, pali)["count"] == 256
    janus = {"image_tag": "<image_placeholder>", "num_image_tokens": 576}
    made = picture_rule(clip, {"model_type": "multi_modality"}, janus)
    assert made["first"] == "<begin_of_image>" and made["count"] == 576


@both
def test_places(form):
    """What Florence-2's texts say, and its prompts."""
    documents = module(form, "tasks.documents")
    v = vectors("picture_prompts")["places"]
    for case in v["cases"]:
        given = (case["text"], case["task"], tuple(case["size"]), v["config"])
        assert documents.florence_result(*given) == case["found"], case
    for prompt, text in v["prompts"]:
        assert documents.florence_prompt(prompt).text == text
    with pytest.raises(InputError, match="alone"):
        documents.florence_prompt("<OCR> x")


@both
def test_answers_about_documents(form):
    documents = module(form, "tasks.documents")
    text = documents.question_prompt("Who?", "x")
    assert text == "<s_docvqa><s_question>Who?</s_question><s_answer>"
    assert documents.donut_answer(text + " me</s_answer></s>", ["</s>"]) == "me"
    assert documents.donut_answer(text + " me</s>", ["</s>"]) is None
    with pytest.raises(InputError, match="no text"):
        documents.question_prompt(None, "x")
