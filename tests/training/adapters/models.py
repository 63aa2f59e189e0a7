"""Sessions, models and results that the tests of adapters share."""

import numpy as np
from edgewise.training.program import Program
from edgewise.training.session import TrainingSession

from .. import llama


def session_of(kind, lora, engine=None, batch=2, sequence=16, seed=0, **more):
    g = llama.graph(kind)
    program = Program(
        g,
        **llama.shapes(g, batch, sequence),
        loss="causal_lm",
        lora=lora,
        trainable=more.pop("trainable", []),
        **more,
    )
    program.plan("accumulate")
    return TrainingSession(program, engine, seed)


def close(got, want, tol, what=""):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    scale = max(np.abs(want).max(), 1e-4)
    assert np.abs(got - want).max() <= tol * scale, (
        f"{what}: off by {np.abs(got - want).max() / scale:.1e}"
    )


def logits(lm, ids):
    s = lm.open()
    try:
        return np.array(lm.logits(lm.forward(s, ids)))
    finally:
        lm.close(s)


def run_ort(session, ids):
    """The last token's logits."""
    feeds = {}
    for i in session.get_inputs():
        if "past" in i.name:
            feeds[i.name] = np.zeros(
                [1 if k == 0 else d if isinstance(d, int) else 0 for k, d in enumerate(i.shape)],
                np.float16 if "float16" in i.type else np.float32,
            )
    ids = np.array([ids])
    known = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(ids.shape[1])[None],
    }
    feeds |= {i.name: known[i.name] for i in session.get_inputs() if i.name in known}
    return session.run(["logits"], feeds)[0][0, -1].astype(np.float64)
