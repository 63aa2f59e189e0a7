"""Case `ops`: single operators, against onnxruntime-web and against what the machine can do."""
from __future__ import annotations

import json
import time

import numpy as np
import onnx

from .browser import WORK, say
from .models import OPS, one_op
from .stats import ratio, show, summary

CONTENDERS = {"Edgewise simd128": ("edgewise.js", ("simd128", 1)), "Edgewise relaxed": ("edgewise.js", ("relaxed-threads", 1)), "Edgewise relaxed, 2 threads": ("edgewise.js", ("relaxed-threads", 2)),
              "onnxruntime-web": ("ort.js", (1,)), "onnxruntime-web, 2 threads": ("ort.js", (2,))}
RATIOS = [("Edgewise simd128", "onnxruntime-web"), ("Edgewise relaxed", "onnxruntime-web"), ("Edgewise relaxed, 2 threads", "onnxruntime-web, 2 threads")]
TOLERANCE = 1e-3


def compile_op(model, target):
    """The plan and its weights in one file, and a description of both, for page/edgewise.js."""
    from edgewise.onnx import BytesSource, read_model
    from edgewise.plan import compile_graph
    graph = read_model(BytesSource(model, "op"))
    plan, _ = compile_graph(graph, {i.name: list(i.shape) for i in graph.input_names()}, {i.name: i.dtype for i in graph.input_names()})
    data, slots = bytearray(plan.data), []
    for slot in plan.slots:
        data += bytes(-len(data) % 64)
        slots.append({"kind": slot.kind, "size": slot.nbytes, "at": len(data)})
        if slot.kind == "weight":
            data += slot.tensor.bytes()
    target.with_suffix(".bin").write_bytes(data)
    target.with_suffix(".json").write_text(json.dumps({"plan": [0, len(plan.data)], "slots": slots}))


def run(bench, cases, rounds, seconds):
    folder = WORK / "ops"
    folder.mkdir(parents=True, exist_ok=True)
    limits = {f: one for f in ("simd128", "relaxed") if (one := bench.limit(f))}
    peaks = {f: {"flops": [], "bandwidth": []} for f in limits}
    table, raw, version = [], {}, ""
    end = time.monotonic() + seconds
    for index, name in enumerate(OPS):
        rows, n, chain, flops, moved = OPS[name]
        path = folder / f"op{index}"
        model = one_op(name)
        onnx.save(model, path.with_suffix(".onnx"))
        contenders, results, times = {}, {}, {}
        try:
            compile_op(model.SerializeToString(), path)
        except Exception as e:
            bench.failed(f"Edgewise, {name}", e)
        for who, (script, args) in CONTENDERS.items():
            one = bench.contend(f"{who}, {name}", script, "op", f"/bench/ops/op{index}", *args, *([[rows, n]] if script == "ort.js" else []))
            if one:
                contenders[who], times[who] = one, []
                version = (one.opened or {}).get("version") or version
        for number in range(-1, rounds):
            if number >= 2 and time.monotonic() > end:
                break
            for who, one in list(contenders.items()):
                try:
                    ms = one.call("opTime") / chain
                    if number < 0:
                        results[who] = one.floats("opResult")
                    else:
                        times[who].append(ms)
                except Exception as e:
                    bench.failed(f"{who}, {name}", e)
                    del contenders[who]
            for flavour, one in limits.items():
                for key, value in one.call("measure").items():
                    peaks[flavour][key].append(value)
        for one in contenders.values():
            one.close()
        reference = results.get("onnxruntime-web")
        for who, y in results.items():
            difference = float(np.max(np.abs(y - reference)) / max(1e-6, np.max(np.abs(reference)))) if reference is not None else 0
            if not difference <= TOLERANCE:
                bench.trouble.append(f"{who}, {name}: its result differs by {difference:.3g}: NOT COMPARABLE")
        times = {who: t for who, t in times.items() if t}
        ratios = {f"{a} over {b}": ratio(times.get(b), times.get(a)) for a, b in RATIOS}  # speeds: times the other way round
        raw[name] = {"ms": {who: summary(t) for who, t in times.items()}, "ratios": ratios}
        ours = times.get("Edgewise relaxed")
        share = "–"
        if ours and "relaxed" in peaks:
            best = np.median(ours) * 1e-3
            work, what, limit = (flops, "multiply-adds", "flops") if flops else (moved, "bandwidth", "bandwidth")
            share = f"{show(100 * work / best / 1e9 / np.median(peaks['relaxed'][limit]), 2)} % of {what}"
        table.append([name, *(show(np.median(times[w])) if w in times else "–" for w in CONTENDERS), *(f"**{r['median']:.2f}×**" if r else "–" for r in ratios.values()), share])
        say(f"  {name}: " + ", ".join(f"{w} {show(np.median(t))} ms" for w, t in times.items()))
    for one in limits.values():
        one.close()
    notes = [f"Limits in the same rounds, 1 thread: {f}: {show(np.median(p['flops']))} GFLOP/s multiply-add from registers, {show(np.median(p['bandwidth']))} GB/s read of 64 MB." for f, p in peaks.items() if p["flops"]]
    notes += ["Milliseconds per op, input copied in and output copied out, as a session's run does; several in a chain, weights of their own each ("
              + ", ".join(f"{n}: {o[2]}" for n, o in OPS.items()) + ").",
              "The last column takes the bytes that must be moved at least once (weights, or input and output); results within a cache can exceed 100 %.",
              f"Results agree within {TOLERANCE:g} of the largest value, or it says so here."]
    return {"ops": {"title": "Single operators", "peer": f"onnxruntime-web {version}", "columns": ["ms per op", *CONTENDERS, "simd128 : ORT", "relaxed : ORT", "2 threads : ORT", "relaxed, of the machine's limit"],
                    "table": table, "raw": raw, "limits_raw": {f: {k: summary(v) for k, v in p.items() if v} for f, p in peaks.items()}, "notes": notes}}
