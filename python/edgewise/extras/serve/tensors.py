"""What the computing thread does for a request with tensors: the second part of a split model.

Both ways tensors travel as a safetensors file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...compiler.arrays import Array
from ...compiler.declare.dtypes import NAME
from ...compiler.training.safetensors import NAMES, load_safetensors, save_safetensors
from ...errors import InputError, ModelError
from ...host.session import InferenceSession, RunOptions
from .jobs import Job
from .options import Limits
from .refusals import Refusal

CONTENT_TYPE = "application/octet-stream"


class _Ending(RunOptions):
    """Options of a run that ends with its job."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job

    @property
    def terminate(self) -> bool:
        """Whether the job was cancelled."""
        return self._job.is_set()

    @terminate.setter
    def terminate(self, value: bool) -> None:
        pass  # only the job ends it


def feeds_of(body: bytes, session: InferenceSession) -> dict[str, Any]:
    """The inputs in a request. Raises Refusal."""
    try:
        tensors, _ = load_safetensors(body)
    except ModelError as e:
        raise Refusal(
            f"the body is no safetensors file: {e.what}", code="invalid_tensors"
        ) from None
    wanted = {i.name: i.type for i in session.get_inputs()}
    if missing := [name for name in wanted if name not in tensors]:
        raise Refusal(f"there is no tensor {missing[0]!r}", param=missing[0][:80])
    feeds = {}
    for name, t in tensors.items():
        if name not in wanted:
            raise Refusal(f"the model has no input {name[:80]!r}", param=name[:80])
        feeds[name] = Array(t.shape, NAME[t.dtype], t.bytes())
    return feeds


def run_part(session: InferenceSession, body: bytes, limits: Limits, job: Job) -> Iterator[bytes]:
    """Yields the answer's body."""
    feeds = feeds_of(body, session)
    names = [o.name for o in session.get_outputs()]
    try:
        outputs = dict(zip(names, session.run(names, feeds, _Ending(job))))
    except ModelError as e:  # shapes that do not fit each other
        raise Refusal(str(e)) from None
    try:
        data = save_safetensors(outputs)
    except InputError as e:
        raise Refusal(f"an output cannot be sent: {e.what}", 500) from None
    assert data is not None
    if len(data) > limits.tensors:
        text = f"the outputs take {len(data)} bytes, at most {limits.tensors} are sent"
        raise Refusal(text, 400, code="too_large")
    yield data


def check_part(session: InferenceSession, where: str) -> None:
    """Raises InputError for a model whose inputs or outputs are no tensors of numbers."""
    known = {f"tensor({name})" for name in _TYPES}
    for arg in (*session.get_inputs(), *session.get_outputs()):
        if arg.type not in known:
            raise InputError(
                f"'{arg.name}' is a {arg.type}", where, "Only tensors of numbers can be sent."
            )


# ONNX Runtime's names of the types that safetensors has.
_TYPES = {NAME[code].replace("float32", "float").replace("float64", "double") for code in NAMES}
