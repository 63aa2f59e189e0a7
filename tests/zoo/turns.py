"""Inputs of other shapes for a model with stored inputs: its batch and its lengths, in turn."""

import re

import numpy as np

# (batch, what is added to each length) in turn, the first shape again at the end
TURNS = [(1, 0), (1, 1), (2, 0), (3, 0), (3, 2), (1, 0)]
STEPS = (1, 16, 32, 320)  # lengths of some models must be multiples
MAX = 1 << 21  # elements of an input
SUM = re.compile(r"\s*\+\s*")


def cases_in_turn(infos, stored, run):
    """Yields (feeds, what a reference gives) for each of TURNS that the reference takes.

    Args:
        infos: inputs with `name` and `shape`, as of onnxruntime.
        stored: {name: array} of inputs that the model takes.
        run: gives the outputs of the reference for feeds; None where it does not take them.
    """
    # transformers' exporter writes fixed sizes as names
    free = {
        i.name: [d if isinstance(d, str) and not d.isdigit() else None for d in i.shape]
        for i in infos
    }
    sizes = _sizes(free, stored)
    batch = {n for n in sizes if "batch" in n.lower()} or _first_only(free)
    lengths = [
        n
        for n in sizes
        if n not in batch and not re.search("dim|head|hidden", n) and not _parts(n, sizes)
    ]
    if any(_tells_length(name, x) for name, x in stored.items()):
        lengths = []  # others would contradict it
    choices = [lengths, *([n] for n in lengths)] if len(lengths) > 1 else [lengths]
    for which in choices if lengths else ():
        for step in STEPS:
            made = [
                _feeds(free, stored, sizes, _sizes_at(turn, which, step, batch, sizes), number)
                for number, turn in enumerate(TURNS)
            ]
            results = {}
            for number in (1, 4, 0, 2, 3, 5):  # other lengths first
                results[number] = made[number] and run(made[number])
                if not results[number] and number in (1, 4):
                    break
            else:
                yield from ((made[i], results[i]) for i in range(len(TURNS)) if results[i])
                return
    for number, (items, _) in enumerate(TURNS):  # no length can change, but perhaps the batch
        sized = _sizes_at((items, 0), [], 0, batch, sizes)
        feeds = _feeds(free, stored, sizes, sized, number)
        if feeds and (found := run(feeds)):
            yield feeds, found


def _tells_length(name, x):
    """Whether an input is a number of positions that no name says which."""
    known = "seqlens_k", "total_sequence_length", "num_logits_to_keep"
    return x.dtype.kind == "i" and x.ndim <= 1 and x.size == 1 and not any(k in name for k in known)


def _sizes_at(turn, which, step, batch, sizes):
    items, more = turn
    return {
        n: items if n in batch else s + more * step if n in which else s for n, s in sizes.items()
    }


def _sizes(free, stored):
    """{name of a free dimension: its size in the stored inputs}, without sums of others."""
    sizes = {}
    for name, dims in free.items():
        for d, size in zip(dims, stored[name].shape):
            if d is not None and not SUM.search(d):
                sizes.setdefault(d, size)
    return sizes


def _first_only(free):
    """Names that are the first dimension of inputs, and no other one."""
    later = {d for dims in free.values() for d in dims[1:]}
    return {dims[0] for dims in free.values() if len(dims) > 1 and dims[0]} - later


def _feeds(free, stored, sizes, now, number):
    """Feeds of these sizes; None where they are too large."""
    random, feeds = np.random.default_rng(number), {}
    length = _lengths_of(free, stored, sizes, now)
    for name, x in stored.items():
        shape = [length(d, size) for d, size in zip(free[name], x.shape)]
        if np.prod(shape, dtype=np.float64) > MAX:
            return None
        feeds[name] = _values(name, x, shape, random)
    total = next((f.shape[-1] for n, f in feeds.items() if n == "attention_mask"), None)
    for name, f in feeds.items():
        if "seqlens_k" in name and total:
            feeds[name] = np.full_like(f, total - 1)
        if name == "total_sequence_length" and total:
            feeds[name] = np.full_like(f, total)
    return feeds


def _lengths_of(free, stored, sizes, now):
    def length(d, size):
        if d is None:
            return size
        if not SUM.search(d):
            # the sum of two others, under a name of its own
            pair = _parts(d, sizes)
            return sum(now[p] for p in pair) if pair else now[d]
        terms = SUM.split(d)
        return sum(int(t) if t.isdigit() else now.get(t, sizes.get(t, 0)) for t in terms)

    return length


def _parts(name, sizes):
    if "total" not in name.lower():
        return None
    past = [n for n in sizes if "past" in n.lower() and "total" not in n.lower()]
    rest = [n for n in sizes if re.fullmatch(r"seq(uence)?(_len(gth)?)?", n.lower())]
    if past and rest and sizes[past[0]] + sizes[rest[0]] == sizes[name]:
        return past[0], rest[0]
    return None


def _values(name, x, shape, random):
    if x.dtype.kind in "iub" and x.size and shape != list(x.shape):
        if "position" in name:
            return np.broadcast_to(np.arange(shape[-1], dtype=x.dtype) + x.min(), shape).copy()
        if "mask" in name:
            return np.ones(shape, x.dtype)
        return random.choice(x.reshape(-1), shape).astype(x.dtype)
    if x.dtype.kind in "iubO" or x.dtype.kind == "U":
        return x
    spread = float(np.nanstd(x.astype("f8"))) if x.size else 1.0
    return (random.standard_normal(shape) * (spread or 1.0)).astype(x.dtype)
