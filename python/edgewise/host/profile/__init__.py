"""Profiles: the time of runs by step, node and operator, compared with the limits of the machine,
and as a trace for Perfetto.

    with session.profile() as profile:
        session.run(None, feeds)
    print(profile)
    profile.save("trace.json")  # for https://ui.perfetto.dev

InferenceSession, CausalLM, TextGenerationPipeline, TrainingSession and Trainer have `profile`.
"""

from .profile import Profile, Watch

__all__ = ["Profile", "Watch"]
