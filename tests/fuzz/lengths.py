"""The lengths that one session sees, and in which order."""

from __future__ import annotations

MAX_RUNS = 8


def draw_lengths(rng):
    """[{"b", "n", "m"}], all different: each differs from the one before as a text grows, a batch
    fills, or a cache does.
    """
    low = 0 if rng.random() < 0.08 else 1
    # Plans for a range of lengths end at 256 or a higher power of two.
    longest = rng.choices((9, 40, 300, 600), (90, 5, 4, 1))[0]
    now = {"b": rng.randint(1, 3), "n": rng.randint(1, 7), "m": rng.randint(low, 7)}
    out = [now]
    for _ in range(60):
        if len(out) == (rng.choice((3, 4, 5))):
            break
        now = dict(now)
        how = rng.randrange(8)
        if how in (0, 1):
            now["n"] += 1
        elif how == 2:
            now["m"] += 1
        elif how == 3:
            now["b"] += 1
        elif how == 4:
            now["n"] = rng.randint(1, longest)
        elif how == 5:
            now["n"], now["m"] = now["n"] + 1, now["m"] + 1
        elif how == 6:
            now["m"] = rng.randint(low, 9)
        else:
            now = {"b": rng.randint(1, 4), "n": rng.randint(1, 9), "m": rng.randint(low, 9)}
        if now not in out:
            out.append(now)
    return out


def draw_order(rng, count):
    """Numbers of sets of lengths, some repeated; a set four times in a row is recorded."""
    order = list(range(count))
    if rng.random() < 0.4:
        rng.shuffle(order)
    while len(order) < MAX_RUNS - 3 and rng.random() < 0.8:
        order.insert(rng.randrange(len(order) + 1), rng.randrange(count))
    if rng.random() < 0.6:
        at = rng.randrange(len(order))
        order[at:at] = [order[at]] * 3
    return order[:MAX_RUNS]
