"""Image processors give the numbers of transformers' own, which use Pillow."""

import json
import struct
import zlib

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")  # transformers' image processors need it
transformers = pytest.importorskip("transformers")

from edgewise.compiler.processors.images import Description, layout, read_description  # noqa: E402
from edgewise.compiler.processors.images.fixed import with_sizes  # noqa: E402
from edgewise.compiler.processors.images.types import TYPES  # noqa: E402
from edgewise.errors import InputError  # noqa: E402
from edgewise.host.media.pictures import read_picture  # noqa: E402
from edgewise.host.pipelines.images.image_processor import ImageProcessor  # noqa: E402

from tests.conformance.vectors import FOLDER, vectors  # noqa: E402

from .make_saved import picture  # noqa: E402

# Fields that the reference needs to run.
NEEDED = {
    "LayoutLMv3ImageProcessor": {"apply_ocr": False},
    "NougatImageProcessor": {"do_crop_margin": False},
    "ChineseCLIPImageProcessor": {"size": {"height": 224, "width": 224}},
    "SamImageProcessor": {"size": {"longest_edge": 96}, "pad_size": {"height": 96, "width": 96}},
    "EomtImageProcessor": {"size": {"shortest_edge": 96, "longest_edge": 96}, "do_pad": True},
}
# transformers has none with Pillow, or needs SciPy
OURS = {
    "YoloImageProcessor",
    "DINOv3ViTImageProcessor",
    "Owlv2ImageProcessor",
    "RfDetrImageProcessor",
    "Sam2ImageProcessor",
    "Sam3ImageProcessor",
    "VitPoseImageProcessor",  # it needs boxes: test_keypoints.py has its numbers
}
SIZES = [(96, 128), (128, 96), (37, 53), (224, 224), (201, 130)]
# Small sizes, so that the tests take little time, and the branches that defaults do not reach.
CASES = [
    *((name, NEEDED.get(name, {})) for name in TYPES if name not in OURS),
    ("CLIPImageProcessor", {"size": 64, "crop_size": 96}),
    ("CLIPImageProcessor", {"size": {"height": 50, "width": 70}, "resample": 1}),
    ("ViTImageProcessor", {"size": [50, 70], "resample": 0, "image_mean": 0.5, "image_std": 0.5}),
    ("ViTImageProcessor", {"do_resize": False, "do_normalize": False}),
    ("BitImageProcessor", {"do_center_crop": False, "size": {"shortest_edge": 33}}),
    ("ConvNextImageProcessor", {"size": {"shortest_edge": 64}, "crop_pct": 0.875}),
    ("PoolFormerImageProcessor", {"size": {"height": 60, "width": 80}, "crop_pct": 0.95}),
    ("DPTImageProcessor", {"size": 70, "keep_aspect_ratio": True, "ensure_multiple_of": 14}),
    ("DPTImageProcessor", {"size": 50, "do_pad": True, "size_divisor": 32}),
    ("DetrImageProcessor", {"size": {"shortest_edge": 80, "longest_edge": 133}}),
    ("DetrImageProcessor", {"size": 64, "max_size": 99, "pad_size": {"height": 99, "width": 101}}),
    ("DetrImageProcessor", {"size": {"max_height": 60, "max_width": 90}, "do_pad": False}),
    ("DetrImageProcessor", {"size": {"height": 60, "width": 90}}),
    ("YolosImageProcessor", {"size": {"shortest_edge": 80, "longest_edge": 100}}),
    ("MaskFormerImageProcessor", {"size": 64, "max_size": 90, "size_divisor": 16}),
    ("Mask2FormerImageProcessor", {"size": {"height": 60, "width": 64}, "size_divisor": 0}),
    ("ViltImageProcessor", {"size": {"shortest_edge": 64}}),
    ("DonutImageProcessor", {"size": {"height": 100, "width": 80}, "do_align_long_axis": True}),
    ("DonutImageProcessor", {"size": [80, 60], "do_thumbnail": False, "do_pad": False}),
    ("EfficientNetImageProcessor", {"size": 64, "include_top": False, "rescale_offset": True}),
    ("EfficientNetImageProcessor", {"size": 64, "do_center_crop": True, "crop_size": 80}),
    ("PerceiverImageProcessor", {"size": 50, "crop_size": 64}),
    ("Swin2SRImageProcessor", {"size_divisor": 64}),
    ("MobileViTImageProcessor", {"do_flip_channel_order": False}),
    ("EomtImageProcessor", {"size": {"shortest_edge": 64, "longest_edge": 64}, "do_pad": True}),
    ("LevitImageProcessor", {"size": {"shortest_edge": 40}, "crop_size": 40}),
    ("TextNetImageProcessor", {"size": {"shortest_edge": 50}, "do_center_crop": True}),
]
# In packages: type, fields, whether the model has a mask, its only size.
PACKAGED = [
    ("DetrImageProcessor", {"size": {"shortest_edge": 80, "longest_edge": 133}}, True, None),
    ("DetrImageProcessor", {"size": {"shortest_edge": 80, "longest_edge": 133}}, False, (64, 96)),
    ("YolosImageProcessor", {"size": {"shortest_edge": 80, "longest_edge": 100}}, False, None),
    ("MaskFormerImageProcessor", {"size": 64, "max_size": 90, "size_divisor": 32}, True, None),
    ("DPTImageProcessor", {"size": 384, "ensure_multiple_of": 32}, False, None),
    (
        "DPTImageProcessor",
        {"size": 70, "keep_aspect_ratio": True, "ensure_multiple_of": 14},
        False,
        None,
    ),
    ("GLPNImageProcessor", {}, False, None),
    ("ViTImageProcessor", {}, False, None),
]
SMALL = {"size": {"shortest_edge": 96, "longest_edge": 150}}
NAMES = [f"{name}{i}" for i, (name, _) in enumerate(CASES)]


def reference(name, fields):
    """transformers' processor. The DETR family is made small where a case has no size."""
    if "800" in json.dumps(TYPES[name]["size"]) and "size" not in fields:
        fields = {**fields, **SMALL}
    if name in ("DonutImageProcessor", "NougatImageProcessor") and "size" not in fields:
        fields = {**fields, "size": {"height": 128, "width": 96}}
    return getattr(transformers, name)(**fields), fields


@pytest.mark.parametrize(("name", "fields"), CASES, ids=NAMES)
def test_numbers(name, fields):
    theirs, fields = reference(name, fields)
    complete = json.loads(theirs.to_json_string())
    rng = np.random.default_rng(7)
    for config in (complete, {"image_processor_type": name, **fields}):
        ours = ImageProcessor(config)
        for height, width in SIZES:
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            expected = theirs(images=Image.fromarray(pixels), return_tensors="np")
            values = ours(pixels)
            assert set(values) == {*expected} - {"original_sizes", "reshaped_input_sizes"}
            for key in values:
                a, b = np.asarray(values[key]), np.asarray(expected[key])
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, atol=3e-6)
        size = ours.description.size
        assert size is None or size == values["pixel_values"].shape[2:]


def test_numbers_of_torchvision():
    """Processors that the tests cannot run, within a level of 255."""
    found = vectors("image_numbers")
    assert len(found) > 10
    for v in found:
        ours = ImageProcessor(v["config"])
        values = np.asarray(ours(picture(*v["picture"]))["pixel_values"])
        assert list(values.shape) == v["shape"]
        std = np.array(v["config"]["image_std"]).reshape(3, 1, 1)
        levels = np.abs(values - np.reshape(v["values"], v["shape"])) * std * 255
        assert levels.max() <= 1.2 and levels.mean() <= 0.3


@pytest.mark.parametrize("version", ["4.57.6", "5.24.0"])
def test_saved_configurations(version):
    """Every form of a processor writes a file that is read, with the same result as the others."""
    refused = {"apply_ocr", "do_crop_margin"}
    made = {}
    for name, config in vectors("image_configs")[version].items():
        given = {**config, **dict.fromkeys(refused & {*config}, False)}
        plain = name.removesuffix("Fast").removesuffix("Pil")
        made.setdefault(plain, []).append(read_description(given))
    assert len(made) > 40
    for forms in made.values():
        assert all(one.type == forms[0].type for one in forms)


def made_vectors():
    """The contents of image_layouts.json: descriptions, and what they do to pictures."""
    out = []
    more = [
        ("YoloImageProcessor", {"size": {"height": 64, "width": 96}}),
        ("Owlv2ImageProcessor", {"size": {"height": 64, "width": 64}}),
        ("RfDetrImageProcessor", {"size": {"height": 64, "width": 64}}),
    ]
    described = [
        read_description({"image_processor_type": name, **fields})
        for name, fields in [*CASES, *more]
    ]
    for name, fields, masked, only in PACKAGED:
        given = read_description({"image_processor_type": name, **fields})
        described.append(with_sizes(given, masked, only, "")[0])
    for description in described:
        entry = {"description": description.to_dict(), "layouts": []}
        for height, width in [*SIZES, (400, 301)]:
            done = layout(description.steps, height, width)
            entry["layouts"].append(
                {
                    "picture": [height, width],
                    "steps": done.steps,
                    "size": [done.height, done.width],
                    "valid": list(done.valid),
                    "kept": list(done.kept),
                }
            )
        out.append(entry)
    return out


def test_layouts():
    """The vectors that TypeScript reads are those of Python, which `test_numbers` compares with
    transformers. To write them: python -m tests.processors.test_images
    """
    assert vectors("image_layouts") == made_vectors()


@pytest.mark.parametrize("case", PACKAGED, ids=[str(i) for i in range(len(PACKAGED))])
def test_sizes_of_packages(case):
    """Pictures of every shape get one of the sizes; a frame keeps the pixels that transformers'
    processor gives, and its mask.
    """
    name, fields, masked, only = case
    given = read_description({"image_processor_type": name, **fields})
    described, sizes = with_sizes(given, masked, only, "")
    assert len(sizes) <= 8 and (only is None or sizes == [only])
    for height, width in [*SIZES, (400, 301), (90, 400), (61, 33)]:
        done = layout(described.steps, height, width)
        assert (done.height, done.width) in sizes
        before = layout(given.steps, height, width)
        if masked:
            assert done.kept == (before.height, before.width)
            theirs = getattr(transformers, name)(**fields)
            rng = np.random.default_rng(1)
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            pad = {"pad_size": {"height": done.height, "width": done.width}}
            expected = theirs(images=Image.fromarray(pixels), return_tensors="np", **pad)
            values = ImageProcessor(described)(pixels)
            for key, value in values.items():
                np.testing.assert_allclose(np.asarray(value), expected[key], atol=3e-6)
        elif only is None and name != "GLPNImageProcessor" and max(height, width) < 300:
            for a, b in zip((done.height, done.width), (before.height, before.width)):
                assert max(a, b) <= 1.8 * min(a, b)


def test_description_is_json():
    for name, fields in CASES:
        description = read_description({"image_processor_type": name, **fields})
        assert Description.from_dict(json.loads(json.dumps(description.to_dict()))) == description


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"image_processor_type": "EfficientLoFTRImageProcessor"}, "image_processor_type"),
        ({"image_processor_type": "SamImageProcessor", "size": 64}, "longest_edge"),
        ({"image_processor_type": "RfDetrImageProcessor", "resample": 3}, "resample"),
        ({}, "image_processor_type"),
        ({"image_processor_type": "ViTImageProcessor", "do_magic": True}, "do_magic"),
        (
            {"image_processor_type": "ViTImageProcessor", "data_format": "channels_last"},
            "data_format.*channels_last",
        ),
        ({"image_processor_type": "ViTImageProcessor", "size": "large"}, "size"),
        ({"image_processor_type": "ViTImageProcessor", "size": {"depth": 3}}, "size"),
        ({"image_processor_type": "ViTImageProcessor", "size": -1}, "size"),
        ({"image_processor_type": "ViTImageProcessor", "resample": 9}, "resample"),
        ({"image_processor_type": "ViTImageProcessor", "image_mean": [1]}, "image_mean"),
        ({"image_processor_type": "ViTImageProcessor", "image_std": 0}, "image_std"),
        ({"image_processor_type": "ViTImageProcessor", "do_resize": "yes"}, "do_resize"),
        ({"image_processor_type": "NougatImageProcessor"}, "do_crop_margin"),
        ({"image_processor_type": "LayoutLMv3ImageProcessor"}, "apply_ocr"),
        ({"image_processor_type": "FlavaImageProcessor", "return_codebook_pixels": 1}, "codebook"),
    ],
)
def test_unknown_fields(config, field):
    with pytest.raises(InputError, match=field):
        read_description(config)


def test_names_of_types():
    old = read_description({"feature_extractor_type": "ViTFeatureExtractor"})
    assert old == read_description({"image_processor_type": "ViTImageProcessorFast"})


# What `ViTImageProcessorFast().save_pretrained()` of transformers 4.57 adds, as all *Fast do.
FAST = {
    "data_format": "channels_first",
    "input_data_format": None,
    **dict.fromkeys(("device", "disable_grouping", "do_convert_rgb", "pad_size", "return_tensors")),
}


@pytest.mark.parametrize("name", [n for n in TYPES if n not in NEEDED])
def test_fields_of_fast_processors(name):
    plain = read_description({"image_processor_type": name, **NEEDED.get(name, {})})
    assert read_description({"image_processor_type": f"{name}Fast", **FAST}) == plain


def png(height, width, data=b""):
    """A PNG file with a size that its data need not have."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def test_pictures(tmp_path):
    """A PNG gives its pixels, by path, bytes, PIL.Image and array alike."""
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(pixels).save(path)
    for source in (path, str(path), path.read_bytes(), Image.open(path), pixels):
        picture = read_picture(source)
        assert (picture.height, picture.width) == (5, 7)
        assert picture.pixels == pixels.tobytes()
    gray = read_picture(pixels[:, :, 0])
    assert gray.pixels == np.repeat(pixels[:, :, :1], 3, 2).tobytes()
    alpha = np.concatenate([pixels, pixels[:, :, :1]], 2)
    assert read_picture(alpha).pixels == pixels.tobytes()
    assert read_picture(read_picture(pixels)).pixels == pixels.tobytes()


def test_pictures_of_16_bits(tmp_path):
    """Their upper bytes count, as in browsers."""
    values = np.arange(0, 65536, 512, dtype=np.uint16).reshape(8, 16)
    Image.fromarray(values).save(tmp_path / "gray.png")
    big_endian = Image.frombytes("I;16B", (16, 8), values.astype(">u2").tobytes())
    for given in (tmp_path / "gray.png", Image.fromarray(values), big_endian):
        seen = np.frombuffer(read_picture(given).pixels, np.uint8).reshape(8, 16, 3)
        assert (seen == (values >> 8)[..., None]).all()


def test_orientation(tmp_path):
    """Pictures are turned upright."""
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated by 90 degrees, clockwise
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    picture = read_picture(tmp_path / "turned.png")
    assert (picture.height, picture.width) == (3, 2)
    assert picture.pixels == np.rot90(pixels, 3).tobytes()


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"not a picture",
        png(20000, 20000),
        png(4, 4),
        png(4, 4, zlib.compress(b"\0")),
        "no/such/file.png",
        "https://example.org/cat.png",
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 2), np.uint8),
        np.broadcast_to(np.uint8(0), (20000, 1)).reshape(20000, 1)[:0],
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        None,
        7,
    ],
    ids=lambda x: type(x).__name__,
)
def test_bad_pictures(source):
    processor = ImageProcessor({"image_processor_type": "ViTImageProcessor", "size": 8})
    with pytest.raises(InputError):
        processor(source)
    assert processor(np.zeros((3, 3, 3), np.uint8))["pixel_values"].shape == (1, 3, 8, 8)


def test_too_small_for_a_divisor():
    processor = ImageProcessor({"image_processor_type": "GLPNImageProcessor"})
    with pytest.raises(InputError, match="empty"):
        processor(np.zeros((31, 64, 3), np.uint8))


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(entry) for entry in made_vectors())
    (FOLDER / "image_layouts.json").write_text(f"[\n{lines}\n]\n")
