"""Writes tests/conformance/picture_prompts.json with transformers 5.24, torch 2.13 and torchvision
0.28, whose processors of vision-language models need it.

    python tests/conformance/make_picture_prompts.py
"""

import json
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

SIZES = [(40, 40), (3, 120), (130, 64), (65, 129), (200, 90), (100, 333)]
SPECIAL = {
    "Idefics3": ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"],
    "Lfm2Vl": ["<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"],
    "Pixtral": ["[IMG]", "[IMG_BREAK]", "[IMG_END]"],
    "Gemma3": ["<start_of_image>", "<image_soft_token>", "<end_of_image>"],
    "Janus": ["<image_placeholder>", "<begin_of_image>", "<end_of_image>"],
}
NAMED = {
    "Gemma3": {
        "boi_token": "<start_of_image>",
        "image_token": "<image_soft_token>",
        "eoi_token": "<end_of_image>",
    },
    "Janus": {
        "image_token": "<image_placeholder>",
        "boi_token": "<begin_of_image>",
        "eoi_token": "<end_of_image>",
    },
}
TILE = {"height": 32, "width": 32}
# name, class of the processor, its fields, class and fields of the image processor, config.json
CASES = [
    (
        "Idefics3",
        {"image_seq_len": 3},
        ("Idefics3", {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 32}}),
        {"model_type": "idefics3"},
    ),
    (
        "Lfm2Vl",
        {},
        (
            "Lfm2Vl",
            {
                "min_image_tokens": 4,
                "max_image_tokens": 16,
                "encoder_patch_size": 8,
                "tile_size": 64,
            },
        ),
        {"model_type": "lfm2_vl"},
    ),
    (
        "Qwen2VL",
        {},
        ("Qwen2VL", {"size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 20}}),
        {"model_type": "qwen2_vl"},
    ),
    (
        "Pixtral",
        {"patch_size": 8, "spatial_merge_size": 2},
        ("Pixtral", {"size": {"longest_edge": 96}, "patch_size": {"height": 8, "width": 8}}),
        {"model_type": "mistral3"},
    ),
    (
        "Gemma3",
        {"image_seq_length": 4},
        (
            "Gemma3",
            {
                "size": TILE,
                "do_pan_and_scan": True,
                "pan_and_scan_min_crop_size": 30,
                "pan_and_scan_max_num_crops": 3,
                "pan_and_scan_min_ratio_to_activate": 1.2,
            },
        ),
        {"model_type": "gemma3"},
    ),
    (
        "Llava",
        {
            "patch_size": 8,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
        ("CLIP", {"size": {"shortest_edge": 32}, "crop_size": TILE}),
        {"model_type": "llava"},
    ),
    (
        "LlavaOnevision",
        {"num_image_tokens": 16, "vision_aspect_ratio": "anyres_max_2"},
        (
            "LlavaOnevision",
            {
                "size": TILE,
                "image_grid_pinpoints": [[32 * r, 32 * c] for r in (1, 2, 3) for c in (1, 2, 3)],
            },
        ),
        {"model_type": "llava_onevision"},
    ),
    (
        "PaliGemma",
        {},
        ("Siglip", {"size": TILE, "image_seq_length": 5}),
        {"model_type": "paligemma"},
    ),
    ("Janus", {"num_image_tokens": 6}, ("Janus", {"size": TILE}), {"model_type": "janus"}),
]


def tokenizer(name):
    words = Tokenizer(models.WordLevel({"<unk>": 0, "<bos>": 1, "<eos>": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<eos>",
        extra_special_tokens=NAMED.get(name, {}),
    )
    made.add_tokens(SPECIAL.get(name, ["<image>", "<|image_pad|>"]), special_tokens=True)
    return made


def shortened(text):
    """A text whose repeated tokens are numbers: parts, and [token, how often]."""
    parts = text.replace("<", "\0<").replace("[", "\0[").split("\0")
    runs = [(part, len(list(group))) for part, group in groupby(p for p in parts if p)]
    return [[part, count] for part, count in runs]


def case(name, fields, image, config):
    kind, options = image
    made_image = getattr(transformers, f"{kind}ImageProcessor")(**options)
    words = tokenizer(name)
    videos = {}
    if name in ("Qwen2VL", "LlavaOnevision"):
        videos["video_processor"] = getattr(transformers, f"{name}VideoProcessor")()
    processor = getattr(transformers, f"{name}Processor")(made_image, words, **videos, **fields)
    found = []
    for height, width in SIZES:
        pixels = np.zeros((height, width, 3), np.uint8)
        given = (
            [[Image.fromarray(pixels)]]
            if name in ("Idefics3", "LlavaOnevision")
            else [Image.fromarray(pixels)]
        )
        further = {"return_row_col_info": True} if name in ("Idefics3", "Lfm2Vl") else {}
        if name == "Pixtral":
            further["patch_size"] = fields["patch_size"] * fields["spatial_merge_size"]
        inputs = made_image(given, return_tensors="pt", **further)
        more = {"use_image_special_tokens": True} if name == "Lfm2Vl" else {}
        text = processor.replace_image_token(inputs, 0, **more)
        found.append({"size": [height, width], "text": shortened(text)})
    return {
        "name": name,
        "config": config,
        "processor": fields,
        "image": {"image_processor_type": f"{kind}ImageProcessor", **options},
        "tokenizer": {"bos_token": "<bos>", **NAMED.get(name, {})},
        "pictures": found,
    }


def positions():
    """get_rope_index of prompts: (tokens of text, grid of a picture before merging)."""
    out = []
    for parts in ([3], [2, (4, 6), 5], [(2, 2), 1, (8, 2), (2, 10)], [4, (6, 4)]):
        types, grids = [], []
        for part in parts:
            if isinstance(part, int):
                types += [0] * part
            else:
                types += [1] * (part[0] * part[1] // 4)
                grids.append([1, *part])
                types += [0]  # vision_end
        me = SimpleNamespace(
            config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2))
        )
        me.get_vision_position_ids = Qwen2VLModel.get_vision_position_ids.__get__(me)
        ids = torch.tensor([types])
        grid = torch.tensor(grids) if grids else None
        made, delta = Qwen2VLModel.get_rope_index(me, ids, ids, grid)
        out.append(
            {
                "types": types,
                "grids": [[1, h // 2, w // 2] for _, h, w in grids],
                "positions": made[:, 0].tolist(),
                "delta": int(delta[0, 0]),
            }
        )
    return out


PIECES = [
    "cat",
    "a dog",
    " two\nlines",
    "caf\u00e9",
    "<sep>",
    "<poly>",
    "</poly>",
    "</s>",
    "<pad>",
    "an <od> x",
    "<",
    "it",
]
TASKS = [
    *(
        "<OD>",
        "<OCR_WITH_REGION>",
        "<REGION_PROPOSAL>",
        "<CAPTION_TO_PHRASE_GROUNDING>",
        "<CAPTION>",
    ),
    *("<REFERRING_EXPRESSION_SEGMENTATION>", "<OPEN_VOCABULARY_DETECTION>"),
]


def places():
    """post_process_generation of Florence-2 on random texts."""
    from transformers.models.florence2.processing_florence2 import (
        Florence2PostProcessor,
        Florence2Processor,
    )

    kinds = [
        "ocr",
        "phrase_grounding",
        "pure_text",
        "description_with_bboxes",
        "polygons",
        "bboxes",
    ]
    config = {kind: {} for kind in [*kinds, "description_with_bboxes_or_polygons"]}
    config["phrase_grounding"]["banned_grounding_tokens"] = ["it"]
    image = SimpleNamespace(image_seq_length=3, model_input_names=[])
    words = SimpleNamespace(all_special_tokens=[], image_token="<image>", image_token_id=1)
    processor = Florence2Processor.__new__(Florence2Processor)
    try:
        processor.__init__(image, words, post_processor_config=config)
    except Exception:  # the base class checks the types of both; what is needed is set before
        assert isinstance(processor.post_processor, Florence2PostProcessor)
    rng = np.random.default_rng(5)
    out = []
    for task in TASKS:
        for _ in range(14):
            text = ""
            for _ in range(rng.integers(1, 7)):
                text += PIECES[rng.integers(len(PIECES))]
                count = int(rng.choice([0, 2, 3, 4, 5, 8, 9, 8, 4]))
                text += "".join(f"<loc_{i}>" for i in rng.integers(0, 1000, count))
            size = [int(x) for x in rng.integers(1, 700, 2)]
            found = processor.post_process_generation(text, task=task, image_size=size[::-1])
            out.append({"task": task, "text": text, "size": size, "found": found})
    return {"config": config, "prompts": prompts(processor), "cases": out}


def prompts(processor):
    """Prompts of each task."""
    fixed = list(processor.task_prompts_without_inputs)
    given = [f"{task}a cat" for task in processor.task_prompts_with_input]
    return [[text, *processor._construct_prompts(text)] for text in [*fixed, *given, "What is it?"]]


def main():
    made = {"pictures": [case(*c) for c in CASES], "positions": positions(), "places": places()}
    path = Path(__file__).with_name("picture_prompts.json")
    lines = ",\n".join(json.dumps(c) for c in made["pictures"])
    rest = ",\n".join(json.dumps(c) for c in made["positions"])
    found = json.dumps(made["places"])
    path.write_text(
        f'{{"pictures": [\n{lines}\n],\n"positions": [\n{rest}\n],\n"places": {found}}}\n'
    )


if __name__ == "__main__":
    main()
