"""Part of the case `start`: the time from navigation to the first result of an .onnx file, on a
first and a second visit, for models of 1 to 90 MB.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .browser import WORK, Bench, say
from .contenders import ONE, ORT_ONE
from .real import PAGES, address, write_feeds, write_page
from .real_models import FOLDER, MODELS, RealModel
from .visits import FIRST, SECOND, Visits, cells, row_name

FIRST_RESULT = "first_result"  # name of the result
TITLES = (
    "wake-word head",
    "speech embedding (CNN)",
    "EfficientNet-Lite0",
    "MiniLM, 128 tokens, int8",
    "Whisper tiny.en encoder, 30 s",
    "MiniLM, 128 tokens",
)


def visit_in_turns(
    bench: Bench, model: RealModel, feeds: str, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Visits twice per round and engine, each round in new profiles.

    Returns {FIRST or SECOND: {contender: milliseconds}}.
    """
    times: dict[str, dict[str, list[float]]] = {FIRST: {}, SECOND: {}}
    for _round in range(rounds):
        for who in PAGES:
            visits = Visits(bench, address(bench, who, model, feeds))
            try:
                for what in (FIRST, SECOND):
                    times[what].setdefault(who, []).append(visits.visit()["first"])
            except Exception as e:
                bench.failed(f"{who}, {model.title}", e)
            finally:
                visits.close()
    return times


def first_results(bench: Bench, rounds: int) -> dict[str, dict[str, Any]]:
    """The result FIRST_RESULT of the case, or nothing if no model is installed."""
    models = [m for m in MODELS if m.title in TITLES and m.path.exists()]
    if not models:
        say(f"  no first results: no model of tests/bench/real_models.py is in {FOLDER}")
        return {}
    folder = WORK / "first"
    folder.mkdir(parents=True, exist_ok=True)
    write_page()
    table, values = [], {}
    for number, model in enumerate(sorted(models, key=lambda m: m.path.stat().st_size)):
        write_feeds(model.feeds(np.random.default_rng(number)), folder / str(number))
        times = visit_in_turns(bench, model, f"/bench/first/{number}", rounds)
        for what, by in times.items():
            values[row_name(model.title, what)] = by
        size = f"{model.path.stat().st_size / 1e6:.3g}"
        parts = (cells(times[what], ONE, ORT_ONE) for what in (FIRST, SECOND))
        table.append([model.title, size, *(cell for part in parts for cell in part)])
        say(f"  {' | '.join(table[-1])}")
    columns = [f"{what}: {who}" for what in (FIRST, SECOND) for who in ("Edgewise, ms", "ort, ms")]
    return {
        FIRST_RESULT: {
            "title": "First result of an .onnx file",
            "unit": "ms",
            "values": values,
            "columns": ["one thread", "MB", *columns[:2], "", *columns[2:], ""],
            "table": table,
            "notes": [
                "Milliseconds from navigation to the first result, with the defaults of both"
                " packages, files on a plain local server. A first visit has a new browser profile;"
                " Edgewise then starts Python and compiles. A second visit is a new page in the"
                " same profile."
            ],
        }
    }
