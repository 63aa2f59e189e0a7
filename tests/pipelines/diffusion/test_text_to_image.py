"""text-to-image on a tiny model in the folders of optimum, compared with ONNX Runtime."""

import json
import os
import shutil
import warnings
from pathlib import Path

import edgewise
import numpy as np
import pytest
from edgewise.cli import main
from edgewise.compiler.task_package.graphs import folders_of
from edgewise.compiler.tokenizers.clip import clip_files
from edgewise.errors import InputError, ModelError, TokenizerError, UnsupportedOp
from edgewise.host.session.open import folder_files
from edgewise.onnx import FileSource
from edgewise.package import Package
from edgewise.task_package import compile_task
from edgewise.text import Tokenizer

from tests.pipelines.diffusion import tiny_diffusion as tiny

pytest.importorskip("transformers")
REAL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere")) / "tiny-random-sd"
DDIM = {"_class_name": "DDIMScheduler", "set_alpha_to_one": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("diffusion"))


@pytest.fixture(scope="module")
def pipe(folder):
    with edgewise.pipeline("text-to-image", str(folder)) as made:
        yield made


@pytest.fixture(scope="module")
def latents():
    return np.random.default_rng(2).normal(size=[1, 4, 8, 8]).astype("f")


def copy(folder, to):
    return Path(shutil.copytree(folder, to, dirs_exist_ok=True))


def edit(file, **fields):
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def pixels(image):
    return np.asarray(image).astype(int)


@pytest.mark.family("Stable Diffusion", exporter="torch")
def test_equals_onnxruntime_with_the_formulas_of_ddim(pipe, folder, latents):
    call = {
        "negative_prompt": "a dog", "num_inference_steps": 4, "latents": latents, "scheduler": DDIM
    }  # fmt: skip
    expected, picture = tiny.reference(folder, "the red cat", "a dog", latents, 4, 7.5)
    result = pipe("the red cat", **call, output_type="latent")
    np.testing.assert_allclose(result.images, expected, atol=1e-4)
    result = pipe("the red cat", **call)
    assert np.abs(pixels(result["images"][0]) - picture.astype(int)).max() <= 1
    assert result.nsfw_content_detected is None
    images, found = pipe("the red cat", **call, output_type="np", return_dict=False)
    assert images.shape == (1, 64, 64, 3) and images.dtype == np.float32 and found is None
    assert np.abs(images[0] * 255 - picture).max() <= 1


@pytest.mark.skipif(not REAL.exists(), reason="EDGEWISE_REAL has no tiny-random-sd")
def test_layout_of_stable_diffusion():
    start = np.random.default_rng(0).normal(size=[1, 4, 32, 32]).astype("f")
    expected, picture = tiny.reference(REAL, "a photo of a cat", "", start, 3, 7.5)
    with edgewise.pipeline("text-to-image", str(REAL), scheduler=DDIM) as pipe:
        call = {"num_inference_steps": 3, "latents": start}
        made = pipe("a photo of a cat", **call, output_type="latent").images
        np.testing.assert_allclose(made, expected, atol=1e-4)
        assert np.abs(pixels(pipe("a photo of a cat", **call).images[0]) - picture).max() <= 1


def test_seeds_give_pictures_again(pipe):
    several = pipe(["the cat", "a dog"], num_images_per_prompt=2, num_inference_steps=2, seed=5)
    assert several.seeds == [5, 6, 7, 8] and len(several.images) == 4
    one = pipe("a dog", num_inference_steps=2, seed=8)
    assert (pixels(one.images[0]) == pixels(several.images[3])).all()
    listed = pipe("a dog", num_images_per_prompt=2, num_inference_steps=2, seed=[8, 3])
    assert (pixels(listed.images[0]) == pixels(one.images[0])).all()
    ancestral = {"num_inference_steps": 3, "scheduler": "EulerAncestralDiscreteScheduler"}
    noisy = [pipe("a dog", seed=seed, **ancestral).images[0] for seed in (1, 1, 2)]
    assert (pixels(noisy[0]) == pixels(noisy[1])).all() and (
        pixels(noisy[0]) != pixels(noisy[2])
    ).any()
    drawn = [pipe("a dog", num_inference_steps=1).seeds[0] for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_generators_draw_what_torch_draws(pipe, folder):
    torch = pytest.importorskip("torch")
    start = torch.randn([1, 4, 8, 8], generator=torch.Generator().manual_seed(1)).numpy()
    expected, _ = tiny.reference(folder, "the cat", "", start, 2, 7.5)
    call = {"num_inference_steps": 2, "scheduler": DDIM, "output_type": "latent"}
    result = pipe("the cat", generator=torch.Generator().manual_seed(1), **call)
    np.testing.assert_allclose(result.images, expected, atol=1e-4)
    assert result.seeds is None


def test_vectors_instead_of_prompts(pipe, latents):
    call = {"num_inference_steps": 2, "latents": latents, "output_type": "latent"}
    expected = pipe("the cat", negative_prompt="a dog", **call).images
    with pipe.part("text_encoder") as part:
        rows = [pipe._encoded(part, text) for text in ("the cat", "a dog")]
    given = [np.array(numbers, "f").reshape(1, *shape) for shape, numbers, _ in rows]
    made = pipe(prompt_embeds=given[0], negative_prompt_embeds=given[1], **call).images
    np.testing.assert_array_equal(made, expected)


def test_guidance(pipe, latents):
    call = {"num_inference_steps": 1, "latents": latents, "scheduler": DDIM}
    made = {}
    for name, options in {
        "none": {"guidance_scale": 1.0},
        "strong": {"guidance_scale": 7.5},
        "rescaled": {"guidance_scale": 7.5, "guidance_rescale": 0.7},
    }.items():
        made[name] = pipe("the cat", output_type="latent", **call, **options).images
    without = pipe("", guidance_scale=0, output_type="latent", **call).images
    # one step of DDIM is linear in the model's output
    np.testing.assert_allclose(made["strong"], without + 7.5 * (made["none"] - without), atol=1e-4)
    alphas = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
    at, end = alphas[1], alphas[0]
    factor = (1 - end) ** 0.5 - (end / at * (1 - at)) ** 0.5
    outputs = {k: (v - (end / at) ** 0.5 * latents) / factor for k, v in made.items()}
    ratio = outputs["none"].std(ddof=1) / outputs["strong"].std(ddof=1)
    expected = outputs["strong"] * (0.7 * ratio + 0.3)
    np.testing.assert_allclose(outputs["rescaled"], expected, atol=0.02)


def test_image_to_image(pipe, folder):
    onnxruntime = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    picture = rng.integers(0, 256, [64, 48, 3], dtype=np.uint8)
    generator = torch.Generator().manual_seed(4)
    call = {"num_inference_steps": 4, "strength": 0.5, "output_type": "latent", "scheduler": DDIM}
    seen = []
    made = pipe(
        "the cat", image=picture, generator=torch.Generator().manual_seed(4), guidance_scale=1.0,
        callback_on_step_end=lambda p, i, t, tensors: seen.append(t), **call,
    ).images  # fmt: skip
    assert seen == [251.0, 1.0] and made.shape == (1, 4, 8, 6)
    run = onnxruntime.InferenceSession(folder / "vae_encoder/model.onnx").run
    sample = (picture.astype("f") / 255 * 2 - 1).transpose(2, 0, 1)[None]
    mean, log = np.split(run(None, {"sample": sample})[0], 2, axis=1)
    drawn = [torch.randn(mean.shape, generator=generator).numpy() for _ in range(2)]
    start = tiny.SCALE * (mean + np.exp(np.clip(log, -30, 20) / 2) * drawn[0])
    alphas = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
    start = alphas[251] ** 0.5 * start + (1 - alphas[251]) ** 0.5 * drawn[1]
    rest = pipe(
        "the cat", latents=start, guidance_scale=1.0, num_inference_steps=4, height=64, width=48,
        scheduler=DDIM, output_type="latent", callback_on_step_end=_from(2, start),
    ).images  # fmt: skip
    np.testing.assert_allclose(made, rest, atol=1e-4)
    small = pipe("the cat", image=picture, height=32, width=35, num_inference_steps=2, seed=1)
    assert small.images[0].size == (32, 32)


def _from(first, latents):
    """A callback that puts latents before a step."""
    return lambda pipe, i, t, tensors: {"latents": latents} if i == first - 1 else {}


def test_callbacks_previews_and_interruption(pipe, latents):
    seen = []

    def callback(made, step, timestep, tensors):
        seen.append((step, timestep, tensors["latents"].shape, made.preview(tensors["denoised"])))
        made.interrupted = step == 2

    names = ["latents", "denoised", "prompt_embeds"]
    call = {"callback_on_step_end": callback, "callback_on_step_end_tensor_inputs": names}
    pipe("the cat", num_inference_steps=8, latents=latents, **call)
    assert [s[:3] for s in seen] == [(i, t, (1, 4, 8, 8)) for i, t in enumerate([876, 751, 751])]
    assert seen[0][3][0].size == (8, 8)

    def failing(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipe("the cat", num_inference_steps=2, callback_on_step_end=failing)
    assert len(pipe("the cat", num_inference_steps=1).images) == 1


@pytest.mark.parametrize("what", ["a call", "close()"])
def test_callbacks_cannot_use_the_parts(pipe, what):
    def nested(p, i, t, tensors):
        p.close() if what == "close()" else p("a dog", num_inference_steps=1)

    with pytest.raises(InputError, match="within a callback"):
        pipe("the cat", num_inference_steps=2, callback_on_step_end=nested)
    assert pipe("the cat", num_inference_steps=1).images


def test_pictures_that_are_too_large(pipe):
    wide = np.zeros((8, 1 << 16, 3), np.uint8)
    for size in ({"height": 4096}, {"height": 1 << 12, "width": 1 << 13}):
        with pytest.raises(InputError, match="too large"):
            pipe("the cat", image=wide, **size)


def test_one_part_is_in_memory_at_a_time(pipe, folder, monkeypatch):
    opened = []
    original = type(pipe).part

    def part(self, name):
        opened.append((name, sorted(self.sessions)))
        return original(self, name)

    monkeypatch.setattr(type(pipe), "part", part)
    pipe("the cat", num_inference_steps=1)
    assert opened == [("text_encoder", []), ("unet", []), ("vae_decoder", [])]
    assert not pipe.sessions
    with edgewise.pipeline("text-to-image", str(folder), offload=False) as kept:
        kept("the cat", num_inference_steps=1)
        assert len(kept.sessions) == 3


def test_other_types_and_shapes_of_inputs(folder, tmp_path, latents):
    call = {"num_inference_steps": 3, "latents": latents, "output_type": "latent"}

    def made(path, **options):
        with edgewise.pipeline("text-to-image", str(path), **options) as pipe:
            return pipe("the cat", **call).images

    expected = made(folder)
    other = copy(folder, tmp_path / "other")
    tiny.make_unet(other / "unet/model.onnx", timestep=(tiny.I64, [1]))
    np.testing.assert_allclose(made(other), expected, atol=1e-5)
    tiny.make_unet(other / "unet/model.onnx", timestep=(tiny.F32, [1]), batch=2)
    np.testing.assert_allclose(made(other), expected, atol=1e-5)
    tiny.make_unet(other / "unet/model_fp16.onnx", tiny.F16)
    half = made(other, dtype={"unet": "fp16"})
    assert 0 < np.abs(half - expected).max() < 0.1


def test_distilled_guidance_of_latent_consistency_models(folder, tmp_path, latents):
    other = copy(folder, tmp_path / "lcm")
    edit(other / "model_index.json", _class_name="LatentConsistencyModelPipeline")
    edit(other / "unet/config.json", time_cond_proj_dim=16)
    edit(other / "scheduler/scheduler_config.json", _class_name="LCMScheduler")
    tiny.make_unet(other / "unet/model.onnx", cond=16)
    with edgewise.pipeline("text-to-image", str(other)) as pipe:
        times = []
        call = {"callback_on_step_end": lambda p, i, t, k: times.append(t), "latents": latents}
        pipe("the cat", seed=1, **call)
        assert times == [999.0, 759.0, 499.0, 259.0]
        angles = (5.0 - 1) * 1000 * np.exp(-np.log(10000) / 7 * np.arange(8))
        embedding = np.concatenate([np.sin(angles), np.cos(angles)])
        from edgewise.logic.diffusion.guidance import scale_embedding

        np.testing.assert_allclose(scale_embedding(5.0, 16), embedding, rtol=1e-9)
        images = [
            pipe("the cat", seed=1, guidance_scale=g, output_type="latent", latents=latents).images
            for g in (1.5, 8.5)
        ]
        assert np.abs(images[0] - images[1]).max() > 1e-3


def test_safety_checker(folder, tmp_path):
    other = copy(folder, tmp_path / "safe")
    call = {"num_inference_steps": 2, "seed": 1, "num_images_per_prompt": 4}
    with edgewise.pipeline("text-to-image", str(other)) as pipe:
        plain = pipe("the cat", **call)
    assert plain.nsfw_content_detected is None
    bright = [pixels(image).mean() for image in plain.images]
    middle = sum(sorted(bright)[1:3]) / 2
    tiny.make_safety(other, middle / 127.5 - 1)
    with edgewise.pipeline("text-to-image", str(other)) as pipe:
        result = pipe("the cat", **call)
    assert result.nsfw_content_detected == [b > middle for b in bright]
    for unsafe, image, before in zip(result.nsfw_content_detected, result.images, plain.images):
        assert (pixels(image) == (0 if unsafe else pixels(before))).all()
    with edgewise.pipeline("text-to-image", str(other), safety_checker=False) as pipe:
        assert pipe("the cat", **call).nsfw_content_detected is None


def test_a_missing_safety_checker_is_announced(folder, tmp_path):
    other = copy(folder, tmp_path / "other")
    edit(other / "model_index.json", requires_safety_checker=True)
    with pytest.warns(UserWarning, match="safety checker"):
        edgewise.pipeline("text-to-image", str(other)).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edgewise.pipeline("text-to-image", str(other), safety_checker=False).close()
    with pytest.raises(InputError, match="safety_checker"):
        edgewise.pipeline("text-to-image", str(other), safety_checker=True)


def test_long_prompts_are_cut_with_a_warning(pipe, latents):
    call = {"num_inference_steps": 1, "latents": latents, "output_type": "latent"}
    with pytest.warns(UserWarning, match="82 tokens"):
        cut = pipe("cat " * 80, **call).images
    np.testing.assert_array_equal(cut, pipe("cat " * 75, **call).images)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"hight": 64}, "hight"),
        ({"height": 63}, "height"),
        ({"height": 1 << 20}, "height"),
        ({"num_inference_steps": 0}, "num_inference_steps"),
        ({"guidance_scale": "7"}, "guidance_scale"),
        ({"guidance_rescale": 2}, "guidance_rescale"),
        ({"eta": -1}, "eta"),
        ({"seed": 1.5}, "seed"),
        ({"seed": [1, 2]}, "seed"),
        ({"generator": 3}, "generator"),
        ({"strength": 0, "image": np.zeros([8, 8, 3], "uint8"), "scheduler": DDIM}, "strength"),
        ({"image": "no.png"}, "no.png"),
        ({"image": np.zeros([4, 4, 3], "uint8")}, "image"),
        ({"latents": np.zeros([1, 4, 8, 9], "f")}, "latents"),
        ({"negative_prompt": ["a", "b"]}, "negative_prompt"),
        ({"negative_prompt_embeds": np.zeros([1, 5, 8], "f")}, "negative_prompt_embeds"),
        ({"prompt_embeds": np.zeros([1, 77, 8], "f")}, "prompt"),
        ({"scheduler": "HeunDiscreteScheduler"}, "HeunDiscreteScheduler"),
        ({"scheduler": 3}, "scheduler"),
        ({"timesteps": [3]}, "timesteps"),
        ({"output_type": "pt"}, "output_type"),
        ({"return_dict": 1}, "return_dict"),
        ({"clip_skip": 1}, "clip_skip"),
        ({"cross_attention_kwargs": {}}, "cross_attention_kwargs"),
        ({"ip_adapter_image": "x"}, "ip_adapter_image"),
        ({"ip_adapter_image_embeds": []}, "ip_adapter_image_embeds"),
        ({"callback": print}, "callback"),
        ({"callback_on_step_end": 3}, "callback_on_step_end"),
        ({"callback_on_step_end_tensor_inputs": ["x"]}, "callback_on_step_end_tensor_inputs"),
    ],
)
def test_options_that_are_not_valid(pipe, options, match):
    with pytest.raises(InputError, match=match):
        pipe("the cat", **options)
    for prompt in (None, 3, [], [3]):
        with pytest.raises(InputError, match="prompt"):
            pipe(prompt)


OF_DIFFUSERS = """prompt height width num_inference_steps timesteps sigmas guidance_scale
    negative_prompt num_images_per_prompt eta generator latents prompt_embeds
    negative_prompt_embeds ip_adapter_image ip_adapter_image_embeds output_type return_dict
    cross_attention_kwargs guidance_rescale clip_skip callback_on_step_end
    callback_on_step_end_tensor_inputs image strength original_inference_steps callback
    callback_steps""".split()


def test_options_of_diffusers_are_known(pipe):
    """The arguments of StableDiffusionPipeline, its image-to-image and of latent consistency models
    in diffusers 0.39.0.
    """
    assert set(OF_DIFFUSERS) <= set(pipe.CALL)


def test_models_of_another_kind_or_damaged(folder, tmp_path):
    other = copy(folder, tmp_path / "other")
    edit(other / "model_index.json", _class_name="StableDiffusion3Pipeline")
    with pytest.raises(UnsupportedOp, match="StableDiffusion3Pipeline"):
        edgewise.pipeline("text-to-image", str(other))
    edit(other / "model_index.json", _class_name="StableDiffusionPipeline")
    (other / "tokenizer/merges.txt").unlink()
    with pytest.raises(TokenizerError, match=r"merges\.txt"):
        edgewise.pipeline("text-to-image", str(other))
    other = copy(folder, other)
    (other / "unet/model.onnx").write_bytes(b"no model")
    with edgewise.pipeline("text-to-image", str(other)) as pipe:
        for _ in range(2):  # it goes on after the error
            with pytest.raises(ModelError):
                pipe("the cat", num_inference_steps=1)
    (other / "unet/model.onnx").unlink()
    with pytest.raises(InputError, match="unet/model"):
        edgewise.pipeline("text-to-image", str(other))
    with pytest.raises(InputError, match="no part 'model'"):
        edgewise.pipeline("text-to-image", str(folder), dtype={"model": "fp16"})


def test_package(folder, tmp_path):
    out = tmp_path / "tiny.edge"
    size = ["--dims", "height=32,width=48"]
    main(["build", "--task", "text-to-image", str(folder), *size, "-o", str(out)])
    package = Package.read(FileSource(str(out)))
    described = package.manifest["processor"]["diffusion"]
    assert described["size"] == [4, 6] and described["scheduler"]["_class_name"] == "PNDMScheduler"
    programs = package.manifest["programs"]
    graphs = ["text_encoder", "unet", "vae_decoder", "vae_encoder", "noise", "picture", "pixels"]
    assert list(programs) == graphs
    assert programs["unet"]["plans"][0]["inputs"]["sample"] == ["float32", [1, 4, 4, 6]]
    tokenizer = Tokenizer.from_files(package.file)
    (ids,) = tiny.reference_ids(folder, "the red cat")
    assert tokenizer.encode("the red cat") == list(ids[:5])
    with pytest.raises(InputError, match="width"):
        compile_task(folder_of(folder), "text-to-image", dims={"width": 65})
    with pytest.raises(InputError, match="depth"):
        compile_task(folder_of(folder), "text-to-image", dims={"depth": 8})


def folder_of(folder):
    return folder_files(str(folder), folders_of("text-to-image"))[0]


TEXTS = [
    "A photo of the red Cat",
    "two  cats,\n and the dog's hat!! 42",
    "Ünïcode café naïve 😀",
    "the <|endoftext|> the",
    "",
    "they're don't x_y 3d " + "a" * 40,
]


@pytest.mark.parametrize("pad", ["<|endoftext|>", "!"])
def test_tokenizer_of_clip(folder, tmp_path, pad):
    from transformers import CLIPTokenizer
    from transformers.models.clip.tokenization_clip import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    words = [*letters, *(c + "</w>" for c in letters), *("".join(m.split()) for m in tiny.MERGES)]
    vocab = {w: i for i, w in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    copy(folder / "tokenizer", tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    edit(tmp_path / "tokenizer_config.json", pad_token=pad)
    theirs = CLIPTokenizer.from_pretrained(tmp_path)

    def read(name):
        path = tmp_path / name
        return path.read_bytes() if path.exists() else None

    ours = Tokenizer.from_files(clip_files(read, "the model"), "the model")
    for text in TEXTS:
        assert ours.encode(text) == theirs(text).input_ids
    assert ours.pad_token_id == theirs.pad_token_id
