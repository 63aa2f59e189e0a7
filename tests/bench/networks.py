"""Cases `vision` and `encoder`: complete networks in float32 and int8, compared with
onnxruntime-web on the same files.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import numpy as np

from .browser import WORK, Contender, say
from .contenders import (
    EDGEWISE,
    NATIVE,
    NATIVE_TWO,
    ONE,
    ORT_ONE,
    ORT_TWO,
    SIMD,
    TORCH,
    TWO,
    measure,
    native_session,
)
from .stats import cell, ratio, show

RATIOS = {
    "simd128 : ORT": (SIMD, ORT_ONE),
    "relaxed : ORT": (ONE, ORT_ONE),
    "2 threads : ORT": (TWO, ORT_TWO),
    "2 threads : 1": (TWO, ONE),
}
# case: {title: (model, batch, method of int8 quantization)}
CASES = {
    "vision": {
        "MobileNetV2, 224×224": ("mobilenet", 1, "static"),
        "ResNet-50, 224×224": ("resnet", 1, "static"),
        "ViT-B/16, 224×224": ("vit", 1, "dynamic"),
    },
    "encoder": {
        "MiniLM, 1 × 128 tokens": ("minilm", 1, "dynamic"),
        "MiniLM, 8 × 128 tokens": ("minilm", 8, "dynamic"),
    },
}
SHOWN = (SIMD, ONE, TWO, ORT_ONE, ORT_TWO, NATIVE, NATIVE_TWO, TORCH)
TOLERANCE = {"float32": 1e-3, "int8": 0.1}
VOCABULARY, TOKENS, CLASSES = 30522, 128, 1000


def network(name):
    """A torch module with random weights in the scale of trained ones; batch normalizations have
    the statistics of random images.
    """
    import torch
    from transformers import (
        BertConfig,
        BertModel,
        MobileNetV2Config,
        MobileNetV2ForImageClassification,
        ResNetConfig,
        ResNetForImageClassification,
        ViTConfig,
        ViTForImageClassification,
    )

    torch.manual_seed(0)
    if name == "minilm":
        return BertModel(
            BertConfig(
                vocab_size=VOCABULARY,
                hidden_size=384,
                num_hidden_layers=6,
                num_attention_heads=12,
                intermediate_size=1536,
            ),
            add_pooling_layer=False,
        ).eval()
    if name == "vit":
        return ViTForImageClassification(ViTConfig(num_labels=CLASSES)).eval()
    net = (
        MobileNetV2ForImageClassification(MobileNetV2Config(tf_padding=False, num_labels=CLASSES))
        if name == "mobilenet"
        else ResNetForImageClassification(ResNetConfig(num_labels=CLASSES))
    )
    for m in net.modules():
        if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear)):
            torch.nn.init.kaiming_normal_(m.weight)
        elif isinstance(m, torch.nn.BatchNorm2d):
            m.momentum = 1.0
    with torch.no_grad():
        net.train()(torch.randn(2, 3, 224, 224))
    return net.eval()


def feeds(name, batch, seed=1):
    """Returns {input: array}. Most of 8 texts are padded."""
    random = np.random.default_rng(seed)
    if name != "minilm":
        return {"pixel_values": random.standard_normal((batch, 3, 224, 224), np.float32)}
    lengths = np.linspace(TOKENS, TOKENS // 2, batch).astype(np.int64)
    mask = (np.arange(TOKENS) < lengths[:, None]).astype(np.int64)
    return {
        "input_ids": random.integers(1, VOCABULARY, (batch, TOKENS)) * mask,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(mask),
    }


def export(name, path):
    """Exports as optimum does: torch's TorchScript exporter, opset 18, dynamic batch and length."""
    import torch

    example = feeds(name, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network(name),
            tuple(map(torch.from_numpy, example.values())),
            str(path),
            input_names=list(example),
            output_names=["y"],
            dynamo=False,
            opset_version=18,
            dynamic_axes={
                n: {0: "batch"} | ({1: "tokens"} if name == "minilm" else {}) for n in example
            },
        )


def quantize(name, source, path, how):
    """Quantizes with onnxruntime's tools: `dynamic` (activations at run time) or `static` (QDQ,
    per-channel weights, ranges from random images).
    """
    from onnxruntime import quantization as q

    if how == "dynamic":
        return q.quantize_dynamic(source, path, weight_type=q.QuantType.QInt8)

    class Images(q.CalibrationDataReader):
        def __init__(self):
            self.images = iter([feeds(name, 1, seed) for seed in (2, 3, 4)])

        def get_next(self):
            return next(self.images, None)

    q.quantize_static(
        source,
        path,
        Images(),
        quant_format=q.QuantFormat.QDQ,
        per_channel=True,
        activation_type=q.QuantType.QUInt8,
        weight_type=q.QuantType.QInt8,
    )


def made(path, *sources, make):
    """Writes the file at `path` if it is older than its sources; returns the path."""
    if not path.exists() or path.stat().st_mtime < max(Path(s).stat().st_mtime for s in sources):
        say(f"  making {path.name}")
        part = path.with_name("part-" + path.name)
        make(part)
        part.rename(path)
    return path


def model_file(name, how):
    """Returns the ONNX file of a network. how: None for float32, or the method of int8
    quantization.
    """
    folder = WORK / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    plain = made(folder / f"{name}.onnx", __file__, make=lambda part: export(name, part))
    return (
        plain
        if how is None
        else made(
            folder / f"{name}-int8.onnx", plain, make=lambda part: quantize(name, plain, part, how)
        )
    )


def write_run(model, inputs, target):
    """Writes the inputs of a run for page/edgewise.js and page/ort.js.

    TARGET.bin has the inputs, and for Edgewise the plan and its weights; TARGET.json has their
    offsets. Returns the plan.
    """
    from edgewise.compiler.plan import compile_graph
    from edgewise.compiler.plan.notes import add_notes
    from edgewise.onnx import FileSource, read_model

    parts, where, at = [], {"inputs": [], "slots": []}, 0

    def add(data):
        nonlocal at
        parts.append(bytes(-at % 64) + bytes(data))
        begin, at = at + -at % 64, at + len(parts[-1])
        return [begin, len(data)]

    for name, a in inputs.items():
        where["inputs"].append(
            {"name": name, "type": str(a.dtype), "dims": list(a.shape), "at": add(a.tobytes())}
        )
    try:
        plan, _ = compile_graph(
            read_model(FileSource(str(model))),
            {n: list(a.shape) for n, a in inputs.items()},
            {n: {"float32": 1, "int64": 7}[str(a.dtype)] for n, a in inputs.items()},
        )
        where["plan"], where["notes"] = add(plan.data), add(add_notes(None, {"model": plan.notes}))
        for slot in plan.slots:
            where["slots"].append(
                {
                    "name": slot.name,
                    "kind": slot.kind,
                    "size": slot.nbytes,
                    **({"at": add(slot.tensor.bytes())[0]} if slot.kind == "weight" else {}),
                }
            )
    finally:
        target.with_suffix(".bin").write_bytes(b"".join(parts))
        target.with_suffix(".json").write_text(json.dumps(where))
    return plan


def difference(y, reference, kind):
    """For float32 the largest difference relative to the largest value. For int8, in which single
    values may round either way, the norm of the difference relative to the norm.
    """
    if kind == "int8":
        return float(np.linalg.norm(y - reference) / np.linalg.norm(reference))
    return float(np.max(np.abs(y - reference)) / np.max(np.abs(reference)))


def run(bench, cases, rounds, seconds):
    pages = {
        who: Contender(bench, who, "ort.js" if who in (ORT_ONE, ORT_TWO) else "edgewise.js")
        for who in (*EDGEWISE, ORT_ONE, ORT_TWO)
    }
    try:
        return {case: run_case(bench, case, pages, rounds, seconds) for case in cases}
    finally:
        for one in pages.values():
            one.close()


def torch_run(name, inputs):
    """Returns a function that runs the exported module in PyTorch with one thread."""
    import torch

    net = network(name)
    inputs = {n: torch.from_numpy(a) for n, a in inputs.items()}

    def run():
        torch.set_num_threads(1)
        with torch.inference_mode():
            return net(**inputs)[0].numpy()

    return run


def native_run(file, inputs, threads):
    session = native_session(file, threads)
    return lambda: session.run(None, inputs)[0]


# long: the rounds of one case and its report
def run_case(bench, case, pages, rounds, seconds):
    table, values, version = [], {}, ""
    entries = [
        (title, kind, name, batch, how if kind == "int8" else None)
        for title, (name, batch, how) in CASES[case].items()
        for kind in TOLERANCE
    ]
    files = [model_file(name, how) for _, _, name, _, how in entries]
    end = time.monotonic() + seconds
    for i, ((title, kind, name, batch, how), file) in enumerate(zip(entries, files)):
        title = f"{title}, {kind}" + (f" ({how})" if how else "")
        target, inputs = file.with_name(f"{file.stem}-{batch}"), feeds(name, batch)
        url = [f"/bench/networks/{target.name}", f"/bench/networks/{file.name}"]
        calls = {ORT_ONE: (url, 1), ORT_TWO: (url, 2)}
        try:
            write_run(file, inputs, target)
            calls = {**{who: (url, *how) for who, how in EDGEWISE.items()}, **calls}
        except Exception as e:
            bench.failed(f"Edgewise, {title}", e)
        native = {
            NATIVE: lambda: native_run(file, inputs, 1),
            NATIVE_TWO: lambda: native_run(file, inputs, 2),
        } | ({TORCH: lambda: torch_run(name, inputs)} if kind == "float32" else {})
        times, cpu, versions, _ = measure(
            bench,
            title,
            pages,
            calls,
            native,
            rounds,
            (end - time.monotonic()) / (len(entries) - i),
            lambda y, reference: (difference(y, reference, kind), TOLERANCE[kind]),
        )
        version = versions.get(ORT_ONE) or version
        values[title] = times
        ratios = [
            ratio(times.get(b), times.get(a)) for a, b in RATIOS.values()
        ]  # the inverse ratio of times is the ratio of speeds
        by_cpu = [ratio(cpu.get(ORT_ONE), cpu.get(who)) for who in (SIMD, ONE)]
        table.append(
            [
                title,
                *(cell(times.get(w)) for w in SHOWN),
                *(f"**{r['median']:.2f}×**" if r else "–" for r in ratios),
                " / ".join(f"{r['median']:.2f}×" if r else "–" for r in by_cpu),
            ]
        )
        say(f"  {title}: " + ", ".join(f"{w} {show(np.median(t))} ms" for w, t in times.items()))
    notes = [
        (
            "Milliseconds per run, as a session's: inputs copied in, output copied out."
            " Architectures of transformers with random weights, exported by torch (TorchScript,"
            " opset 18); int8 by onnxruntime.quantization: static is QDQ with 8-bit activations and"
            " weights per channel, dynamic quantizes activations at run time. PyTorch runs the"
            " module that was exported."
        ),
        (
            f"Every contender gets the same file. Results agree within {TOLERANCE['float32']:g} of"
            f" the largest value (int8: norms within {TOLERANCE['int8']:g}), or it says so here."
        ),
        (
            "Last column: the same ratios of one thread in processor time, which hardly moves with"
            " the machine's load."
        ),
        (
            "Not comparable: TensorFlow.js and jax-js read no ONNX files; the same networks written"
            " for them by hand would measure the hand."
        ),
    ]
    if case == "encoder":
        notes.append(
            "Of the 8 texts the shortest has 64 tokens, the rest is padding; all positions are"
            " computed."
        )
    return {
        "title": {"vision": "Vision models", "encoder": "Encoders"}[case],
        "peer": f"onnxruntime-web {version}",
        "unit": "ms",
        "values": values,
        "columns": ["ms per run", *SHOWN, *RATIOS, "simd128 / relaxed : ORT, processor time"],
        "table": table,
        "notes": notes,
    }
