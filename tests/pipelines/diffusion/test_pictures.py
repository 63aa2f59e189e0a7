"""Stable Diffusion XL, its Turbo and inpainting, compared with the pipelines of diffusers
(make_pictures.py).
"""

import edgewise
import numpy as np
import pytest
from edgewise.cli import main
from edgewise.compiler.task_package.graphs import folders_of
from edgewise.errors import InputError, UnsupportedOp
from edgewise.host.session.open import folder_files
from edgewise.logic.diffusion.options import DrawOptions
from edgewise.onnx import FileSource
from edgewise.package import Package
from edgewise.task_package import compile_task

from tests.conformance.vectors import vectors
from tests.pipelines.diffusion import tiny_diffusion as tiny
from tests.pipelines.diffusion.make_pictures import MAKE, mask, picture

torch = pytest.importorskip("torch")
CASES = vectors("diffusion_pictures")["cases"]


@pytest.fixture(scope="module")
def pipes(tmp_path_factory):
    made = {}
    for name, make in MAKE.items():
        folder = tmp_path_factory.mktemp(name)
        made[name] = edgewise.pipeline("text-to-image", str(make(folder)))
    yield made
    for pipe in made.values():
        pipe.close()


def given(case):
    """The options of a case."""
    pictures = {}
    if "Img2Img" in case["pipeline"] or "Inpaint" in case["pipeline"]:
        pictures["image"] = picture()
    if "Inpaint" in case["pipeline"]:
        pictures["mask_image"] = mask()
    return {**case["call"], **pictures, "scheduler": case["scheduler"] or None}


@pytest.mark.family("Stable Diffusion XL", exporter="hand")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['model']}-{c['pipeline']}-{c['call']}")
def test_latents_are_those_of_diffusers(pipes, case):
    generator = torch.Generator().manual_seed(4)
    made = pipes[case["model"]](**given(case), generator=generator, output_type="latent")
    expected = np.array(case["latents"])
    np.testing.assert_allclose(made.images.reshape(-1), expected, atol=2e-4, rtol=1e-4)


def test_vectors_of_both_encoders(pipes):
    pipe = pipes["xl"]
    call = {"num_inference_steps": 2, "seed": 3, "output_type": "latent"}
    expected = pipe("the cat", negative_prompt="a dog", **call).images
    options = {**pipe.defaults, "prompt": "the cat", "negative_prompt": "a dog"}
    checked = DrawOptions(options, pipe.facts.kind)
    rows = pipe._embeddings(checked.prompts(True), True, checked, options)
    names = ("", "negative_")
    vectors = {
        f"{name}{pooled}prompt_embeds": np.array(value, "f").reshape(1, *shape)
        for name, [row] in zip(names, rows)
        for pooled, value, shape in (
            ("", row.numbers, row.shape),
            ("pooled_", row.pooled, [tiny.OTHER]),
        )
    }
    np.testing.assert_array_equal(pipe(**vectors, **call).images, expected)
    del vectors["pooled_prompt_embeds"]
    with pytest.raises(InputError, match="pooled_prompt_embeds"):
        pipe(**vectors, **call)


@pytest.mark.parametrize(
    "model, options, match",
    [
        ("sd", {"prompt_2": "a"}, "prompt_2"),
        ("sd", {"original_size": [1, 1]}, "original_size"),
        ("xl", {"original_size": [1]}, "original_size"),
        ("xl", {"prompt_2": ["a", "b"]}, "prompt_2"),
        ("xl", {"negative_target_size": [8, 8]}, "negative_target_size"),
        ("xl", {"denoising_end": 0.8}, "denoising_end"),
        ("sd", {"mask_image": mask()}, "image"),
        ("inpainter", {}, "mask_image"),
        ("inpainter", {"image": picture()}, "mask_image"),
        ("sd", {"image": picture(), "mask_image": "none.png"}, "none.png"),
    ],
)
def test_options_that_are_refused(pipes, model, options, match):
    with pytest.raises(InputError, match=match):
        pipes[model]("the cat", **options)
    whole = {"image": picture(), "mask_image": mask()} if model == "inpainter" else {}
    assert pipes[model]("the cat", num_inference_steps=1, **whole).images


def test_a_missing_encoder_is_named(tmp_path):
    folder = tiny.make_xl(tmp_path)
    (folder / "text_encoder_2/model.onnx").unlink()
    with edgewise.pipeline("text-to-image", str(folder)) as pipe:
        with pytest.raises(InputError, match="text_encoder_2"):
            pipe("the cat", num_inference_steps=1)
    tiny.save(
        folder / "text_encoder_2/model.onnx",
        [tiny.helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        [("input_ids", tiny.I64, ["batch", "sequence"])],
        [("last_hidden_state", tiny.F32, ["batch", "sequence", tiny.OTHER])],
        {"table": np.zeros([200, tiny.OTHER])},
    )
    with edgewise.pipeline("text-to-image", str(folder)) as pipe:
        with pytest.raises(UnsupportedOp, match="text_embeds"):
            pipe("the cat", num_inference_steps=1)


def test_package_of_xl(tmp_path):
    folder, out = tiny.make_xl(tmp_path / "xl"), tmp_path / "xl.edge"
    main(["build", "--task", "text-to-image", str(folder), "-o", str(out)])
    package = Package.read(FileSource(str(out)))
    described = package.manifest["processor"]["diffusion"]
    assert described["xl"] and described["zeros"] and described["pad"] == 0
    encoder = package.manifest["programs"]["text_encoder_2"]
    assert {output["name"] for output in encoder["outputs"]} == {"hidden_states.1", "text_embeds"}
    inputs = package.manifest["programs"]["unet"]["plans"][0]["inputs"]
    assert inputs["time_ids"] == ["float32", [1, 6]]
    assert inputs["text_embeds"] == ["float32", [1, tiny.OTHER]]
    (folder / "tokenizer_2/merges.txt").write_text("#version: 0.2\nt h\n")
    files = folder_files(str(folder), folders_of("text-to-image"))[0]
    with pytest.raises(UnsupportedOp, match="tokenizer_2"):
        compile_task(files, "text-to-image")
