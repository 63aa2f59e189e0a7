"""Makes tests/conformance/diffusion.json.

    PYTHONPATH=DIFFUSERS python tests/pipelines/diffusion/make_diffusion.py

diffusers 0.39.0 is not among the packages of the tests: install it in a folder of its own, without
its dependencies, and put that on PYTHONPATH.
"""

import contextlib
import json
import math
from pathlib import Path
from unittest import mock

FILE = Path(__file__).parents[2] / "conformance" / "diffusion.json"
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
SIZE = 3

# (class, fields over SD's, call)
CASES = [
    ("PNDMScheduler", {"skip_prk_steps": True, "steps_offset": 1}, {"steps": 7}),
    ("PNDMScheduler", {"skip_prk_steps": True, "steps_offset": 1}, {"steps": 10, "begin": 4}),
    ("PNDMScheduler", {"skip_prk_steps": True, "prediction_type": "v_prediction"}, {"steps": 6}),
    ("PNDMScheduler", {"skip_prk_steps": True, "timestep_spacing": "linspace"}, {"steps": 5}),
    ("PNDMScheduler", {"skip_prk_steps": True, "timestep_spacing": "trailing"}, {"steps": 6}),
    ("PNDMScheduler", {"skip_prk_steps": True, "steps_offset": 1}, {"steps": 1}),
    ("PNDMScheduler", {"skip_prk_steps": True, "steps_offset": 1}, {"steps": 2}),
    ("DDIMScheduler", {"set_alpha_to_one": False, "steps_offset": 1}, {"steps": 5}),
    ("DDIMScheduler", {"set_alpha_to_one": False, "steps_offset": 1}, {"steps": 5, "eta": 0.7}),
    ("DDIMScheduler", {"prediction_type": "v_prediction"}, {"steps": 4, "begin": 1}),
    ("DDIMScheduler", {"prediction_type": "sample", "timestep_spacing": "linspace"}, {"steps": 4}),
    (
        "DDIMScheduler",
        {
            "prediction_type": "v_prediction",
            "rescale_betas_zero_snr": True,
            "timestep_spacing": "trailing",
        },
        {"steps": 4},
    ),
    ("DDIMScheduler", {"beta_schedule": "linear", "beta_end": 0.02}, {"steps": 3}),
    ("DDIMScheduler", {"beta_schedule": "squaredcos_cap_v2"}, {"steps": 3}),
    (
        "DDIMScheduler",
        {"trained_betas": [0.1, 0.2, 0.3, 0.4], "num_train_timesteps": 4},
        {"steps": 2},
    ),
    ("EulerDiscreteScheduler", {}, {"steps": 5}),
    ("EulerDiscreteScheduler", {"timestep_spacing": "leading", "steps_offset": 1}, {"steps": 5}),
    ("EulerDiscreteScheduler", {"timestep_spacing": "trailing"}, {"steps": 1}),
    ("EulerDiscreteScheduler", {"timestep_spacing": "trailing"}, {"steps": 4, "begin": 1}),
    ("EulerDiscreteScheduler", {"use_karras_sigmas": True}, {"steps": 5}),
    ("EulerDiscreteScheduler", {"use_exponential_sigmas": True}, {"steps": 4}),
    ("EulerDiscreteScheduler", {"prediction_type": "v_prediction"}, {"steps": 4}),
    ("EulerDiscreteScheduler", {"prediction_type": "sample"}, {"steps": 3}),
    ("EulerDiscreteScheduler", {"final_sigmas_type": "sigma_min"}, {"steps": 3}),
    ("EulerDiscreteScheduler", {}, {"timesteps": [900, 500, 10]}),
    ("EulerDiscreteScheduler", {}, {"sigmas": [14.615, 3.861, 0.963, 0.0]}),
    (
        "EulerDiscreteScheduler",
        {
            "prediction_type": "v_prediction",
            "rescale_betas_zero_snr": True,
            "timestep_spacing": "trailing",
        },
        {"steps": 4},
    ),
    ("EulerAncestralDiscreteScheduler", {}, {"steps": 5}),
    ("EulerAncestralDiscreteScheduler", {"timestep_spacing": "leading"}, {"steps": 4, "begin": 2}),
    ("EulerAncestralDiscreteScheduler", {"prediction_type": "v_prediction"}, {"steps": 4}),
    ("DPMSolverMultistepScheduler", {}, {"steps": 6}),
    ("DPMSolverMultistepScheduler", {}, {"steps": 16}),
    ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}, {"steps": 6}),
    ("DPMSolverMultistepScheduler", {"timestep_spacing": "leading"}, {"steps": 5, "begin": 2}),
    ("DPMSolverMultistepScheduler", {"timestep_spacing": "trailing"}, {"steps": 5}),
    ("DPMSolverMultistepScheduler", {"prediction_type": "v_prediction"}, {"steps": 5}),
    ("DPMSolverMultistepScheduler", {"solver_type": "heun"}, {"steps": 5}),
    ("DPMSolverMultistepScheduler", {"solver_order": 1}, {"steps": 4}),
    ("DPMSolverMultistepScheduler", {"final_sigmas_type": "sigma_min"}, {"steps": 16}),
    (
        "DPMSolverMultistepScheduler",
        {"euler_at_final": True, "final_sigmas_type": "sigma_min"},
        {"steps": 16},
    ),
    ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}, {"steps": 5}),
    (
        "DPMSolverMultistepScheduler",
        {"algorithm_type": "sde-dpmsolver++", "solver_type": "heun"},
        {"steps": 5},
    ),
    ("DPMSolverMultistepScheduler", {}, {"timesteps": [951, 601, 301, 1]}),
    ("LCMScheduler", {}, {"steps": 4}),
    ("LCMScheduler", {"prediction_type": "v_prediction"}, {"steps": 3}),
    ("LCMScheduler", {}, {"steps": 4, "original": 20}),
    ("LCMScheduler", {}, {"steps": 4, "strength": 0.5}),
    ("LCMScheduler", {}, {"steps": 4, "begin": 1}),
    ("LCMScheduler", {}, {"timesteps": [999, 599, 199]}),
]


def outputs(step: int) -> list[float]:
    """What the model answers in the vectors."""
    return [math.cos(1 + 3.1 * step + 1.7 * j) for j in range(SIZE)]


def noise(step: int) -> list[float]:
    """The random numbers of a step in the vectors; step -1: those before the first."""
    return [math.sin(2 + 1.3 * step + 2.9 * j) for j in range(SIZE)]


def reference(name: str, fields: dict, call: dict) -> dict:
    """A case with the results of diffusers' scheduler."""
    import diffusers
    import torch

    config = {**SD, **fields}
    scheduler = getattr(diffusers, name)(
        **config, **({"clip_sample": False} if name in ("DDIMScheduler", "LCMScheduler") else {})
    )
    begin = call.get("begin", 0)
    given = {k: call[k] for k in ("timesteps", "sigmas") if k in call}
    if name == "LCMScheduler":
        extra = {
            "original_inference_steps": call.get("original"),
            "strength": call.get("strength", 1.0),
        }
        scheduler.set_timesteps(call.get("steps"), **given, **extra)
    elif given:
        scheduler.set_timesteps(**given)
    else:
        scheduler.set_timesteps(call["steps"])
    times = scheduler.timesteps[begin:]
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(begin)
    sigma = float(scheduler.init_noise_sigma)
    zero, one = torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)
    start = [
        float(scheduler.add_noise(one, zero, times[:1])),
        float(scheduler.add_noise(zero, one, times[:1])),
    ]
    latents = torch.tensor(noise(-1)) * sigma
    inputs, results = [], []
    module = __import__(scheduler.__module__, fromlist=["x"])
    for i, time in enumerate(times):
        inputs.append(scheduler.scale_model_input(latents, time).tolist())
        drawn = torch.tensor(noise(i))
        patch = contextlib.nullcontext()
        if hasattr(module, "randn_tensor"):
            patch = mock.patch.object(module, "randn_tensor", lambda *a, drawn=drawn, **k: drawn)
        options = {"eta": call["eta"]} if "eta" in call else {}
        with patch:
            latents = scheduler.step(torch.tensor(outputs(i)), time, latents, **options).prev_sample
        results.append(latents.tolist())
    return {
        "config": {"_class_name": name, **config},
        "call": call,
        "timesteps": times.tolist(),
        "sigma": sigma,
        "start": start,
        "inputs": inputs,
        "latents": results,
    }


def guidance(scale: float, rescale: float) -> dict:
    """Guidance by diffusers, and a preview, of six latents of each of four channels."""
    import torch
    from diffusers.pipelines.latent_consistency_models import (
        pipeline_latent_consistency_text2img as lcm,
    )
    from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import rescale_noise_cfg

    without, prompted = (
        torch.tensor([2 * math.sin(a + 0.7 * i) for i in range(24)]) for a in (0.3, 1.9)
    )
    made = without + scale * (prompted - without)
    if rescale:
        made = rescale_noise_cfg(made[None], prompted[None], rescale)[0]
    embedding = lcm.LatentConsistencyModelPipeline.get_guidance_scale_embedding(
        None, torch.tensor([scale - 1]), 9
    )
    colors = torch.tensor(
        [[0.298, 0.207, 0.208], [0.187, 0.286, 0.173], [-0.158, 0.189, 0.264],
         [-0.184, -0.271, -0.473]]
    )  # fmt: skip
    preview = (prompted.reshape(4, 6).T @ colors + 1) * 127.5
    return {
        "without": without.tolist(),
        "prompted": prompted.tolist(),
        "scale": scale,
        "rescale": rescale,
        "guided": made.tolist(),
        "embedding": embedding[0].tolist(),
        "preview": (preview.clamp(0, 255) + 0.5).floor().int().flatten().tolist(),
    }


def all_cases() -> list[dict]:
    """All cases with their results."""
    return [reference(*case) for case in CASES]


def rounded(value):
    """Numbers with nine digits, which tell float32 numbers apart."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


if __name__ == "__main__":
    about = (
        "Schedulers of diffusion models: the timesteps, the factor of the first noise, the factors"
        " of picture and noise that image-to-image begins with, the model's inputs and the latents"
        " of each step. The first latents are sigma * noise(-1); output and noise of step i are"
        " cos(1 + 3.1 i + 1.7 j) and sin(2 + 1.3 i + 2.9 j) for j = 0, 1, 2."
    )
    others = [guidance(7.5, 0.0), guidance(3.0, 0.7)]
    lists = [
        ",\n".join("    " + json.dumps(rounded(c)) for c in cases)
        for cases in (all_cases(), others)
    ]
    FILE.write_text(
        f'{{\n  "about": {json.dumps(about)},\n  "schedulers": [\n{lists[0]}\n  ],\n'
        f'  "guidance": [\n{lists[1]}\n  ]\n}}\n'
    )
