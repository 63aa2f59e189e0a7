"""Schedulers of diffusion models. Mirrors diffusers' PNDM, DDIM, Euler, Euler ancestral,
DPM-Solver++ and LCM schedulers.

All of them are linear: the next latents are a sum of latents, outputs of the model and noise with
factors that depend on the step alone. `schedule_of` computes the factors of all steps, and
stepper.py applies them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import f32
from .noise_levels import WHERE, Levels, SchedulerConfig, evenly, interpolated, time_of
from .stepper import Factors, Pair, Schedule, Step

__all__ = ["SCHEDULERS", "Request", "schedule_of"]


@dataclass(frozen=True)
class Request:
    """What a call asks of a scheduler.

    Attributes:
        steps: num_inference_steps.
        begin: how many steps of the schedule are left out, for image-to-image.
        eta: of DDIM.
        timesteps, sigmas: given ones, or None.
        original: original_inference_steps of LCM, or None.
        strength: of image-to-image, where LCM's own pipeline divides its steps by it; else 1.
    """

    steps: int
    begin: int = 0
    eta: float = 0.0
    timesteps: Sequence[float] | None = None
    sigmas: Sequence[float] | None = None
    original: int | None = None
    strength: float = 1.0


_COMMON: dict[str, Any] = {
    "num_train_timesteps": 1000,
    "beta_start": 0.0001,
    "beta_end": 0.02,
    "beta_schedule": "linear",
    "trained_betas": None,
    "prediction_type": "epsilon",
    "steps_offset": 0,
}
_KARRAS: dict[str, Any] = {
    "use_karras_sigmas": False,
    "use_exponential_sigmas": False,
    "use_beta_sigmas": False,
    "final_sigmas_type": "zero",
    "rescale_betas_zero_snr": False,
    "timestep_spacing": "linspace",
}
_CLIPPED: dict[str, Any] = {
    "thresholding": False,
    "rescale_betas_zero_snr": False,
    "set_alpha_to_one": True,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "PNDMScheduler": {
        **_COMMON,
        "skip_prk_steps": False,
        "set_alpha_to_one": False,
        "timestep_spacing": "leading",
    },
    "DDIMScheduler": {**_COMMON, **_CLIPPED, "timestep_spacing": "leading"},
    "EulerDiscreteScheduler": {
        **_COMMON,
        **_KARRAS,
        "interpolation_type": "linear",
        "timestep_type": "discrete",
        "sigma_min": None,
        "sigma_max": None,
    },
    "EulerAncestralDiscreteScheduler": {
        **_COMMON,
        "timestep_spacing": "linspace",
        "rescale_betas_zero_snr": False,
    },
    "DPMSolverMultistepScheduler": {
        **_COMMON,
        **_KARRAS,
        "solver_order": 2,
        "algorithm_type": "dpmsolver++",
        "solver_type": "midpoint",
        "lower_order_final": True,
        "euler_at_final": False,
        "use_lu_lambdas": False,
        "use_flow_sigmas": False,
        "thresholding": False,
    },
    "LCMScheduler": {
        **_COMMON,
        **_CLIPPED,
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "original_inference_steps": 50,
        "timestep_scaling": 10.0,
    },
}
"""{class of diffusers: {field: default}}. clip_sample is left out: StableDiffusionPipeline sets it
to False, since latents are not within -1 and 1."""


def schedule_of(config: Mapping[str, Any], request: Request) -> Schedule:
    """The steps of a call.

    Args:
        config: contents of scheduler_config.json; `_class_name` names the scheduler.
        request: what the call asks.

    Raises:
        InputError: the scheduler, a field or an option is not supported.
    """
    name = config.get("_class_name")
    if not isinstance(name, str) or name not in SCHEDULERS:
        raise InputError(
            f"there is no scheduler {name!r}", "scheduler", f"There are: {', '.join(SCHEDULERS)}."
        )
    fields = SchedulerConfig(config, DEFAULTS[name])
    if fields.fields.get("thresholding"):
        raise InputError("thresholding is for pixels, not latents", WHERE, "Set it to false.")
    given = {"timesteps": request.timesteps, "sigmas": request.sigmas}
    for option, value in given.items():
        if value is not None and name not in TAKES[option]:
            raise InputError(
                f"{name} takes no {option}", option, f"Use one of: {', '.join(TAKES[option])}."
            )
    schedule: Schedule | None = None
    try:
        schedule = SCHEDULERS[name](fields, request)
    except InputError:
        raise
    except (ArithmeticError, IndexError, TypeError, ValueError):
        pass  # in pages its numbers are not finite
    if schedule is None or not all(math.isfinite(x) for x in _numbers(schedule)):
        raise InputError("its numbers give no steps", WHERE, "Give the model's own fields.")
    return schedule


def _numbers(schedule: Schedule) -> list[float]:
    numbers = [schedule.sigma, *schedule.start]
    for s in schedule.steps:
        numbers += [s.timestep, s.scale, s.noise, *s.convert, *s.clean]
        numbers += [x for _, x in s.samples]
        numbers += [x for _, x in s.outputs]
    return numbers


# Times


def _spaced(
    config: SchedulerConfig, request: Request, last: float, extra: int = 0, exact: bool = False
) -> list[float]:
    """The times of the steps, the noisiest first.

    Args:
        config, request: as of the scheduler.
        last: the noisiest time, of linspace.
        extra: how many more times are spaced and left out at the end.
        exact: whether times between integers are possible.
    """
    train, steps = config.count("num_train_timesteps", 1, 10000), request.steps
    kind = config.choice("timestep_spacing", "linspace", "leading", "trailing")
    if kind == "linspace":
        times = evenly(0, last, steps + extra)[::-1]
        times = [f32(t) if exact else float(round(t)) for t in times]
        return times[: len(times) - extra]
    if kind == "leading":
        ratio = train // (steps + extra)
        offset = config.count("steps_offset", 0, train)
        times = [float(i * ratio + offset) for i in range(steps + extra)][::-1]
        return times[: len(times) - extra]
    ratio_ = train / steps
    count = math.ceil(train / ratio_)
    return [float(round(train - i * ratio_)) - 1 for i in range(count)]


def _times(
    config: SchedulerConfig, request: Request, extra: int = 0, exact: bool = False
) -> list[float]:
    """The given times, or those that the configuration implies."""
    train = config.count("num_train_timesteps", 1, 10000)
    if request.timesteps is None:
        if request.steps > train:
            raise InputError(
                f"there are {train} steps of training",
                "num_inference_steps",
                f"Give at most {train}.",
            )
        times = _spaced(config, request, train - 1, extra, exact)
    else:
        times = [float(t) for t in request.timesteps]
    if not times or not all(0 <= t < train for t in times):
        raise InputError(
            f"timesteps are not from 0 to {train - 1}",
            "timesteps" if request.timesteps is not None else "num_inference_steps",
            "Give others, or set steps_offset of the scheduler to 0.",
        )
    return times


def _predicted(config: SchedulerConfig, *among: str) -> str:
    return str(config.choice("prediction_type", *among))


def _clean(kind: str, alpha: float) -> Pair:
    """(of the latents, of the model's output) of the picture that the model expects."""
    signal, noise = math.sqrt(alpha), math.sqrt(1 - alpha)
    if kind == "epsilon":
        return (1 / signal, -noise / signal) if signal else (0.0, 0.0)
    return (signal, -noise) if kind == "v_prediction" else (0.0, 1.0)


def _clean_of_sigma(kind: str, sigma: float) -> Pair:
    """As `_clean`, for latents of variance sigma² + 1."""
    if kind == "epsilon":
        return 1.0, -sigma
    total = sigma * sigma + 1
    return (1 / total, -sigma / math.sqrt(total)) if kind == "v_prediction" else (0.0, 1.0)


# Schedulers


def _pndm(config: SchedulerConfig, request: Request) -> Schedule:
    config.choice("skip_prk_steps", True)
    kind = _predicted(config, "epsilon", "v_prediction")
    levels = Levels.of(config)
    times = [int(t) for t in _times(config, request)]
    times = [*times[:2], *times[1:]]  # the second step twice, if there is one
    ratio = len(levels.alphas) // request.steps
    times = times[request.begin :]
    made: list[Step] = []
    kept: list[int] = []  # steps whose outputs count
    for i, time in enumerate(times):
        now, after = time, time - ratio
        if i == 1:
            now, after = time + ratio, time
        else:
            kept = [*kept[-3:], i]
        weights = _ADAMS[len(kept)] if i != 1 else (0.5, 0.5)
        steps = kept[::-1] if i != 1 else [1, 0]
        alpha = levels.alpha(min(now, len(levels.alphas) - 1))
        below = levels.alpha(after)
        beta = 1 - alpha
        of_sample = math.sqrt(below / alpha)
        divisor = alpha * math.sqrt(1 - below) + math.sqrt(alpha * beta * below)
        of_output = -(below - alpha) / divisor if below != alpha else 0.0
        if kind == "v_prediction":
            of_sample += of_output * math.sqrt(beta)
            of_output *= math.sqrt(alpha)
        outputs = tuple((i - k, w * of_output) for k, w in zip(steps, weights))
        samples = ((1 if i == 1 else 0, of_sample),)
        clean = _clean(kind, levels.alpha(time))
        start = _noised(levels, time)
        made.append(Step(float(time), 1.0, (0.0, 1.0), samples, outputs, 0.0, clean, start))
    return Schedule(tuple(made), 1.0, _started(levels, times))


_ADAMS = {
    1: (1.0,),
    2: (3 / 2, -1 / 2),
    3: (23 / 12, -16 / 12, 5 / 12),
    4: (55 / 24, -59 / 24, 37 / 24, -9 / 24),
}


def _started(levels: Levels, times: Sequence[float]) -> Pair:
    """(of a picture's latents, of noise) at the first time."""
    return _noised(levels, int(times[0])) if times else (1.0, 0.0)


def _noised(levels: Levels, time: int) -> Pair:
    alpha = levels.alphas[time]
    return math.sqrt(alpha), math.sqrt(1 - alpha)


def _ddim(config: SchedulerConfig, request: Request) -> Schedule:
    kind = _predicted(config, "epsilon", "v_prediction", "sample")
    levels = Levels.of(config)
    times = [int(t) for t in _times(config, request)][request.begin :]
    ratio = len(levels.alphas) // request.steps
    made = []
    for time in times:
        alpha, below = levels.alpha(time), levels.alpha(time - ratio)
        signal, noise = math.sqrt(alpha), math.sqrt(1 - alpha)
        clean = _clean(kind, alpha)
        if kind == "epsilon":
            error: Pair = (0.0, 1.0)
        elif kind == "v_prediction":
            error = (noise, signal)
        else:
            error = (1 / noise, -signal / noise)
        deviation = request.eta * math.sqrt((1 - below) / (1 - alpha) * (1 - alpha / below))
        to_clean, to_error = math.sqrt(below), math.sqrt(max(1 - below - deviation**2, 0.0))
        sample = to_clean * clean[0] + to_error * error[0]
        output = to_clean * clean[1] + to_error * error[1]
        samples, outputs = ((0, sample),), ((0, output),)
        start = _noised(levels, time)
        made.append(Step(float(time), 1.0, (0.0, 1.0), samples, outputs, deviation, clean, start))
    return Schedule(tuple(made), 1.0, _started(levels, times))


def _lcm(config: SchedulerConfig, request: Request) -> Schedule:
    kind = _predicted(config, "epsilon", "v_prediction", "sample")
    levels = Levels.of(config)
    train = len(levels.alphas)
    if request.timesteps is None:
        own = config.count("original_inference_steps", 1, train)
        original = own if request.original is None else request.original
        if original > train:
            raise InputError(
                f"the model was trained with {train} steps",
                "original_inference_steps",
                f"Give at most {train}.",
            )
        times = [(i + 1) * (train // original) - 1 for i in range(int(original * request.strength))]
        if not 1 <= request.steps <= len(times):
            raise InputError(
                f"{request.steps} steps of {len(times)} are not possible",
                "num_inference_steps",
                "Give fewer, or raise original_inference_steps or strength.",
            )
        times = times[::-1]
        picked = [math.floor(i * len(times) / request.steps) for i in range(request.steps)]
        times = [times[i] for i in picked]
    else:
        times = [int(t) for t in _times(config, request)]
    scaling = config.number("timestep_scaling", 0, 1e6)
    made = []
    for i, time in enumerate(times):
        alpha = levels.alpha(time)
        below = levels.alpha(times[i + 1]) if i + 1 < len(times) else alpha
        scaled = time * scaling
        skip, out = 0.25 / (scaled**2 + 0.25), scaled / math.sqrt(scaled**2 + 0.25)
        clean, last = _clean(kind, alpha), i == len(times) - 1
        signal, noise = (1.0, 0.0) if last else (math.sqrt(below), math.sqrt(1 - below))
        samples, outputs = ((0, signal * skip),), ((0, signal * out),)
        start = _noised(levels, time)
        made.append(Step(float(time), 1.0, clean, samples, outputs, noise, clean, start))
    return Schedule(tuple(made[request.begin :]), 1.0, _started(levels, times[request.begin :]))


def _sigmas(config: SchedulerConfig, request: Request, times: list[float]) -> list[float]:
    """The noise of each step and after the last; `times` are changed for Karras' noise."""
    levels = Levels.of(config, 2.0**-24)
    table = levels.sigmas()
    if config.fields.get("use_beta_sigmas"):
        config.choice("use_beta_sigmas", False)
    ramps = [f for f in ("use_karras_sigmas", "use_exponential_sigmas") if config.fields.get(f)]
    ramp = ramps[0] if ramps else None
    if request.sigmas is not None:
        sigmas = [f32(s) for s in request.sigmas]
        if len(sigmas) < 2 or any(not 0 <= s < math.inf for s in sigmas) or not sigmas[0]:
            raise InputError("these are no sigmas", "sigmas", "Give numbers that end with 0.")
        times[:] = [f32(time_of(s, table)) for s in sigmas[:-1]]
        return sigmas
    sigmas = [interpolated(t, table) for t in times]
    if ramp is not None:
        if request.timesteps is not None:
            raise InputError(f"timesteps are given with {ramp}", "timesteps", "Leave one out.")
        ends = (sigmas[0], sigmas[-1]) if "sigma_max" in config.fields else (table[-1], table[0])
        given = config.fields.get("sigma_max"), config.fields.get("sigma_min")
        most, least = (e if g is None else float(g) for e, g in zip(ends, given))
        if ramp == "use_karras_sigmas":
            roots = evenly(most ** (1 / 7), least ** (1 / 7), len(times))
            sigmas = [r**7 for r in roots]
        else:
            sigmas = [math.exp(s) for s in evenly(math.log(most), math.log(least), len(times))]
        times[:] = [f32(time_of(s, table)) for s in sigmas]
    final = config.fields.get("final_sigmas_type", "zero")
    if final not in ("zero", "sigma_min"):
        config.choice("final_sigmas_type", "zero", "sigma_min")
    return [f32(s) for s in [*sigmas, table[0] if final == "sigma_min" else 0.0]]


def _euler(config: SchedulerConfig, request: Request) -> Schedule:
    config.choice("interpolation_type", "linear")
    config.choice("timestep_type", "discrete")
    return _euler_steps(config, request, False)


def _euler_ancestral(config: SchedulerConfig, request: Request) -> Schedule:
    return _euler_steps(config, request, True)


def _euler_steps(config: SchedulerConfig, request: Request, ancestral: bool) -> Schedule:
    kinds = ("epsilon", "v_prediction") if ancestral else ("epsilon", "v_prediction", "sample")
    kind = _predicted(config, *kinds)
    times = [] if request.sigmas is not None else _times(config, request, exact=True)
    sigmas = _sigmas(config, request, times)
    made = []
    for time, sigma, after in zip(times, sigmas, sigmas[1:]):
        up = 0.0
        if ancestral:
            up = after * math.sqrt(max(sigma**2 - after**2, 0.0)) / sigma
        left = math.sqrt(max(after**2 - up**2, 0.0)) / sigma
        clean = _clean_of_sigma(kind, sigma)
        samples, outputs = ((0, left),), ((0, 1 - left),)
        scale = 1 / math.sqrt(sigma**2 + 1)
        made.append(Step(time, scale, clean, samples, outputs, up, clean, (1.0, sigma)))
    most = max(sigmas)
    spacing = config.fields["timestep_spacing"]
    first = most if spacing in ("linspace", "trailing") else math.sqrt(most**2 + 1)
    begin = min(request.begin, len(made))
    return Schedule(tuple(made[begin:]), first, (1.0, sigmas[begin]))


def _dpm(config: SchedulerConfig, request: Request) -> Schedule:
    kind = _predicted(config, "epsilon", "v_prediction", "sample")
    for field in ("use_exponential_sigmas", "use_lu_lambdas", "use_flow_sigmas"):
        config.choice(field, False)
    random = config.choice("algorithm_type", "dpmsolver++", "sde-dpmsolver++") != "dpmsolver++"
    heun = config.choice("solver_type", "midpoint", "heun") == "heun"
    order = config.choice("solver_order", 1, 2)
    spacing = config.fields["timestep_spacing"]
    times = _times(config, request, extra=0 if spacing == "trailing" else 1)
    sigmas = _sigmas(config, request, times)
    whole = math.floor if config.fields["beta_schedule"] == "squaredcos_cap_v2" else round
    times = [float(whole(t)) for t in times]
    final_first = (
        config.flag("euler_at_final")
        or (config.flag("lower_order_final") and len(times) < 15)
        or sigmas[-1] == 0
    )
    made = []
    for i in range(request.begin, len(times)):
        sigma, after = sigmas[i], sigmas[i + 1]
        signal = 1 / math.sqrt(after**2 + 1)  # of the picture after the step
        now = 1 / math.sqrt(sigma**2 + 1)
        part = after / sigma
        clean = _clean(kind, now**2)
        square = part**2
        of_sample = after * signal / (sigma * now) * (part if random else 1.0)
        of_clean = signal * (1 - (square if random else part))
        noise = after * signal * math.sqrt(max(1 - square, 0.0)) if random else 0.0
        outputs: Factors = ((0, of_clean),)
        last = i == len(times) - 1
        if order == 2 and i > request.begin and not (last and final_first):
            h, before = -math.log(part), math.log(sigmas[i - 1] / sigma)
            if not heun:
                bend = of_clean / 2
            elif random:
                bend = signal * ((1 - square) / (-2 * h) + 1)
            else:
                bend = signal * ((part - 1) / h + 1)
            bend *= h / before
            outputs = ((0, of_clean + bend), (1, -bend))
        start = (now, sigma * now)
        made.append(Step(times[i], 1.0, clean, ((0, of_sample),), outputs, noise, clean, start))
    begin = min(request.begin, len(times))
    signal = 1 / math.sqrt(sigmas[begin] ** 2 + 1)
    return Schedule(tuple(made), 1.0, (signal, sigmas[begin] * signal))


SCHEDULERS = {
    "PNDMScheduler": _pndm,
    "DDIMScheduler": _ddim,
    "EulerDiscreteScheduler": _euler,
    "EulerAncestralDiscreteScheduler": _euler_ancestral,
    "DPMSolverMultistepScheduler": _dpm,
    "LCMScheduler": _lcm,
}
"""{class of diffusers: function(config, request) -> Schedule}."""
TAKES = {
    "timesteps": ("EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "LCMScheduler"),
    "sigmas": ("EulerDiscreteScheduler",),
}
"""{option: the schedulers that take it}."""
