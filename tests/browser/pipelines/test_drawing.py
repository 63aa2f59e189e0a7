"""text-to-image in a page: the same pictures as in Python, whose results are compared with ONNX
Runtime and diffusers.
"""

import edgewise
import numpy as np
import pytest
from edgewise.cli import main

from tests.pipelines.diffusion import tiny_diffusion as tiny
from tests.pipelines.diffusion.make_pictures import MAKE, mask, picture

pytest.importorskip("transformers")
MODEL = "/files/drawing/model.edge"
DRAW = """
    const p = await ew.pipeline("text-to-image", arg.model, arg.options);
    const steps = [];
    const onStep = ({ step, timestep, previews }) =>
      steps.push([step, timestep, previews.map((p) => [p.width, p.height, p.data[5]])]);
    const made = [];
    for (const { prompt, latents, ...options } of arg.calls) {
      if (latents) options.latents = new ew.Tensor("float32", latents.data, latents.dims);
      const failed = (e) => ({ error: `${e.name}: ${e.message}` });
      const r = await p(prompt, { onStep, ...options }).catch(failed);
      made.push(r.error ?? {
        images: r.images.map(({ data, ...size }) => ({
          ...{ width: size.width, height: size.height }, data: Array.from(data),
        })),
        latents: r.latents && Array.from(r.latents.data),
        unsafe: r.nsfw_content_detected,
        seeds: r.seeds.map(Number),
      });
    }
    const { memory, origin } = p.info;
    await p.dispose();
    return { made, steps, memory, origin };
"""


@pytest.fixture(scope="module")
def folder(files):
    """A model, and its package with a safety checker."""
    folder = files / "drawing"
    tiny.make(folder / "sd")
    tiny.make_safety(folder / "sd", 0.0)
    tiny.make_unet(folder / "sd/unet/model_fp16.onnx", tiny.F16)
    main(["build", "--task", "text-to-image", str(folder / "sd"), "-o", str(folder / "model.edge")])
    return folder


@pytest.fixture
def draw(visit, server, folder):
    page = visit(server)

    def run(*calls, model=MODEL, **options):
        found = page.run(DRAW, {"calls": calls, "model": model, "options": options})
        assert "error" not in found, found
        return found

    return run


@pytest.fixture(scope="module")
def pipe(folder):
    with edgewise.pipeline("text-to-image", str(folder / "sd")) as made:
        yield made


def pixels(image):
    return np.array(image["data"]).reshape(image["height"], image["width"], 3)


def near(found, result):
    """Whether pictures of a page are those of Python, to a level."""
    assert len(found["images"]) == len(result.images)
    for ours, theirs in zip(found["images"], result.images):
        assert np.abs(pixels(ours) - np.asarray(theirs).astype(int)).max() <= 1


def test_the_pictures_of_python(draw, pipe):
    calls = [
        {"prompt": "the cat", "num_inference_steps": 4, "seed": 3},
        {
            "prompt": ["the red cat", "a dog"],
            "negative_prompt": "dog",
            "num_images_per_prompt": 2,
            "num_inference_steps": 3,
            "guidance_rescale": 0.5,
            "seed": 5,
            "scheduler": "EulerAncestralDiscreteScheduler",
        },
        {
            "prompt": "the " * 100,
            "num_inference_steps": 3,
            "seed": 2**53 - 2,
            "guidance_scale": 0,
            "scheduler": {"_class_name": "DPMSolverMultistepScheduler", "use_karras_sigmas": True},
        },
    ]
    found = draw(*calls)
    assert found["origin"] == "package"
    for call, made in zip(calls, found["made"]):
        options = {k: v for k, v in call.items() if k != "prompt"}
        if len(call["prompt"]) > 300:
            with pytest.warns(UserWarning, match="tokens"):
                result = pipe(call["prompt"], **options)
        else:
            result = pipe(call["prompt"], **options)
        near(made, result)
        assert made["unsafe"] == result.nsfw_content_detected
        assert made["seeds"] == result.seeds


def test_the_one_file_draws_with_the_part_beside_it(visit, server, folder):
    page = visit(server)
    calls = [{"prompt": "the cat", "num_inference_steps": 2, "seed": 3}]
    given = {"calls": calls, "model": MODEL, "options": {}}
    wanted = page.run(DRAW, given)
    page.page.evaluate("async () => void (window.ew = await import('/edgewise.inline.js'))")
    assert page.run(DRAW, given)["made"] == wanted["made"]
    assert len(page.asked("part-diffusion.js")) == 1


def test_latents_previews_and_pictures_to_begin_with(draw, pipe):
    latents = np.random.default_rng(2).normal(size=[1, 4, 8, 8]).astype("f")
    rows = {"data": [float(x) for x in latents.flat], "dims": [1, 4, 8, 8]}
    rng = np.random.default_rng(3)
    picture = rng.integers(0, 256, [70, 90, 3], dtype=np.uint8)
    image = {"data": picture.reshape(-1).tolist(), "width": 90, "height": 70, "channels": 3}
    call = {"prompt": "the cat", "num_inference_steps": 5}
    begun = {**call, "image": image, "strength": 0.6, "seed": 4}
    found = draw({**call, "latents": rows, "output_type": "latent", "preview_steps": 2}, begun)
    made = found["made"][0]
    seen = []
    result = pipe(
        "the cat", latents=latents, num_inference_steps=5, output_type="latent",
        callback_on_step_end_tensor_inputs=["denoised"],
        callback_on_step_end=lambda p, i, t, k: seen.append((i, t, p.preview(k["denoised"])[0])),
    )  # fmt: skip
    np.testing.assert_allclose(made["latents"], result.images.reshape(-1), atol=1e-4)
    steps = found["steps"][: len(seen)]
    assert [s[:2] for s in steps] == [[i, t] for i, t, _ in seen]
    assert [len(s[2]) for s in steps] == [i % 2 for i in range(len(seen))]
    for (_, _, previews), (_, _, image) in zip(steps[1::2], seen[1::2]):
        assert previews[0][:2] == [8, 8]
        assert abs(previews[0][2] - np.asarray(image).reshape(-1)[5]) <= 1
    options = {**begun, "image": picture, "height": 64, "width": 64}
    near(found["made"][1], pipe(options.pop("prompt"), **options))


@pytest.fixture(scope="module")
def others(files):
    """Models of Stable Diffusion XL and of inpainting, and a package of each."""
    for name, make in MAKE.items():
        folder = files / "pictures" / name
        make(folder)
        main(["build", "--task", "text-to-image", str(folder), "-o", f"{folder}.edge"])
    return files / "pictures"


@pytest.mark.family("Stable Diffusion XL", exporter="hand")
@pytest.mark.parametrize("model", list(MAKE))
def test_xl_and_inpainting(draw, others, model):
    def sent(pixels):
        height, width, channels = pixels.shape
        data = pixels.reshape(-1).tolist()
        return {"data": data, "width": width, "height": height, "channels": channels}

    usual = {"prompt": "the red cat", "num_inference_steps": 3, "output_type": "latent", "seed": 3}
    begun, masked = {"image": picture()}, {"image": picture(), "mask_image": mask()}
    calls = [{**usual, **masked}, {**usual, **masked, "strength": 0.7}]
    if model == "xl":
        sizes = {"original_size": [64, 48], "crops_coords_top_left": [3, 5]}
        calls += [usual, {**usual, "prompt_2": "a dog", "negative_prompt": "a", **sizes}]
        calls += [{**usual, **begun, "strength": 0.7}, {**usual, "guidance_scale": 0}]
    given = [{k: sent(v) if hasattr(v, "shape") else v for k, v in c.items()} for c in calls]
    found = draw(*given, model=f"/files/pictures/{model}.edge")
    with edgewise.pipeline("text-to-image", str(others / model)) as pipe:
        for call, made in zip(calls, found["made"], strict=True):
            assert "error" not in made, made
            expected = pipe(**call).images.reshape(-1)
            np.testing.assert_allclose(made["latents"], expected, atol=2e-4, rtol=1e-4)


def test_options_that_are_refused(draw):
    refused = {
        "hight": ({"hight": 3}, "hight"),
        "size": ({"height": 128}, "64 x 64"),
        "steps": ({"num_inference_steps": 0}, "num_inference_steps"),
        "seed": ({"seed": -1}, "seed"),
        "scheduler": ({"scheduler": "UniPCMultistepScheduler"}, "UniPCMultistepScheduler"),
        "negatives": ({"negative_prompt": ["a", "b"]}, "negative_prompt"),
        "output": ({"output_type": "pil"}, "output_type"),
        "generator": ({"generator": 1}, "generator"),
        "prompt": ({"prompt": 7}, "prompt"),
        "latents": ({"latents": {"data": [0, 0], "dims": [2]}}, "latents"),
    }
    last = {"prompt": "the cat", "num_inference_steps": 1}
    found = draw(*({"prompt": "the cat", **given} for given, _ in refused.values()), last)
    for error, (_, words) in zip(found["made"], refused.values()):
        assert error.startswith("InputError") and words in error, error
    assert len(found["made"][-1]["images"]) == 1


def test_a_call_is_aborted_and_a_picture_becomes_a_file(visit, server, folder):
    found = visit(server).run(
        """
            const p = await ew.pipeline("text-to-image", arg);
            const controller = new AbortController();
            const aborted = await p("the cat", {
              signal: controller.signal,
              num_inference_steps: 500,
              onStep: ({ step }) => step === 2 && controller.abort(),
            }).then(() => "made", (e) => e.name);
            const { images: [image] } = await p("the cat", { num_inference_steps: 1, seed: 1 });
            const blob = await image.toBlob();
            const bitmap = await createImageBitmap(blob);
            const canvas = image.toCanvas();
            const { data } = canvas.getContext("2d").getImageData(0, 0, 1, 1);
            await p.dispose();
            return [aborted, blob.type, bitmap.width, canvas.height, data[3],
                    Array.from(data.slice(0, 3)), Array.from(image.data.slice(0, 3))];
        """,
        MODEL,
    )
    assert "error" not in found, found
    assert found[:5] == ["Aborted", "image/png", 64, 64, 255]
    assert found[5] == found[6]


def test_one_part_is_in_memory_at_a_time(draw):
    found = draw({"prompt": "the cat", "num_inference_steps": 2})
    assert found["memory"]["weights"] < 40_000  # the largest part, not all


def test_a_folder_with_parts_of_other_types_is_compiled(draw, folder):
    dtype = {"unet": "fp16"}
    call = {"prompt": "the cat", "num_inference_steps": 2, "seed": 1}
    found = draw(call, model="/files/drawing/sd/", dtype={**dtype, "text_encoder": "fp32"})
    assert found["origin"] == "compiled"
    with edgewise.pipeline("text-to-image", str(folder / "sd"), dtype=dtype) as pipe:
        near(found["made"][0], pipe(call.pop("prompt"), **call))


def test_a_package_of_another_task(visit, server, folder):
    found = visit(server).run(
        """
            const load = (task) => ew.pipeline(task, arg).then(() => "loaded", (e) => e.message);
            return [await load("feature-extraction"), await load("text-to-image")];
        """,
        MODEL,
    )
    assert "it was built for 'text-to-image'" in found[0] and found[1] == "loaded"
