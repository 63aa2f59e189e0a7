"""Videos as frames. transformers' video processors need torchvision: here its image processors make
the numbers. Of SmolVLM, texts and numbers of frames are those of its source.
"""

from __future__ import annotations

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
from .tiny import IDEFICS3_TEMPLATE

TASK = "image-text-to-text"
GREEDY = {"max_new_tokens": 10, "do_sample": False}
VIDEO = {"placeholder": "<video>", "longest": 192, "filter": "bicubic", "rate": 1.0, "most": 64}
VIDEO |= {"together": 1, "pixels": (1, 1), "interval": 0.0}
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


@both
def test_times_of_frames_that_are_seen_together(form):
    """`(arange(times) * interval).long()`, as get_vision_position_ids of Qwen2.5-VL."""
    videos = module(form, "multimodal.families.videos")
    positions = module(form, "multimodal.families.positions")
    rule = {**VIDEO, "rate": 0.0, "together": 2, "interval": 4.0}
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
