"""Processors of vision-language models give the numbers of transformers' own, which use Pillow, for
pictures of any size.
"""

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
transformers = pytest.importorskip("transformers")

from edgewise.compiler.processors.images.vision import (  # noqa: E402
    VisionDescription,
    is_vision_config,
    read_vision,
)
from edgewise.errors import InputError  # noqa: E402
from edgewise.host.pipelines.images.vision import VisionProcessor  # noqa: E402
from edgewise.logic.images.views import further_inputs  # noqa: E402

from tests.logic.forms import both, module  # noqa: E402

# Height and width: tiny, long, wide, square, just above and below a tile.
SIZES = [(1, 1), (3, 200), (30, 1000), (1000, 30), (64, 64), (65, 129), (333, 500), (211, 210)]
CASES = [
    (
        "Idefics3ImageProcessor",
        {"size": {"longest_edge": 256}, "max_image_size": {"longest_edge": 64}},
        5,
    ),
    (
        "SmolVLMImageProcessor",
        {
            "size": {"longest_edge": 64},
            "max_image_size": {"longest_edge": 64},
            "do_image_splitting": False,
            "resample": 2,
        },
        5,
    ),
    ("Idefics3ImageProcessor", {"do_resize": False, "max_image_size": {"longest_edge": 100}}, 5),
    ("Qwen2VLImageProcessor", {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 64}, 2),
    (
        "Qwen2VLImageProcessor",
        {
            "min_pixels": 64 * 64,
            "max_pixels": 128 * 512,
            "patch_size": 16,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
        2,
    ),
    ("Qwen2VLImageProcessor", {"patch_size": 4, "merge_size": 1, "temporal_patch_size": 1}, 2),
    (
        "Glm4vImageProcessor",
        {"size": {"shortest_edge": 112 * 112, "longest_edge": 28 * 28 * 61}},
        2,
    ),
    ("Glm4vImageProcessor", {"patch_size": 4, "merge_size": 1, "temporal_patch_size": 1}, 2),
    (
        "Gemma3ImageProcessor",
        {
            "size": {"height": 56, "width": 56},
            "do_pan_and_scan": True,
            "pan_and_scan_min_crop_size": 40,
            "pan_and_scan_max_num_crops": 4,
            "pan_and_scan_min_ratio_to_activate": 1.2,
        },
        4,
    ),
    ("Gemma3ImageProcessor", {"size": {"height": 40, "width": 56}, "resample": 3}, 4),
    (
        "PixtralImageProcessor",
        {"size": {"longest_edge": 256}, "patch_size": {"height": 8, "width": 8}},
        4,
    ),
    (
        "LlavaOnevisionImageProcessor",
        {
            "size": {"height": 32, "width": 32},
            "image_grid_pinpoints": [[32 * a, 32 * b] for a in (1, 2, 3) for b in (1, 2, 4)],
        },
        5,
    ),
    (
        "LlavaImageProcessor",
        {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, "do_pad": True},
        4,
    ),
    ("JanusImageProcessor", {"size": {"height": 64, "width": 64}}, 4),
    ("SiglipImageProcessor", {"size": {"height": 56, "width": 56}}, 4),
]

FURTHER = ("image_grid_thw", "pixel_attention_mask", "image_sizes")


def picture(height, width, seed=0):
    """A picture with edges and gradients."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(height // 8, 1), max(width // 8, 1), 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.BICUBIC)


def reference(kind, fields):
    """transformers' processor; without a word, it takes a picture of 3 rows for 3 channels."""
    made = getattr(transformers, kind)(**fields)
    return made, lambda *args, **options: made(*args, input_data_format="channels_last", **options)


def names(case):
    kind, fields, _ = case
    return f"{kind}-{'-'.join(fields)}"


@pytest.mark.parametrize("case", CASES, ids=names)
def test_numbers(case):
    kind, fields, rank = case
    made, theirs = reference(kind, fields)
    config = {**made.to_dict(), **fields, "image_processor_type": f"{kind}Fast"}
    ours = VisionProcessor(config)
    nested = "Idefics3" in kind or "SmolVLM" in kind
    # Janus' sizes are rounded since transformers 5, as here, and were cut before.
    # GLM's take sides below a square of patches since 5.
    for size in SIZES[:5] if "Janus" in kind else SIZES[2:] if "Glm" in kind else SIZES:
        image = picture(*size)
        wanted = theirs([[image]] if nested else [image], return_tensors="np")
        found, what = ours(image, rank)
        assert list(found.shape) == list(wanted["pixel_values"].shape), size
        worst = abs(np.asarray(found) - wanted["pixel_values"]).max()
        assert worst < 3e-5, (size, worst)
        others = [n for n in wanted if n in FURTHER]
        for further in further_inputs(others, what):
            if further.name == "image_sizes":
                assert [value for value, _ in further.runs] == list(wanted["image_sizes"][0])
                continue
            values = [np.full(count, value) for value, count in further.runs]
            given = np.concatenate(values).reshape(further.dims)
            assert np.array_equal(given, wanted[further.name]), further.name


@both
@pytest.mark.parametrize("case", CASES, ids=names)
def test_views(form, case):
    """Rows and columns of tiles, and grids of patches."""
    kind, fields, _ = case
    _, theirs = reference(kind, fields)
    rule = read_vision({**fields, "image_processor_type": kind}).rule
    views = module(form, "images.views")
    for size in SIZES:
        what = views.seen(rule, *size)
        image = picture(*size)
        if "Qwen" in kind:
            wanted = theirs([image])["image_grid_thw"][0]
            (view,) = what.views
            high, wide = what.piece
            assert [1, view.height // high, view.width // wide] == list(wanted)
        elif "Idefics3" in kind or "SmolVLM" in kind:
            wanted = theirs([[image]], return_row_col_info=True)
            assert [what.rows, what.columns] == [wanted["rows"][0][0], wanted["cols"][0][0]]
        assert views.count_pieces(what) == sum(len(views.pieces(what, v)) for v in what.views)


@both
def test_pictures_that_are_refused(form):
    views = module(form, "images.views")
    qwen = read_vision({"image_processor_type": "Qwen2VLImageProcessor"}).rule
    with pytest.raises(InputError, match="more than 200 times longer"):
        views.seen(qwen, 2, 500)
    with pytest.raises(InputError, match="empty"):
        views.seen(qwen, 0, 5)
    with pytest.raises(InputError, match="no multiples of 28"):
        views.seen({**qwen, "resize": False}, 29, 28)
    with pytest.raises(InputError, match="patches"):
        views.seen({**qwen, "most": 10**8, "patch": 2, "merge": 1}, 4000, 4000)


@both
def test_tiles(form):
    """Of LFM2-VL; transformers has its processor with torchvision alone (make_picture_prompts)."""
    views = module(form, "images.views")
    fields = {
        "min_image_tokens": 4,
        "max_image_tokens": 16,
        "encoder_patch_size": 8,
        "max_tiles": 2,
    }
    config = {"image_processor_type": "Lfm2VlImageProcessorFast", **fields, "tile_size": 64}
    rule = read_vision(config).rule
    what = views.seen(rule, 200, 90)
    assert (what.rows, what.columns, what.room) == (2, 1, 64)
    assert [(v.height, v.width) for v in what.views] == [(64, 64), (64, 64), (80, 32)]
    found = views.further_inputs(["pixel_attention_mask", "spatial_shapes"], what)
    assert found[0].dims == [3, 64]
    assert sum(value * count for value, count in found[0].runs) == 64 + 64 + 40
    assert [value for value, _ in found[1].runs] == [8, 8, 8, 8, 10, 4]
    assert views.pixel_dims("rows", 1, what, 3) == [3, 64, 192]
    with pytest.raises(InputError, match="less long"):
        views.seen(rule, 30, 4000)
    with pytest.raises(InputError, match="tile_size"):
        read_vision({**config, "tile_size": 60})


def test_room():
    """Each view is filled up with zeros, after its pixels."""
    fields = {
        "min_image_tokens": 4,
        "max_image_tokens": 16,
        "encoder_patch_size": 8,
        "max_tiles": 2,
    }
    ours = VisionProcessor(
        {"image_processor_type": "Lfm2VlImageProcessor", **fields, "tile_size": 64}
    )
    image = Image.new("RGB", (90, 200), (255, 255, 255))
    values = np.asarray(ours(image, 3)[0])
    assert values.shape == (3, 64, 192)
    assert (values[:2] == 1).all() and (values[2, :40] == 1).all() and (values[2, 40:] == 0).all()


def test_kinds_of_pictures():
    """Pictures with alpha, of shades and of a palette are read as red, green and blue."""
    ours = VisionProcessor({"image_processor_type": "Qwen2VLImageProcessor"})
    theirs = transformers.Qwen2VLImageProcessor()
    for mode in ("L", "P", "1", "CMYK"):
        image = picture(70, 61).convert(mode)
        wanted = theirs([image], return_tensors="np")["pixel_values"]
        assert abs(np.asarray(ours(image)[0]) - wanted).max() < 3e-5, mode
    rgba = picture(70, 61).convert("RGBA")
    assert np.array_equal(np.asarray(ours(rgba)[0]), np.asarray(ours(picture(70, 61))[0]))


def test_configurations():
    """A description goes through JSON; processor_config.json has one inside; errors name fields."""
    config = {"image_processor_type": "Qwen2VLImageProcessorFast", "data_format": "channels_first"}
    described = read_vision(config)
    assert VisionDescription.from_dict(described.to_dict()) == described
    assert (
        read_vision({"processor_class": "Qwen2VLProcessor", "image_processor": config}) == described
    )
    limits = read_vision({**config, "min_pixels": 4096, "max_pixels": 65536})
    size = {"shortest_edge": 4096, "longest_edge": 65536}  # transformers 4.57 does not read it
    assert read_vision({**config, "size": size}) == limits
    assert is_vision_config(config)
    florence = {"image_processor_type": "CLIPImageProcessor", "image_seq_length": 577}
    florence |= {"task_prompts_without_inputs": {"<OCR>": "What?"}, "size": 64}
    assert read_vision(florence).rule["rule"] == "whole"
    janus = {"image_processor_type": "VLMImageProcessor", "background_color": [127, 127, 127]}
    (resize, pad) = read_vision({**janus, "image_size": 384, "min_size": 14}).rule["steps"]
    assert (resize["size"], resize["least"], pad["color"]) == (384, 14, [127, 127, 127])
    assert not is_vision_config({"image_processor_type": "ViTImageProcessor"})
    for fields, name in [
        ({"patch_size": 0}, "patch_size"),
        ({"size": 3}, "size"),
        ({"max_pixels": "many"}, "max_pixels"),
        ({"wings": 2}, "wings"),
    ]:
        with pytest.raises(InputError, match=name):
            read_vision({**config, **fields})
    with pytest.raises(InputError, match="not the size of a square"):
        read_vision({"image_processor_type": "Idefics3ImageProcessor", "max_image_size": [64, 32]})
    with pytest.raises(InputError, match="not a processor of vision-language models"):
        VisionProcessor({"image_processor_type": "DetrImageProcessor"})
