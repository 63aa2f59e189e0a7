"""Adds transformers' answers about videos (videos.json) to tests/multimodal/glm_ocr and qwen3_5.
Needs transformers 5 and torchvision (made with 5.24.0, torch 2.13.0, torchvision 0.28.0):

    python -m tests.multimodal.make_videos
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.video_utils import VideoMetadata

from .asking import QUESTION, pictures
from .make_ocr import GLM, glm
from .make_qwen3_5 import SPECIAL, made
from .tiny import tokenizer

HERE = Path(__file__).parent
CASES: list[tuple[int, float | None]] = [(2, None), (5, 1.0), (7, 3.0), (40, 8.0)]
"""Frames, and how many a second has."""
FRAME = (96, 64)
"""Width and height of a frame: no limit of the tests' processors changes it."""
LIMITS = {"shortest_edge": 64 * 64, "longest_edge": 1 << 24}


def frames(count: int) -> list[Any]:
    """Frames of one size."""
    return [one.resize(FRAME) for one in pictures(count)]


def watched(model: Any, processor: Any, words: Any, text: str, case: Any, ends: str) -> list[int]:
    """Token ids of a greedy answer to a question about a video, prompt included.

    Args:
        model, processor, words: with the video processor, and the tokenizer.
        text: of the template; `ends` stands for the video.
        case: of CASES.
    """
    count, rate = case
    metadata = VideoMetadata(
        total_num_frames=count,
        fps=rate,
        duration=None if rate is None else count / rate,
        frames_indices=list(range(count)),
    )
    video = torch.stack(
        [torch.tensor(bytearray(one.tobytes())).view(64, 96, 3) for one in frames(count)]
    ).permute(0, 3, 1, 2)
    of = processor.video_processor(
        [video],
        video_metadata=[metadata],
        do_sample_frames=rate is not None,
        return_metadata=True,
        return_tensors="pt",
    )
    part = processor.replace_video_token(of, 0)
    ids = words(text.replace(ends, part), return_tensors="pt", add_special_tokens=False).input_ids
    token = processor.video_token if "Qwen" in type(processor).__name__ else processor.image_token
    kinds = 2 * (ids == words.convert_tokens_to_ids(token)).int()
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=kinds,
        pixel_values_videos=of["pixel_values_videos"],
        video_grid_thw=of["video_grid_thw"],
        max_new_tokens=10,
        do_sample=False,
    )
    return [int(i) for i in out[0]]


def qwen() -> tuple[Any, Any, Any, str]:
    """Qwen3.5: (model, processor, tokenizer, what stands for a video)"""
    words = tokenizer(SPECIAL, "")
    model = made(words)
    for name, value in {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}.items():
        setattr(model.generation_config, name, value)
    images = transformers.Qwen2VLImageProcessorPil(patch_size=8)
    colors = {"image_mean": images.image_mean, "image_std": images.image_std}
    videos = transformers.Qwen3VLVideoProcessor(patch_size=8, size=LIMITS, **colors)
    processor = transformers.Qwen3VLProcessor(images, words, videos)
    return model, processor, words, SPECIAL[2] + SPECIAL[1] + SPECIAL[3]


def glm_ocr() -> tuple[Any, Any, Any, str]:
    """GLM-OCR: (model, processor, tokenizer, what stands for a video)"""
    with tempfile.TemporaryDirectory() as folder:
        model = glm(Path(folder))
    words = model.processor.tokenizer
    videos = transformers.Glm46VVideoProcessor(patch_size=16, size=LIMITS)
    processor = transformers.Glm46VProcessor(model.processor.image_processor, words, videos)
    return model.model, processor, words, GLM[1]


def main() -> None:
    for name, make in {"qwen3_5": qwen, "glm_ocr": glm_ocr}.items():
        model, processor, words, ends = make()
        template = (HERE / name / "chat_template.jinja").read_text()
        video = template.replace("'image'", "'video'")
        for token in {SPECIAL[2] + SPECIAL[0] + SPECIAL[3], GLM[2] + GLM[0] + GLM[3]}:
            video = video.replace(token, ends)
        assert video.count(ends) == 1
        chat = [{"role": "user", "content": [{"type": "video"}, QUESTION]}]
        text = words.apply_chat_template(
            chat, chat_template=video, tokenize=False, add_generation_prompt=True
        )
        answers = [watched(model, processor, words, text, case, ends) for case in CASES]
        found = {"template": video, "limits": LIMITS, "cases": CASES, "answers": answers}
        (HERE / name / "videos.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
