"""Text, model and scripts for the tests of training in pages."""

BATCH, SEQUENCE = 2, 32


TEXT = " ".join(
    f"The {a} robot number {i} had a {b} and gave it to the {c}."
    for i, (a, b, c) in enumerate(
        [
            ("old", "lamp", "cat"),
            ("small", "boat", "owl"),
            ("merry", "cake", "moon"),
            ("rusty", "hat", "queen"),
        ]
        * 6
    )
)


LOAD = """
    const p = await ew.pipeline("text-generation", "/files/trainable.edge", {
      flavour: "simd128",
      ...arg?.load,
    });
    const greedy = async () =>
      (await p("Once upon a time", { max_new_tokens: 16, do_sample: false }))[0].generated_text;
"""


def train(visit, body, **arg):
    got = visit.run(LOAD + body, {"text": TEXT, **arg})
    return got


RUN = {
    "max_steps": 6,
    "seed": 3,
    "schedule": "linear",
    "checkpoint": {"name": "run 1", "every": 2},
    "gradient_accumulation_steps": 2,
}


WHOLE = (
    "const {checkpoint, ...o} = arg.o; const r = await ew.fineTune(p, arg.text, o); const text ="
    " await greedy(); await p.dispose(); return {losses: r.losses, text};"
)


RESUME = """
    const events = [];
    const r = await ew.fineTune(p, arg.text, {
      ...arg.o,
      resume: true,
      onStep: (e) => events.push(e.step),
    });
    const text = await greedy();
    await p.dispose();
    return { losses: r.losses, events, text, kept: await ew.checkpoints() };
"""
