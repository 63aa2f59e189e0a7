"""Tasks of a hub, as clients read them, and the sizes of protocol 1.

docs/architecture/federated.md describes the messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from .layout import CODECS, max_bytes

PROTOCOL = 1
SUBPROTOCOL = "edgewise.federated.1"
CHUNK = 256 << 10
"""Maximum bytes of a binary frame."""
MAX_TEXT = 64 << 10
"""Maximum bytes of a text frame."""
WINDOW = 4  # chunks of an upload on their way
ENDS = ("task", "weights", "bye")
"""Messages that end the task before them."""
STAGES = 4  # of secure aggregation, after training
MASKED = "masked"
"""The codec of a masked update: integers modulo 2^8 or 2^16, little-endian, without a header."""
SEALED = 80  # bytes: two shares and the tag of AES-GCM


class Refusal(InputError):
    """A message or an update is refused, or a client.

    Args:
        code: a word for programs, such as "stale" or "update-norm".
        what, where, remedy: as EdgewiseError's.
    """

    def __init__(self, code: str, what: str, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where, remedy)
        self.code = code


@dataclass(frozen=True)
class TaskFile:
    """A file that a task names.

    Attributes:
        content: "weights", or "delta" to what the client has.
        codec, size, sha256: of the file; its size is in bytes.
        part: of the parameters whose difference it holds; None: all.
    """

    content: str
    codec: str
    size: int
    sha256: str
    part: str | None


def file_of(task: Mapping[str, Any], shapes: Sequence[tuple[str, Sequence[int]]]) -> TaskFile:
    """The file that a task names.

    Args:
        task: the message.
        shapes: (name, shape) of what is trained.

    Raises:
        InputError: it cannot be one of this schema; its size is limited before a byte is read.
    """
    found: Any = task.get("file")
    file: dict[str, Any] = found if isinstance(found, dict) else {}
    content, size = file.get("kind"), file.get("bytes")
    codec = "float32" if content == "weights" else file.get("codec")
    sha256, part = file.get("sha256"), file.get("part")
    if (
        isinstance(content, str)
        and content in ("weights", "delta")
        and isinstance(codec, str)
        and codec in CODECS
        and type(size) is int
        and 0 < size <= max_bytes(shapes, codec)
        and isinstance(sha256, str)
        and (part is None or isinstance(part, str))
    ):
        return TaskFile(content, codec, size, sha256, part)
    raise InputError("it names no file that this client can use", "task")


def clip_of(task: Mapping[str, Any]) -> float:
    """The norm to which a round with differential privacy clips a change; infinity: none."""
    found: Any = task.get("privacy")
    privacy: dict[str, Any] = found if isinstance(found, dict) else {}
    clip: Any = privacy.get("clip")
    is_number = isinstance(clip, (int, float)) and not isinstance(clip, bool)
    return float(clip) if is_number and clip > 0 else math.inf


def is_offset(offset: object, last: int, size: int) -> bool:
    """Whether a hub may acknowledge so many bytes of a file, after `last`."""
    return type(offset) is int and last <= offset <= size
