"""One pipeline of a page, many things in turn: prompts of other lengths, adapters, training in
between. Each text is that of a new pipeline in the same state.
"""

import random

from .harness import train

WORDS = "Once upon a time there was an old robot, who had a lamp and gave it to the cat.".split()

SCRIPT = """
    const texts = async (pipe, prompts) => {
      const found = [];
      for (const prompt of prompts)
        found.push((await pipe(prompt, { max_new_tokens: 8, do_sample: false }))[0].generated_text);
      return found;
    };
    const options = { max_steps: 3, learning_rate: 5e-3, r: 4, lora_alpha: 8 };
    const files = {};
    const differences = [];
    for (const { adapter, learn, prompts } of arg.turns) {
      if (learn) {
        await ew.fineTune(p, learn, { ...options, name: adapter });
        files[adapter] = await p.saveAdapter(adapter);
      }
      await p.setAdapter(adapter);
      const found = await texts(p, prompts);
      const other = await ew.pipeline("text-generation", "/files/trainable.edge", {
        flavour: "simd128",
      });
      if (adapter !== null) {
        await other.loadAdapter(adapter, files[adapter]);
        await other.setAdapter(adapter);
      }
      const wanted = await texts(other, prompts);
      await other.dispose();
      found.forEach((text, i) => {
        if (text !== wanted[i]) differences.push([adapter, prompts[i], text, wanted[i]]);
      });
    }
    await p.dispose();
    return { differences };
"""


def test_prompts_adapters_and_training_in_turn(visit, server, trainable):
    r = random.Random(3)

    def text(most):
        return " ".join(r.choice(WORDS) for _ in range(r.randrange(1, most)))

    known, turns = {None}, []
    for i in range(7):
        adapter = r.choice(["a", "b", None]) if i else "a"
        learn = None
        if adapter is not None and (adapter not in known or r.random() < 0.3):
            known.add(adapter)
            learn = text(120)
        prompts = [text(30) for _ in range(2)]
        turns.append({"adapter": adapter, "learn": learn, "prompts": prompts})
    assert {t["adapter"] for t in turns} == {"a", "b", None}
    got = train(visit(server), SCRIPT, turns=turns)
    assert got == {"differences": []}, str(got)[:900]
