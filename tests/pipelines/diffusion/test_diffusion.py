"""Schedulers of diffusion models, compared with diffusers."""

import importlib.util

import numpy as np
import pytest
from edgewise.errors import InputError
from edgewise.logic.diffusion.schedulers import Request

from tests.conformance.vectors import vectors
from tests.logic.forms import both, module
from tests.pipelines.diffusion.make_diffusion import all_cases, noise, outputs

CASES = vectors("diffusion")["schedulers"]


def close(a, b, start=0.0):
    """Whether numbers are equal. Latents are differences of numbers as large as `start`, which
    diffusers rounds to float32.
    """
    most = 1e-5 * max(1, *map(abs, b)) + 2**-24 * start
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) <= most


@both
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['config']['_class_name']}-{c['call']}")
def test_scheduler_equals_diffusers(form, case):
    schedule_of = module(form, "diffusion.schedulers").schedule_of
    call = case["call"]
    given = call.get("timesteps") or call.get("sigmas")
    steps = call.get("steps", len(given or ()))
    schedule = schedule_of(case["config"], Request(**{**call, "steps": steps}))
    assert close([s.timestep for s in schedule.steps], case["timesteps"])
    assert close([schedule.sigma, *schedule.start], [case["sigma"], *case["start"]])
    stepper = module(form, "diffusion.stepper").Stepper(
        schedule, [schedule.sigma * x for x in noise(-1)]
    )
    for i, (model_input, latents) in enumerate(zip(case["inputs"], case["latents"], strict=True)):
        assert close(stepper.scaled(), model_input), i
        stepper.step(outputs(i), noise(i))
        assert close(stepper.latents, latents, schedule.sigma), i
    assert stepper.at == len(schedule.steps)


@both
@pytest.mark.parametrize("case", vectors("diffusion")["guidance"], ids=lambda c: c["scale"])
def test_guidance_and_previews(form, case):
    guidance = module(form, "diffusion.guidance")
    made = guidance.guided(case["without"], case["prompted"], case["scale"], case["rescale"])
    assert close(made, case["guided"])
    embedding = guidance.scale_embedding(case["scale"], len(case["embedding"]))
    # diffusers' angles are float32, of up to some thousands
    np.testing.assert_allclose(embedding, case["embedding"], atol=2e-3)
    assert list(guidance.preview_pixels(case["prompted"], 6)) == case["preview"]


@pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="needs diffusers")
def test_vectors_are_those_of_diffusers():
    for case, again in zip(CASES, all_cases(), strict=True):
        assert case["config"] == again["config"] and case["call"] == again["call"]
        for name in ("timesteps", "start"):
            assert case[name] == pytest.approx(again[name], rel=1e-6)
        for ours, theirs in zip(case["latents"], again["latents"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


@both
@pytest.mark.parametrize(
    "config, call, match",
    [
        ({"_class_name": "HeunDiscreteScheduler"}, {}, "HeunDiscreteScheduler"),
        ({"_class_name": "PNDMScheduler"}, {}, "skip_prk_steps"),
        ({"_class_name": "DDIMScheduler", "thresholding": True}, {}, "thresholding"),
        ({"_class_name": "DDIMScheduler", "beta_schedule": "sigmoid"}, {}, "beta_schedule"),
        ({"_class_name": "DDIMScheduler", "trained_betas": ["x"]}, {}, "trained_betas"),
        ({"_class_name": "DDIMScheduler"}, {"steps": 1001}, "num_inference_steps"),
        ({"_class_name": "DDIMScheduler"}, {"timesteps": [5]}, "timesteps"),
        ({"_class_name": "LCMScheduler"}, {"steps": 51}, "num_inference_steps"),
        ({"_class_name": "EulerDiscreteScheduler", "use_beta_sigmas": True}, {}, "use_beta_sigmas"),
        ({"_class_name": "EulerDiscreteScheduler"}, {"timesteps": [1000]}, "timesteps"),
        (
            {"_class_name": "DPMSolverMultistepScheduler", "use_exponential_sigmas": True},
            {},
            "use_exponential_sigmas",
        ),
        ({"_class_name": "DPMSolverMultistepScheduler", "solver_order": 3}, {}, "solver_order"),
        ({"_class_name": "DPMSolverMultistepScheduler", "beta_end": "a"}, {}, "beta_end"),
    ],
)
def test_what_is_not_supported_is_refused(form, config, call, match):
    with pytest.raises(InputError, match=match):
        request = Request(**{"steps": 4, **call})
        module(form, "diffusion.schedulers").schedule_of(config, request)
