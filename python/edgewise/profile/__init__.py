"""Where the time of runs goes: by step, node and operator, beside what the machine could do, and as
a trace for Perfetto.

with session.profile() as p:          # InferenceSession, CausalLM, TextGenerationPipeline,
TrainingSession, Trainer
    session.run(None, feeds)
print(p)
p.save("trace.json")                  # open it on https://ui.perfetto.dev
"""

from .profile import Profile, Watch

__all__ = ["Profile", "Watch"]
