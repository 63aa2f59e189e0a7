"""Videos as frames. transformers' video processors need torchvision: here its image processors make
the numbers. Of SmolVLM, texts and numbers of frames are those of its source.
"""

from __future__ import annotations

import json
import shutil

import edgewise
import numpy as np
import pytest
from edgewise.errors import InputError
from edgewise.logic.multimodal.asking import Clip
from edgewise.logic.multimodal.prompt import Prepared, Shown

from tests.logic.forms import both, module

from .any_size import QWEN_TEMPLATE
from .asking import QUESTION, pictures
from .kept import unpacked
from .tiny import IDEFICS3_TEMPLATE

TASK = "image-text-to-text"
GREEDY = {"max_new_tokens": 10, "do_sample": False}
VIDEO = {"placeholder": "<video>", "longest": 192, "filter": "bicubic", "rate": 1.0, "most": 64}
VIDEO |= {"together": 1, "pixels": (1, 1), "interval": 0.0, "family": "smolvlm"}
VIDEO |= {"ends": ("", ""), "fewest": 1, "cap": 0}
NUMBERS = {1: "one", 2: "two", 3: "three", 20: "twenty", 42: "forty-two", 64: "sixty-four"}
NUMBERS |= {100: "one hundred", 101: "one hundred and one", 115: "one hundred and fifteen"}


SAMPLED = [(2000, 30.0, 64, 63969), (5000, 25.0, 64, 159973), (90, 0.5, 64, 2817)]


@pytest.fixture
def smolvlm(tiny):
    model = tiny("smolvlm")
    template = IDEFICS3_TEMPLATE.replace(
        "{% endif %}{% endfor %}{% endif %}",
        "{% elif line['type'] == 'video' %}{{ '<video>' }}{% endif %}{% endfor %}{% endif %}",
        1,
    )
    assert template != IDEFICS3_TEMPLATE
    (model.root / "chat_template.jinja").write_text(template)
    model.processor.chat_template = template
    return model


def expanded(text, count, length, times):
    """The text with the tokens of a video, as processing_smolvlm.py writes it."""
    fake = "<fake_token_around_image>"
    frame = f"{fake}<global-img>{'<image>' * 16}{fake}"
    made = (
        f"You are provided the following series of {NUMBERS[count]} frames from a {length}"
        " [H:MM:SS] video.\n"
    )
    made += "".join(f"\nFrame from {time}:{frame}" for time in times)
    return text.replace("<video>", made + "\n\n")


def answered(model, text, frames):
    """Token ids of transformers' greedy answer, prompt included."""
    from transformers import SmolVLMImageProcessor

    squares = SmolVLMImageProcessor(
        size={"longest_edge": 192},
        max_image_size={"longest_edge": 64},
        do_image_splitting=False,
        resample=3,
    )
    pixels = squares([frames], return_tensors="pt")
    ids = model.processor.tokenizer(text, return_tensors="pt", add_special_tokens=False)
    made = model.model.generate(**ids, **pixels, **GREEDY)
    return [int(i) for i in made[0]]


@pytest.mark.parametrize(
    "count, fps, length, times",
    [
        (1, None, "0:00:00", ["00:00"]),
        (3, None, "0:00:00", ["00:00"] * 3),
        (3, 0.01, "0:05:00", ["00:00", "01:40", "03:20"]),
    ],
)
def test_tokens_are_those_of_transformers(smolvlm, count, fps, length, times):
    frames = pictures(count)
    part = {"type": "video", "video": frames, **({} if fps is None else {"fps": fps})}
    chat = [{"role": "user", "content": [part, QUESTION]}]
    text = smolvlm.processor.apply_chat_template(chat, add_generation_prompt=True)
    text = expanded(text, count, length, times)
    with edgewise.pipeline(TASK, smolvlm.root) as made:
        [got] = made(chat, return_tensors=True, **GREEDY)
    assert got["input_text"][0]["content"][0] is part
    assert got["generated_token_ids"] == answered(smolvlm, text, frames)


def test_an_array_is_a_video_and_frames_are_no_pictures(smolvlm):
    """The same pixels have other features as a picture, which is divided."""
    frame = pictures(1)[0]
    video = np.stack([np.asarray(frame)] * 2)
    with edgewise.pipeline(TASK, smolvlm.root) as made:

        def ask(content):
            chat = [{"role": "user", "content": [*content, QUESTION]}]
            return made(chat, return_tensors=True, **GREEDY)[0]["generated_token_ids"]

        of_array = ask([{"type": "video", "video": video}])
        assert of_array == ask([{"type": "video", "video": [frame, frame]}])
        both_of = ask([{"type": "image", "image": frame}, {"type": "video", "video": video}])
        made._kept.clear()
        again = ask([{"type": "image", "image": frame}, {"type": "video", "video": video}])
        assert both_of == again != of_array


QWEN_VIDEO = QWEN_TEMPLATE.replace(
    "{% endif %}{% endfor %}{% endif %}",
    "{% elif line['type'] == 'video' %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{% endif %}{% endfor %}{% endif %}",
    1,
)


def moving(count):
    """Frames of one size."""
    return [one.resize((90, 40)) for one in pictures(count)]


def watched(model, chat, frames, images, fps):
    """Token ids of transformers' greedy answer, prompt included. Its image processor takes frames,
    too, without torchvision.
    """
    import torch

    made = model.processor.image_processor
    of = made(images=images or None, videos=[frames], return_tensors="pt")
    text = model.processor.apply_chat_template(chat, add_generation_prompt=True)
    for name, grids in (("image", of.get("image_grid_thw")), ("video", of["video_grid_thw"])):
        parts = text.split(f"<|{name}_pad|>")
        for i, grid in enumerate([] if grids is None else grids):
            parts[i] += f"<|{name}_pad|>" * (int(grid.prod()) // 4)
        text = "".join(parts)
    given = {**model.processor.tokenizer(text, return_tensors="pt", add_special_tokens=False), **of}
    if model.model.config.model_type == "qwen2_5_vl":
        given["second_per_grid_ts"] = torch.tensor([2 / (fps or 2)])
    return [int(i) for i in model.model.generate(**given, **GREEDY)[0]]


@pytest.mark.parametrize("name", ["qwen2-vl", "qwen2.5-vl"])
@pytest.mark.parametrize("count, fps, stills", [(1, None, 0), (2, 1, 0), (5, 2, 1), (6, 1, 2)])
def test_frames_that_are_seen_together(tiny, tmp_path, name, count, fps, stills):
    model = tiny(name)
    root = shutil.copytree(model.root, tmp_path / "model")
    (root / "chat_template.jinja").write_text(QWEN_VIDEO)
    frames, images = moving(count), pictures(stills)
    part = {"type": "video", "video": frames, **({} if fps is None else {"fps": fps})}
    around = [{"type": "image", "image": one} for one in images]
    chat = [{"role": "user", "content": [*around[:1], part, *around[1:], QUESTION]}]
    before = model.processor.chat_template
    model.processor.chat_template = QWEN_VIDEO
    wanted = watched(model, chat, frames, images, fps)
    model.processor.chat_template = before
    with edgewise.pipeline(TASK, root) as made:
        [got] = made(chat, return_tensors=True, **GREEDY)
        assert got["generated_token_ids"] == wanted
        if count > 1:
            part["video"] = [frames[0], frames[1].resize((60, 40)), *frames[2:]]
            with pytest.raises(InputError, match="frames of 40 x 90 and 40 x 60 pixels"):
                made(chat, **GREEDY)


@pytest.mark.parametrize("count, fps, stills", [(2, None, 0), (5, 2, 1), (6, 3, 2), (40, 8, 0)])
def test_times_between_frames(tiny, tmp_path, count, fps, stills):
    """Qwen3-VL: limits are those of a whole video, of which some frames are taken."""
    from transformers import Qwen3VLProcessor

    model = tiny("qwen3-vl")
    root = shutil.copytree(model.root, tmp_path / "model")
    (root / "chat_template.jinja").write_text(QWEN_VIDEO)
    size = {"shortest_edge": 64 * 64, "longest_edge": 1 << 24}
    (root / "video_preprocessor_config.json").write_text(json.dumps({"size": size}))
    frames, images = [one.resize((96, 64)) for one in pictures(count)], pictures(stills)
    part = {"type": "video", "video": frames, **({} if fps is None else {"fps": fps})}
    around = [{"type": "image", "image": one} for one in images]
    chat = [{"role": "user", "content": [*around[:1], part, *around[1:], QUESTION]}]
    taken = np.arange(count)
    if fps is not None:  # Qwen3VLVideoProcessor.sample_frames
        wanted = min(max(int(count / fps * 2), 4), count)
        taken = np.linspace(0, count - 1, wanted).round().astype(int)
    of = model.processor.image_processor(
        images=images or None, videos=[[frames[i] for i in taken]], return_tensors="pt"
    )
    times = Qwen3VLProcessor._calculate_timestamps(None, taken.tolist(), fps or 24, 2)
    one = "<|vision_start|>" + "<|video_pad|>" * 24 + "<|vision_end|>"
    before, model.processor.chat_template = model.processor.chat_template, QWEN_VIDEO
    text = model.processor.apply_chat_template(chat, add_generation_prompt=True)
    model.processor.chat_template = before
    whole = "<|vision_start|><|video_pad|><|vision_end|>"
    text = text.replace(whole, "".join(f"<{time:.1f} seconds>{one}" for time in times))
    parts = text.split("<|image_pad|>")
    for i, grid in enumerate(of.get("image_grid_thw", [])):
        parts[i] += "<|image_pad|>" * (int(grid.prod()) // 4)
    text = "".join(parts)
    ids = model.processor.tokenizer(text, return_tensors="pt", add_special_tokens=False)
    wanted = model.model.generate(**ids, **of, **GREEDY)[0].tolist()
    with edgewise.pipeline(TASK, root) as made:
        [got] = made(chat, return_tensors=True, **GREEDY)
        assert got["generated_token_ids"] == wanted
        if stills:
            return
        with pytest.raises(InputError, match="a video has one frame"):
            made([{"role": "user", "content": [{**part, "video": frames[:1]}, QUESTION]}])


@pytest.mark.parametrize("name", ["qwen3_5", "glm_ocr"])
def test_videos_of_which_answers_are_kept(tmp_path, name):
    """make_videos.py writes them with transformers 5."""
    root = tmp_path / name
    unpacked(name, root)
    kept = json.loads((root / "videos.json").read_text())
    (root / "chat_template.jinja").write_text(kept["template"])
    (root / "video_preprocessor_config.json").write_text(json.dumps({"size": kept["limits"]}))
    with edgewise.pipeline(TASK, root) as made:
        for (count, fps), wanted in zip(kept["cases"], kept["answers"], strict=True):
            frames = [one.resize((96, 64)) for one in pictures(count)]
            part = {"type": "video", "video": frames, **({} if fps is None else {"fps": fps})}
            [got] = made(
                [{"role": "user", "content": [part, QUESTION]}], return_tensors=True, **GREEDY
            )
            assert got["generated_token_ids"] == wanted


TIMED = {**VIDEO, "together": 2, "pixels": (64 * 64, 40000), "rate": 2.0, "most": 768, "fewest": 4}


@both
@pytest.mark.parametrize(
    "count, rate, taken",
    [
        (10, 2.0, {"qwen3": (10, 45), "glm46v": (10, 45), "glm4v": (10, 45)}),
        (48, 24.0, {"qwen3": (4, 94), "glm46v": (12, 266), "glm4v": (4, 72)}),
        (100, 10.0, {"qwen3": (20, 990), "glm46v": (60, 2978), "glm4v": (20, 950)}),
        (2000, 30.0, {"qwen3": (133, 132934), "glm46v": (134, 132573), "glm4v": (134, 133650)}),
        (5, 1.0, {"qwen3": (5, 10), "glm46v": (6, 14), "glm4v": (6, 14)}),
        (700, 0.5, {"qwen3": (700, 244650), "glm46v": (640, 223362), "glm4v": (600, 210298)}),
        (9000, 25.0, {"qwen3": (720, 3239640), "glm46v": (360, 1615500), "glm4v": (600, 2700298)}),
    ],
)
def test_frames_that_are_taken_by_time(form, count, rate, taken):
    """How many, and their sum, of the video processors of transformers 5.24."""
    sampled = module(form, "multimodal.families.videos").sampled
    for family, wanted in taken.items():
        found = sampled({**TIMED, "family": family}, count, rate)
        assert (len(found), sum(found)) == wanted
    for family in taken:
        with pytest.raises(InputError, match="a video has one frame"):
            sampled({**TIMED, "family": family}, 1, rate)


@both
@pytest.mark.parametrize(
    "count, size, limits, wanted",
    [
        (5, (200, 300), (64 * 64, 40000), (64, 96)),
        (3, (50, 70), (64 * 64, 40000), (48, 64)),
        (2, (10, 12), (64 * 64, 16384), (48, 64)),
        (6, (97, 43), (16384, 32768), (96, 48)),
        (4, (20, 20), (16384, 999999), (64, 64)),
    ],
)
def test_limits_of_a_whole_video(form, count, size, limits, wanted):
    """smart_resize of video_processing_qwen3_vl.py of transformers 5.24, with sides of 16."""
    videos, views = (module(form, name) for name in ("multimodal.families.videos", "images.views"))
    rule = {"rule": "smart", "filter": "bicubic", "resize": True, "patch": 8, "merge": 2}
    rule |= {"least": 1, "most": 1 << 20, "frames": 0, "steps": []}
    rule = videos.frame_rule(rule, {**TIMED, "family": "qwen3", "pixels": limits}, count)
    assert tuple(views.seen(rule, *size).resized) == wanted


@both
def test_times_in_texts(form):
    """As transformers writes them, where halves become the even digit."""
    timed_text = module(form, "multimodal.families.videos").timed_text
    parts = [Shown("<|image|>" * 2, 2)] * 2
    rule = {**TIMED, "family": "qwen3", "placeholder": "V", "ends": ("(", ")")}
    assert timed_text(rule, parts, [0, 1, 3], 2.0) == "<0.2 seconds>(VV)<1.5 seconds>(VV)"
    rule = {**rule, "family": "glm46v"}
    both_parts = "(<|image|><|image|>)"
    assert (
        timed_text(rule, parts, [1, 2, 7], 20.0)
        == f"{both_parts}0.1 seconds{both_parts}0.3 seconds"
    )
    wanted = f"{both_parts}0{both_parts}3"
    assert timed_text({**rule, "family": "glm4v"}, parts, [1, 2, 7], 2.0) == wanted


@both
@pytest.mark.parametrize(
    "at, rate", [(1, 4), (3, 4), (7, 20), (9, 4), (241, 20), (3, 20), (7, 3), (2469, 2)]
)
def test_digits_of_times(form, at, rate):
    timed_text = module(form, "multimodal.families.videos").timed_text
    rule = {**TIMED, "family": "glm46v"}
    assert timed_text(rule, [Shown("", 2)], [at, at], float(rate)) == f"{at / rate:.1f} seconds"


@both
def test_times_of_frames_that_are_seen_together(form):
    """`(arange(times) * interval).long()`, as get_vision_position_ids of Qwen2.5-VL."""
    videos = module(form, "multimodal.families.videos")
    positions = module(form, "multimodal.families.positions")
    rule = {**VIDEO, "rate": 0.0, "together": 2, "interval": 4.0, "family": "qwen2"}
    chosen = videos.chosen_of(rule, [None] * 9, [Clip(1, 7, 3.0)])
    assert [at for at, _ in chosen.taken] == [[0], [1, 2], [3, 4], [5, 6], [7, 7], [8]]
    texts = [Shown("", 2, [1, 1, 2])] * 6
    prompt = Prepared(list(range(14)), [*range(1, 13)])
    made = positions.with_positions(prompt, videos.moving(rule, chosen, texts)).positions
    times = (np.arange(4) * (4 * 2 / 3)).astype(int).repeat(2) + 3
    assert made[0] == [0, 1, 1, *times, 12, 12, 14]
    assert made[2] == [0, 1, 2, *[3, 4] * 4, 12, 13, 14]
    sizes = [[(5, 6)] * len(at) for at, _ in chosen.taken]
    videos.check_frames(rule, chosen, [[(7, 7)], *sizes[1:]])
    with pytest.raises(InputError, match="frames of 5 x 6 and 5 x 7 pixels"):
        videos.check_frames(rule, chosen, [*sizes[:3], [(5, 6), (5, 7)], *sizes[4:]])


@both
def test_frames_are_those_that_transformers_takes(form):
    """SmolVLMVideoProcessor.sample_frames of transformers 5.24: how many, and their sum."""
    sampled = module(form, "multimodal.families.videos").sampled
    assert sampled(VIDEO, 1, 24.0) == sampled(VIDEO, 10, 100.0) == [0]
    assert sampled(VIDEO, 48, 24.0) == [0, 47]
    assert sampled(VIDEO, 3, None) == [0, 1, 2]
    for count, rate, length, total in SAMPLED:
        found = sampled(VIDEO, count, rate)
        assert (len(found), sum(found)) == (length, total)


@both
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_are_words(form, number):
    assert module(form, "multimodal.families.videos")._words(number) == NUMBERS[number]


def test_bad_videos_are_refused_in_words(tiny, smolvlm):
    def chat(**part):
        return [{"role": "user", "content": [{"type": "video", **part}, QUESTION]}]

    cases = [
        ({}, "a video is not a list of pictures"),
        ({"video": []}, "a video is not a list of pictures"),
        ({"video": "movie.mp4"}, "a video is not a list of pictures"),
        ({"video": pictures(1), "fps": 0}, "0 frames per second"),
        ({"video": pictures(1), "fps": "fast"}, "the rate of a video is no number"),
        ({"video": [7]}, "picture"),
        ({"video": pictures(1) * 100}, "the prompt has"),
    ]
    with edgewise.pipeline(TASK, smolvlm.root) as made:
        for part, words in cases:
            with pytest.raises(InputError, match=words):
                made(chat(**part), **GREEDY)
        assert made(chat(video=pictures(1)), **GREEDY)  # it goes on
    with (
        edgewise.pipeline(TASK, tiny("idefics3").root) as made,
        pytest.raises(InputError, match="sees no videos.*some of its frames as pictures"),
    ):
        made(chat(video=pictures(1)), **GREEDY)
