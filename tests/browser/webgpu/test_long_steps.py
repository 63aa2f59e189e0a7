"""A package of a few kB whose one step takes hours: the GPU, which all pages share, is not given it
at once.
"""

from hostile.packages import decoder, feeds, joined, plan, slot, split, step, with_sums

VOCABULARY = 4096


def endless(base: bytes, m: int = 1024, k: int = 1 << 24) -> bytes:
    """The package with its texts, and with one plan: a product of m x m x k."""
    manifest, data = split(base)
    product = step(
        "gemm",
        {"batch0": 1, "batch1": 1, "m": m, "n": m, "k": k, "b_row": 1, "y_row": m}
        | {"b_type": 1, "alpha": 1.0, "beta": 0.0},
        [(4, 0), (5, 0), None, None, (6, 0), None],
    )
    sizes = [256, 4 * k, 4 * m * m]
    slots = [(64, False), (4 * VOCABULARY, True), *((n, True) for n in sizes)]
    temps = [slot(name, "temp", n) for name, n in zip("tby", sizes)]
    made = decoder(
        [(8, plan(slots, [product]), [*feeds(8, VOCABULARY), *temps])],
        vocabulary=VOCABULARY,
        extra={"target": "webgpu"},
    )
    out, content = split(made)
    content = bytearray(content)
    texts = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
    for name in texts:
        at, size = manifest["files"][name]
        content += bytes(-len(content) % 64)
        out["files"][name] = [len(content), size]
        content += data[at : at + size]
    content += bytes(-len(content) % 64)
    out["files"]["weights"] = [len(content), 0]
    return joined(with_sums(out, bytes(content)), bytes(content))


def test_other_sessions_go_on(gpu_visit, gpu_files):
    (gpu_files / "endless.edge").write_bytes(endless((gpu_files / "gpu.edge").read_bytes()))
    got = gpu_visit.run(
        """const on = { device: 'webgpu', cache_files: false };
        const good = await ew.pipeline('text-generation', '/files/gpu.edge', on);
        const write = async () => (await good('Once upon a time',
            { max_new_tokens: 4, do_sample: false }))[0].generated_text;
        const before = await write();
        const bad = await ew.pipeline('text-generation', '/files/endless.edge', on);
        const call = bad('Once upon', { max_new_tokens: 1 }).then(() => 'ended', (e) => e.name);
        await new Promise((done) => setTimeout(done, 500));
        const after = await write();
        await bad.dispose();
        const text = await write();
        return { same: before === after && before === text, call: await call };"""
    )
    assert got == {"same": True, "call": "Aborted"}, got
