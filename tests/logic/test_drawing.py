"""Options, tokens and the loop of text-to-image, on both forms. Latents are those of diffusers'
schedulers (tests/conformance/diffusion.json).
"""

import numpy as np
import pytest
from edgewise.errors import InputError
from edgewise.logic.diffusion.denoising import Inpainted
from edgewise.logic.diffusion.options import Facts
from edgewise.logic.diffusion.schedulers import Request

from tests.conformance.vectors import vectors
from tests.pipelines.diffusion.make_diffusion import noise, outputs

from .forms import both, module

SD, LCM = "StableDiffusionPipeline", "LatentConsistencyModelPipeline"
DDIM = {
    "_class_name": "DDIMScheduler",
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "set_alpha_to_one": False,
    "steps_offset": 1,
}


def options_of(form, kind=SD, begun=False, masked=False, **given):
    return module(form, "diffusion.options").DrawOptions(given, kind, begun, "", masked)


def times(schedule):
    return [step.timestep for step in schedule.steps]


def facts(cond=None):
    return Facts(SD, {}, (8, 8), 4, 8, 0.18215, 0.0, cond, False)


@both
def test_defaults_are_those_of_diffusers(form):
    plain, lcm = options_of(form), options_of(form, LCM)
    assert (plain.steps, plain.scale, plain.strength, plain.rescale) == (50, 7.5, 0.8, 0)
    assert (lcm.steps, lcm.scale) == (4, 8.5)
    given = options_of(form, LCM, guidance_scale=1, num_inference_steps=None)
    assert (given.steps, given.scale) == (4, 1)
    assert plain.guided(facts()) and not plain.guided(facts(256)) and not given.guided(facts())


@both
def test_image_to_image_leaves_out_the_first_steps(form):
    """get_timesteps of StableDiffusionImg2ImgPipeline: min(int(steps * strength), steps)."""
    for steps, strength, left in ((4, 0.5, 2), (4, 1, 4), (50, 0.8, 40), (3, 0.7, 2)):
        given = {"num_inference_steps": steps, "strength": strength}
        assert len(options_of(form, begun=True, **given).schedule(DDIM).steps) == left
        assert len(options_of(form, **given).schedule(DDIM).steps) == steps
    half = options_of(form, begun=True, num_inference_steps=4, strength=0.5)
    assert times(half.schedule(DDIM)) == [251, 1]
    with pytest.raises(InputError, match="no step is left"):
        options_of(form, begun=True, strength=0).schedule(DDIM)


@both
def test_the_scheduler_of_a_call(form):
    own = options_of(form, num_inference_steps=4)
    assert times(own.schedule(DDIM)) == [751, 501, 251, 1]
    assert times(own.schedule(DDIM, {"timestep_spacing": "trailing"})) == [999, 749, 499, 249]
    given = options_of(form, timesteps=[900, 0], scheduler="LCMScheduler")
    assert times(given.schedule(DDIM, "PNDMScheduler")) == [900, 0]
    with pytest.raises(InputError, match="scheduler"):
        options_of(form, scheduler=3).schedule(DDIM)
    with pytest.raises(InputError, match="HeunDiscreteScheduler"):
        options_of(form, scheduler="HeunDiscreteScheduler").schedule(DDIM)


@both
def test_prompts(form):
    for given, guided, found in (
        ({"prompt": "a"}, True, (["a"], [""], ["a", ""])),
        ({"prompt": "a"}, False, (["a"], None, ["a"])),
        ({"prompt": ["a", "b"], "negative_prompt": "a"}, True, (["a", "b"], ["a"], ["a", "b"])),
        ({"prompt_embeds": 1, "negative_prompt": "n"}, True, (None, ["n"], ["n"])),
        ({"prompt": ["a"], "negative_prompt_embeds": 1}, True, (["a"], None, ["a"])),
    ):
        made = options_of(form, **given).prompts(guided)
        assert (made.prompts, made.negatives, made.texts) == found
    for given, what in (
        ({}, "neither"),
        ({"prompt": "a", "prompt_embeds": 1}, "both"),
        ({"prompt": 3}, "neither a text"),
        ({"prompt": []}, "empty"),
        ({"prompt": ["a", 3]}, "neither a text"),
        ({"prompt": "a", "negative_prompt": ["b", "c"]}, "there are 2"),
        ({"prompt": "a", "negative_prompt": "b", "negative_prompt_embeds": 1}, "as well"),
    ):
        with pytest.raises(InputError, match=what):
            options_of(form, **given).prompts(True)


@both
@pytest.mark.parametrize(
    "name, values",
    [
        ("num_inference_steps", (0, 10001, 2.5, "3", True)),
        ("num_images_per_prompt", (0, 1001)),
        ("guidance_scale", (-1, "7", True, 1e7, float("nan"))),
        ("guidance_rescale", (1.5, -0.1)),
        ("strength", (1.5,)),
        ("eta", (-1,)),
        ("height", (0, 1 << 17, 8.5)),
        ("original_inference_steps", (0, "3")),
        ("timesteps", ([], [1, "2"], 3, [True])),
        ("sigmas", ([], "3", [float("inf")])),
    ],
)
def test_options_that_are_refused(form, name, values):
    for value in values:
        with pytest.raises(InputError, match=rf"at\.{name}"):
            module(form, "diffusion.options").DrawOptions({name: value}, SD, False, "at.")


@both
def test_options_that_do_not_match(form):
    with pytest.raises(InputError, match="too large"):
        options_of(form, height=1 << 13, width=1 << 12)
    with pytest.raises(InputError, match="one of the two"):
        options_of(form, timesteps=[1], sigmas=[1])
    with pytest.raises(InputError, match="one of the two"):
        options_of(form, begun=True, latents=1)
    made = options_of(form)
    made.check_latents([1, 4, 8, 8], [1, 4, 8, 8])
    with pytest.raises(InputError, match=r"\[1, 4, 8\].*Give \[1, 4, 8, 8\]"):
        made.check_latents([1, 4, 8], [1, 4, 8, 8])
    made.check_pictures(2, 4)
    for pictures in (0, 3):
        with pytest.raises(InputError, match="Give 4"):
            made.check_pictures(pictures, 4)


@both
def test_seeds(form):
    assert options_of(form, seed=5).seeds(3) == [5, 6, 7]
    last = 2**53 - 1
    assert options_of(form, seed=last).seeds(2) == [last, last + 1]
    assert options_of(form, seed=[8, 3]).seeds(2) == [8, 3]
    one, other = (options_of(form).seeds(1)[0] for _ in range(2))
    assert one != other
    for seed, what in ((-1, "not a valid seed"), ([1], "there are 1"), ([1, None], "in the list")):
        with pytest.raises(InputError, match=what):
            options_of(form, seed=seed).seeds(2)


@both
def test_tokens_are_padded_and_cut_as_by_transformers(form):
    """padding="max_length", truncation=True of CLIPTokenizer, with 9 as the last token."""
    padded = module(form, "diffusion.options").padded
    short, long = padded([1, 2, 9], 5, 7), padded([1, 2, 3, 4, 5, 9], 4, 7)
    assert (short.ids, short.mask, short.cut) == ([1, 2, 9, 7, 7], [1, 1, 1, 0, 0], 0)
    assert (long.ids, long.mask, long.cut) == ([1, 2, 3, 9], [1] * 4, 6)
    assert padded([1], 2, None).ids == [1, 0]


def run(form, case, images, guided, every=0, **given):
    """(latents of the images, draws, (step, how many are told) of each step)"""
    call = case["call"]
    steps = call.get("steps", len(call.get("timesteps") or call.get("sigmas") or ()))
    schedule_of = module(form, "diffusion.schedulers").schedule_of
    schedule = schedule_of(case["config"], Request(**{**call, "steps": steps}))
    Denoising = module(form, "diffusion.denoising").Denoising
    loop = Denoising(schedule, images, guided, options_of(form, **given), every)
    draws, told, at = [], [], 0
    todo = loop.from_noise(None)
    request = next(todo)
    try:
        while True:
            answer = None
            if request.kind == "draw":
                draws.append((request.image, request.number))
                answer = noise(request.number - 1)
            elif request.kind == "denoise":
                wanted = [(i, n) for i in range(images) for n in ([True, False][not guided :])]
                assert [(r.image, r.negative) for r in request.rows] == wanted
                for row in request.rows:
                    np.testing.assert_allclose(row.sample, case["inputs"][at], atol=1e-3)
                answer = [outputs(at)] * len(request.rows)
            else:
                assert (request.step, request.steps) == (at, len(case["timesteps"]))
                told.append((request.timestep, len(request.expected)))
                at += 1
                answer = False
            request = todo.send(answer)
    except StopIteration as over:
        return over.value, draws, told


@both
@pytest.mark.parametrize("guided", [False, True])
def test_the_loop_makes_the_latents_of_diffusers(form, guided):
    cases = vectors("diffusion")["schedulers"]
    for name in ("DDIMScheduler", "EulerDiscreteScheduler", "PNDMScheduler"):
        case = next(c for c in cases if c["config"]["_class_name"] == name)
        made, draws, told = run(form, case, 2, guided, every=2)
        assert draws == [(0, 0), (1, 0)] and [t for t, _ in told] == case["timesteps"]
        assert [n for _, n in told] == [2 * (i % 2) for i in range(len(told))]
        for row in made:
            np.testing.assert_allclose(row, case["latents"][-1], atol=1e-3)


@both
def test_each_image_draws_its_own_noise(form):
    """Draw n of an image is that of its seed, whatever other images draw."""
    cases = vectors("diffusion")["schedulers"]
    case = next(c for c in cases if c["config"]["_class_name"] == "EulerAncestralDiscreteScheduler")
    made, draws, told = run(form, case, 2, False)
    count = len(draws) // 2
    assert draws == [(image, n) for n in range(count) for image in range(2)] and count > 2
    for row in made:
        np.testing.assert_allclose(row, case["latents"][-1], atol=1e-3)


@both
def test_a_loop_that_begins_with_pictures(form):
    """As the distribution of diffusers' AutoencoderKL, and add_noise of its schedulers."""
    size, rng = 6, np.random.default_rng(3)
    encoded = rng.normal(size=2 * size).astype("f")
    encoded[size] = 40  # is cut to 20
    drawn = rng.normal(size=[2, size]).astype("f")
    options = options_of(form, begun=True, num_inference_steps=4, strength=0.5)
    schedule = options.schedule(DDIM)
    Denoising = module(form, "diffusion.denoising").Denoising
    alpha = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)[251]
    mean, log = encoded[:size], np.clip(encoded[size:], -30, 20)
    for row, draws in ((encoded, 2), (encoded[:size], 1)):
        todo = Denoising(schedule, 1, False, options).from_pictures([row.tolist()], size, 0.5)
        request = next(todo)
        for n in range(draws):
            assert (request.kind, request.number) == ("draw", n)
            request = todo.send(drawn[n].tolist())
        clean = mean + np.exp(log / 2) * drawn[0] if draws == 2 else mean
        wanted = alpha**0.5 * 0.5 * clean + (1 - alpha) ** 0.5 * drawn[draws - 1]
        np.testing.assert_allclose(request.rows[0].sample, wanted, rtol=1e-4, atol=1e-4)


@both
def test_rows_of_a_graph_and_what_the_decoder_takes(form):
    denoising = module(form, "diffusion.denoising")
    assert denoising.groups(3, 2) == [[0, 1], [2, 2]] and denoising.groups(2, 1) == [[0], [1]]
    assert list(denoising.for_decoder([1.0, -2.0], 0.5, 0.25)) == [2.25, -3.75]


@both
def test_masks_are_those_of_pillow(form):
    """VaeImageProcessor: grey of Pillow, half of white and above is 1, the first pixel of each
    latent (torch's nearest).
    """
    from PIL import Image

    masks = module(form, "diffusion.masks")
    pixels = np.random.default_rng(1).integers(0, 256, [16, 24, 3], dtype=np.uint8)
    expected = np.asarray(Image.fromarray(pixels).convert("L")) >= 127.5
    mask = list(masks.mask_of(pixels.reshape(-1).tolist(), 16 * 24))
    assert mask == expected.reshape(-1).astype(int).tolist()
    assert list(masks.latent_mask(mask, 2, 3, 8)) == expected[::8, ::8].reshape(-1).tolist()
    sample = np.random.default_rng(2).normal(size=[3, 16, 24]).astype("f")
    kept = masks.without_masked(sample.reshape(-1).tolist(), mask)
    np.testing.assert_array_equal(np.reshape(kept, sample.shape), sample * (expected < 0.5))


@both
def test_states_of_two_encoders(form):
    encoders = module(form, "diffusion.encoders")
    first, second = np.arange(8.0).reshape(2, 4), np.arange(6.0).reshape(2, 3)
    made = encoders.joined(first.reshape(-1).tolist(), second.reshape(-1).tolist(), 2)
    assert list(made) == np.concatenate([first, second], axis=1).reshape(-1).tolist()
    names = ["last_hidden_state", *(f"hidden_states.{i}" for i in range(13)), "text_embeds"]
    assert encoders.text_outputs(names, True) == ["hidden_states.11", "text_embeds"]
    assert encoders.text_outputs(names[:-1], True) == ["hidden_states.11"]
    assert encoders.text_outputs(names, False) == ["last_hidden_state"]
    assert encoders.text_outputs(["x"], False) == ["x"] and not encoders.text_outputs(["x"], True)


@both
def test_defaults_and_sizes_of_xl(form):
    """Signatures of StableDiffusionXLPipeline, its image-to-image and inpainting."""
    kind = "StableDiffusionXLPipeline"
    make = module(form, "diffusion.options").DrawOptions
    plain, begun = make({}, kind), make({}, kind, True)
    masked = make({}, kind, True, "", True)
    assert (plain.steps, plain.scale) == (50, 5.0)
    assert (begun.scale, begun.strength) == (5.0, 0.3)
    assert (masked.scale, masked.strength) == (7.5, 0.9999)
    assert list(plain.time_ids(64, 32, True)) == [64, 32, 0, 0, 64, 32]
    with pytest.raises(InputError, match="mask_image"):
        make({}, kind, False, "", True)


@both
@pytest.mark.parametrize("takes", [True, False])
def test_a_loop_of_inpainting(form, takes):
    """As StableDiffusionInpaintPipeline; tests/pipelines/diffusion/test_pictures.py has its
    latents.
    """
    mask, picture, kept = [1.0, 0.0], [0.5, -0.5], [0.0, -0.5]
    drawing = module(form, "diffusion.denoising")
    options = options_of(form, begun=True, masked=True, num_inference_steps=2)
    given = Inpainted([picture], [kept], mask, 1, 0.5, takes)
    loop = drawing.Denoising(options.schedule(DDIM), 1, False, options)
    todo = loop.from_masked(given, [[1.0, 2.0]])
    request = next(todo)
    assert request.kind == "denoise"
    sample = [1, 2, 1, 0, 0, -0.25] if takes else [1, 2]
    np.testing.assert_allclose(request.rows[0].sample, sample, rtol=1e-6)
    todo.send([[0.0, 0.0]])
    request = todo.send(False)
    alpha = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)[[501, 1]]
    made = np.array([1, 2]) * (alpha[1] / alpha[0]) ** 0.5
    if not takes:
        made[1] = alpha[1] ** 0.5 * -0.25 + (1 - alpha[1]) ** 0.5 * 2
    np.testing.assert_allclose(request.rows[0].sample[:2], made, rtol=1e-4)
