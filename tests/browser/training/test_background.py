"""Training in the background of a page."""

from .harness import train


def test_the_order_of_updates(visit, server, trainable):
    """Updates and evaluations come after calls that wait; others work while a run is paused."""
    got = train(
        visit(server),
        """
            const trainer = await ew.Trainer.create(p, arg.text, {
              priority: "background",
              max_steps: 3,
              evaluation: arg.text.slice(0, 300),
            });
            const text = (one, n) =>
              one("The", { max_new_tokens: n, min_new_tokens: n, do_sample: false });
            const ended = [];
            const named = (name, call) => call.then(() => ended.push(name));
            await Promise.all([
              named("first", text(p, 200)),
              named("step", trainer.step()),
              named("evaluate", trainer.evaluate()),
              named("a", text(p, 3)),
              named("b", text(p, 3)),
            ]);
            await trainer.pause();
            const run = trainer.run();
            const other = await ew.pipeline("text-generation", "/files/trainable.edge", {
              flavour: "simd128",
              priority: "background",
            });
            const paused = await text(other, 20);
            const { step } = await trainer.result();
            await trainer.resume();
            const during = await text(other, 20);
            const { losses } = await run;
            await trainer.close();
            await Promise.all([p.dispose(), other.dispose()]);
            return { ended, step, losses, paused, during };
        """,
    )
    assert got["ended"] == ["first", "a", "b", "step", "evaluate"]
    assert got["step"] == 1 and len(got["losses"]) == 3
    assert got["paused"] == got["during"]
