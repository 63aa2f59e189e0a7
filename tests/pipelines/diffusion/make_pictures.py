"""Makes tests/conformance/diffusion_pictures.json: latents of diffusers' pipelines of Stable
Diffusion XL and of inpainting, around the graphs of tiny_diffusion.py, run by ONNX Runtime.

    PYTHONPATH=DIFFUSERS:. python tests/pipelines/diffusion/make_pictures.py

diffusers 0.39.0 is not among the packages of the tests: install it in a folder of its own, without
its dependencies, and put that on PYTHONPATH.
"""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.pipelines.diffusion import tiny_diffusion as tiny

FILE = Path(__file__).parents[2] / "conformance" / "diffusion_pictures.json"
TURBO = {"_class_name": "EulerAncestralDiscreteScheduler", "timestep_spacing": "trailing"}
DDIM = {"_class_name": "DDIMScheduler", "set_alpha_to_one": False}
LCM, DPM = {"_class_name": "LCMScheduler"}, {"_class_name": "DPMSolverMultistepScheduler"}
CAT = {"prompt": "the red cat", "num_inference_steps": 3}
SIZES = {"original_size": [64, 48], "crops_coords_top_left": [3, 5], "target_size": [32, 64]}
OTHERS = {"negative_original_size": [32, 32], "negative_target_size": [64, 64]}

# (model, pipeline of diffusers, scheduler's fields, call)
CASES = [
    ("xl", "StableDiffusionXLPipeline", {}, CAT),
    ("xl", "StableDiffusionXLPipeline", {}, {**CAT, "prompt_2": "a dog", "negative_prompt": "a"}),
    ("xl", "StableDiffusionXLPipeline", DDIM, {**CAT, **SIZES, "negative_prompt_2": "the dog"}),
    ("xl", "StableDiffusionXLPipeline", DDIM, {**CAT, **SIZES, **OTHERS, "negative_prompt": ""}),
    (
        "xl",
        "StableDiffusionXLPipeline",
        TURBO,
        {"prompt": "a dog", "num_inference_steps": 1, "guidance_scale": 0.0},
    ),
    ("xl", "StableDiffusionXLImg2ImgPipeline", {}, {**CAT, "num_inference_steps": 7}),
    (
        "xl",
        "StableDiffusionXLImg2ImgPipeline",
        TURBO,
        {"prompt": "a dog", "num_inference_steps": 2, "guidance_scale": 0.0, "strength": 0.5},
    ),
    ("xl", "StableDiffusionXLImg2ImgPipeline", DDIM, {**CAT, **SIZES, "strength": 0.7}),
    ("xl", "StableDiffusionXLInpaintPipeline", {}, CAT),
    ("xl", "StableDiffusionXLInpaintPipeline", {}, {**CAT, "strength": 0.7}),
    ("sd", "StableDiffusionInpaintPipeline", {}, {**CAT, "num_inference_steps": 5}),
    ("sd", "StableDiffusionInpaintPipeline", DDIM, {**CAT, "strength": 0.7}),
    ("sd", "StableDiffusionInpaintPipeline", DPM, {**CAT, "strength": 0.7}),
    ("sd", "StableDiffusionInpaintPipeline", LCM, {**CAT, "guidance_scale": 1.0}),
    ("inpainter", "StableDiffusionInpaintPipeline", DDIM, CAT),
    ("inpainter", "StableDiffusionInpaintPipeline", {}, {**CAT, "num_inference_steps": 5}),
    ("inpainter", "StableDiffusionInpaintPipeline", DPM, {**CAT, "strength": 0.5}),
]
MAKE = {"xl": tiny.make_xl, "sd": tiny.make, "inpainter": tiny.make_inpainter}


def picture() -> np.ndarray:
    """What image-to-image and inpainting begin with."""
    return np.random.default_rng(3).integers(0, 256, [64, 64, 3], dtype=np.uint8)


def mask() -> np.ndarray:
    """A mask with grey levels and colors, of another size than the picture."""
    made = np.zeros([48, 80, 3], np.uint8)
    made[10:40, 20:60] = 255
    made[:, 60:] = [200, 100, 30]
    made[40:, :20] = [250, 250, 0]
    return made


def run_by_onnxruntime(path: Path):
    """A function that runs a graph: {input: array} to {output: tensor}."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(path)
    names = [o.name for o in session.get_outputs()]

    def run(**feeds):
        made = session.run(None, {k: np.asarray(v) for k, v in feeds.items()})
        return dict(zip(names, map(torch.tensor, made)))

    return run


def encoded(run, ids, **_):
    """What a text encoder of transformers gives."""
    made = run(input_ids=ids)
    first = made.get("text_embeds", made["last_hidden_state"])
    output = type("Output", (tuple,), {})([first])
    output.hidden_states = [made[n] for n in sorted(made) if n.startswith("hidden")]
    return output


def denoised(run, sample, timestep, encoder_hidden_states, added_cond_kwargs=None, **_):
    """What a UNet of diffusers gives."""
    feeds = {k: v.float() for k, v in (added_cond_kwargs or {}).items()}
    time = np.array(float(timestep), "f")
    made = run(sample=sample, timestep=time, encoder_hidden_states=encoder_hidden_states, **feeds)
    return (made["out_sample"],)


def parts(folder: Path):
    """{name: module of a pipeline}."""
    import torch
    from diffusers.configuration_utils import FrozenDict
    from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

    class Module(torch.nn.Module):
        dtype, device = torch.float32, torch.device("cpu")

        def __init__(self, name, answer, **config):
            super().__init__()
            self.run = run_by_onnxruntime(folder / name / "model.onnx")
            self.answer, self.config = answer, FrozenDict(config)

        def forward(self, *args, **kwargs):
            return self.answer(self.run, *args, **kwargs)

    unet = json.loads((folder / "unet/config.json").read_text())
    made = {
        "text_encoder": Module("text_encoder", encoded),
        "unet": Module(
            "unet", denoised, **unet, time_cond_proj_dim=None, addition_time_embed_dim=1,
        ),
        "vae": Module(
            "vae_encoder", None, scaling_factor=tiny.SCALE, block_out_channels=[4] * 4,
            latent_channels=4, force_upcast=False, latents_mean=None, latents_std=None,
        ),
    }  # fmt: skip
    run = made["vae"].run
    made["vae"].encode = lambda x: SimpleNamespace(
        latent_dist=DiagonalGaussianDistribution(run(sample=x)["latent_parameters"])
    )
    if (folder / "text_encoder_2").exists():
        made["text_encoder_2"] = Module("text_encoder_2", encoded, projection_dim=tiny.OTHER)
        made["unet"].add_embedding = SimpleNamespace(
            linear_1=SimpleNamespace(in_features=6 + tiny.OTHER)
        )
    return made


def reference(folder: Path, name: str, fields: dict, call: dict) -> list[float]:
    """The latents that diffusers makes."""
    import diffusers
    import torch
    from PIL import Image
    from transformers import CLIPTokenizer

    config = json.loads((folder / "scheduler/scheduler_config.json").read_text()) | fields
    config |= {"clip_sample": False}
    scheduler = getattr(diffusers, config.pop("_class_name"))
    given = parts(folder)
    given["scheduler"] = scheduler.from_config(config)
    for part in ("tokenizer", "tokenizer_2"):
        if (folder / part).exists():
            given[part] = CLIPTokenizer.from_pretrained(folder / part)
    if "XL" not in name:
        given |= {"safety_checker": None, "feature_extractor": None}
        given["requires_safety_checker"] = False
    made = getattr(diffusers, name)(**given)
    pictures = {}
    if "Img2Img" in name or "Inpaint" in name:
        pictures["image"] = Image.fromarray(picture())
    if "Inpaint" in name:
        pictures["mask_image"] = Image.fromarray(mask())
    generator = torch.Generator().manual_seed(4)
    made.set_progress_bar_config(disable=True)
    call = {k: tuple(v) if isinstance(v, list) else v for k, v in call.items()}
    result = made(**call, **pictures, generator=generator, output_type="latent")
    return [float(f"{x:.6g}") for x in result[0].flatten().tolist()]


def all_cases() -> list[dict]:
    """All cases with their results."""
    found = []
    with tempfile.TemporaryDirectory() as root:
        for model, name, fields, call in CASES:
            folder = Path(root) / model
            if not folder.exists():
                folder.mkdir()
                MAKE[model](folder)
            latents = reference(folder, name, fields, call)
            found.append(
                {"model": model, "pipeline": name, "scheduler": fields, "call": call,
                 "latents": latents}
            )  # fmt: skip
    return found


if __name__ == "__main__":
    about = "Latents of diffusers 0.39.0 around tiny graphs, by make_pictures.py."
    rows = ",\n".join("    " + json.dumps(case) for case in all_cases())
    FILE.write_text(f'{{\n  "about": {json.dumps(about)},\n  "cases": [\n{rows}\n  ]\n}}\n')
