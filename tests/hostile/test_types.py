"""Each op with inputs of types and shapes outside of its cases: it refuses them, or gives the
result of a reference implementation.
"""

import edgewise
import numpy as np
import pytest
from edgewise.errors import EdgewiseError
from ops.harness import DTYPES, all_cases
from tiers import ALL

from .elsewhere import Elsewhere

TYPES = (
    "float32",
    "float64",
    "float16",
    "bool",
    "uint8",
    "int8",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "float8_e4m3fn",
    "int4",
)

MAX = 3 if ALL else 2


def distorted(case, types=TYPES):
    """Copies of a case with one input of another of `types` or size, or without one:
    [(description, case)].
    """
    for i, (x, fixed) in enumerate(case.inputs):
        if x is None or x.dtype.name not in TYPES:
            continue
        changed = [
            (f"input {i} as {t}", x.astype(DTYPES.get(t, t))) for t in types if t != x.dtype.name
        ]
        if x.ndim:
            changed += [
                (f"input {i} without its last row", x[:-1]),
                (f"input {i} without its last column", x[..., :-1]),
                *([(f"input {i} one rank less", x[0])] if len(x) else []),
                (f"input {i} empty", x[:0]),
            ]
        changed += [
            (f"input {i} one rank more", x[None]),
            (
                f"input {i} twice as long",
                np.concatenate([x, x], -1) if x.ndim else np.stack([x, x]),
            ),
            (f"input {i} missing", None),
        ]
        for what, new in changed:
            yield what, with_inputs(case, [*case.inputs[:i], (new, fixed), *case.inputs[i + 1 :]])


def with_inputs(case, inputs):
    new = object.__new__(type(case))
    new.__dict__.update(
        {
            k: v
            for k, v in case.__dict__.items()
            if k not in ("references", "refusals", "output_types")
        }
    )
    new.inputs = inputs
    new.__dict__["output_types"] = [0] * len(case.wanted)
    return new


def chosen():
    """For each op and each set of present inputs, the smallest case; at most MAX for each op."""
    out = {}
    for name, case in all_cases():
        key = (
            name.rsplit("-", 1)[0],
            tuple(x is None or x.dtype.name for x, _ in case.inputs),
            tuple(case.wanted),
        )
        if (
            case.expect is None
            and sum(x.size for x, _ in case.inputs if x is not None) < 3000
            and (key not in out or 0 in [x.size for x, _ in out[key][1].inputs if x is not None])
        ):
            out[key] = name, case
    best = {}
    for (op, _kinds, _), (name, case) in out.items():
        if len(best.setdefault(op, [])) < MAX:
            best[op].append((name, case))
    return best


CASES = chosen()


# ops with undefined results (-1 as unsigned, logarithm of 0 as an integer) that differ between
# implementations
LENIENT = (
    "CastLike",
    "Cast",
    "Pow",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "DynamicQuantizeLinear",
    "ScatterND",
)
# (op, what): where the references are wrong or the standard is silent
DIFFERENT = {
    (
        "Resize",
        "int",
    ): "integers between two pixels: truncated, as onnxruntime does; ONNX's reference rounds",
    ("QuantizeLinear", "input 1 as int32"): "its cases' scales become 0",
    (
        "QuantizeLinear",
        "as float8",
    ): "the reference drops a zero point that is not an integer, against the formula",
    ("DequantizeLinear", "as float8"): "as QuantizeLinear",
    ("OneHot", "as float8"): "the reference computes on the values",
    **{
        (op, "as uint32"): (
            "sums beyond the type: the reference wraps them around before it divides or takes the"
            " root"
        )
        for op in ("ReduceMean", "ReduceL2")
    },
    ("Col2Im", "as uint32"): "sums beyond the type saturate",
    **{
        (op, "input 0 empty"): (
            "without steps the last states are the first ones; onnxruntime gives zeros, or what was"
            " in memory"
        )
        for op in ("LSTM", "RNN", "ms.DynamicQuantizeLSTM", "ms.LSTMTraining")
    },
    ("ms.Inverse", "as float32"): "the tolerance of its case is that of float64",
    ("Attention", "input 3 as uint32"): "a mask of 2^32 - 1 leaves nothing of the scores",
}


@pytest.fixture(scope="module")
def elsewhere():
    runner = Elsewhere()
    yield runner
    runner.end()


@pytest.mark.parametrize("op", sorted(CASES))
def test_other_types_and_shapes(op, refused, elsewhere):
    """Compares with ONNX's reference, or with onnxruntime if the op is not ONNX's or its case marks
    the reference as wrong. onnxruntime runs in another process, since some cases crash it.
    """
    wrong = []
    for number, (name, case) in enumerate(CASES[op]):
        # in `make test` every type with the first case, a few with the other
        for what, other in distorted(case, TYPES if ALL or not number else TYPES[::4]):
            try:
                model, feeds = other.model()
            except Exception:  # noqa: BLE001 - the case cannot be expressed as a model
                continue
            session = None
            try:
                session = edgewise.InferenceSession(model.SerializeToString())
                got = session.run(None, feeds)
            except EdgewiseError as e:
                if not (e.what and e.where and e.remedy and len(str(e)) < 1500):
                    wrong.append(f"{name}, {what}: {e!r}")
                continue
            except Exception as e:  # noqa: BLE001
                wrong.append(f"{name}, {what}: {type(e).__name__}: {e}")
                continue
            finally:
                if session is not None:
                    session.free()
            if (
                op in LENIENT
                or " as bool" in what
                or any(op == o and part in what for o, part in DIFFERENT)
            ):
                continue
            try:
                with np.errstate(all="ignore"):
                    expected = [
                        np.asarray(y)
                        for y in (
                            elsewhere(other.model(reference=True)[0].SerializeToString(), feeds)
                            if other.domain or other.trust == "ort"
                            else other._onnx()
                        )
                    ]
            except Exception:  # noqa: BLE001 - the reference refuses the case
                continue
            if [(np.asarray(g).dtype, np.asarray(g).shape) for g in got] == [
                (e.dtype, e.shape) for e in expected
            ] and (d := other.differences(got, expected)):
                wrong.append(f"{name}, {what}: {d}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)
