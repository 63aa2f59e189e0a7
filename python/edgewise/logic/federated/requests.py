"""What a client of federated rounds asks its host for. Weights, changes and the socket stay with
the host; what has no answer here has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import EdgewiseError
from .crypto import Digest
from .tasks import TaskFile


@dataclass
class Secrets:
    """Of a member of a group of secure aggregation.

    Attributes:
        seed: 32 random bytes, from which all its secrets come.
        agreed: {stage: the message that was answered}.
    """

    seed: bytes
    agreed: dict[str, Any]


@dataclass
class Finished:
    """An update that was made for a round.

    Attributes:
        key: run, round and base; then the digest of an audit, or the context of a group's plan.
        data: the file that is sent; with secure aggregation the numbers before masks, int16.
        sha256: of the file.
        examples, steps, metrics: of the message `update`.
        secure: with secure aggregation.
    """

    key: str
    data: bytes
    sha256: str
    examples: int
    steps: int
    metrics: dict[str, Any]
    secure: Secrets | None


@dataclass
class State:
    """What a client must not lose. The host keeps it, with weights and rounding errors.

    Attributes:
        token: with which the client comes back.
        have: identity of its weights.
        finished: the last update.
        summed: {run: the last round whose sum it has consented to}.
    """

    token: str | None
    have: str | None
    finished: Finished | None
    summed: dict[str, Any]


@dataclass(frozen=True)
class Hello:
    """Answer: the fields of `hello` that are the host's."""

    kind: Literal["hello"] = "hello"


@dataclass(frozen=True)
class Welcome:
    """A server has welcomed the client."""

    message: dict[str, Any]
    kind: Literal["welcome"] = "welcome"


@dataclass(frozen=True)
class Send:
    """Send a message; fields that are None are left out."""

    name: str
    fields: Mapping[str, Any]
    kind: Literal["send"] = "send"


@dataclass(frozen=True)
class SendPart:
    """Send bytes of an update, from `begin` to `end`, in parts of CHUNK.

    Attributes:
        data: of the file.
        sha256: of the file.
    """

    data: bytes
    sha256: str
    begin: int
    end: int
    kind: Literal["send_part"] = "send_part"


@dataclass(frozen=True)
class Receive:
    """Answer: the next message or part of a file; None: `end` has passed, by the clock of Now."""

    end: float
    kind: Literal["receive"] = "receive"


@dataclass(frozen=True)
class Expect:
    """So many bytes of a file are still to come; others may be dropped."""

    size: int
    kind: Literal["expect"] = "expect"


@dataclass(frozen=True)
class Silent:
    """Give the connection up: the server does not answer."""

    kind: Literal["silent"] = "silent"


@dataclass(frozen=True)
class Now:
    """Answer: seconds of a clock that only goes forward."""

    kind: Literal["now"] = "now"


@dataclass(frozen=True)
class Allowed:
    """Answer: why the client must not go on now; "": it may.

    Attributes:
        what: "begin" a task, or "send" what was made.
    """

    what: Literal["begin", "send"]
    kind: Literal["allowed"] = "allowed"


@dataclass(frozen=True)
class SentToday:
    """Answer: bytes of updates that left within 24 hours, without the update of this digest."""

    sha256: str
    kind: Literal["sent_today"] = "sent_today"


@dataclass(frozen=True)
class Fingerprint:
    """Answer: the SHA-256 of JSON as text, in hexadecimal."""

    value: object
    kind: Literal["fingerprint"] = "fingerprint"


@dataclass(frozen=True)
class Unpack:
    """Read a file of weights, or of the difference to those that are here. Answer: the identity of
    the weights that it leads to.

    Attributes:
        parts: of the file, whose SHA-256 is the right one.
        file: of the task.
        metadata: fields that it must have.
    """

    parts: list[bytes]
    file: TaskFile
    metadata: Mapping[str, str]
    kind: Literal["unpack"] = "unpack"


@dataclass(frozen=True)
class Keep:
    """The weights of the last Unpack are those of the client from now on."""

    kind: Literal["keep"] = "keep"


@dataclass(frozen=True)
class Train:
    """Train from the weights. Answer: Told.

    Attributes:
        run, number, seed: of the task.
        config: of the task, with its part and audit.
        texts: of an audit; None: the client's own data.
        end: when to give up; the host raises Aborted then.
    """

    run: str
    number: int
    seed: int
    config: Mapping[str, Any]
    texts: list[str] | None
    end: float
    kind: Literal["train"] = "train"


@dataclass(frozen=True)
class Told:
    """What the server may know of a training. The host keeps the changes."""

    examples: int
    steps: int
    metrics: dict[str, Any]


@dataclass(frozen=True)
class WriteUpdate:
    """Write the file of the changes of the last Train. Answer: Finished.

    Attributes:
        key: of the update.
        told: the answer to Train.
        part: of the parameters that it has.
        codec, metadata: of the file.
        clip: maximum norm of what leaves; then nothing that was rounded away is kept.
        audit: whether it is of public texts: without what earlier updates have rounded away.
    """

    key: str
    told: Told
    part: str | None
    codec: str
    metadata: Mapping[str, str]
    clip: float
    audit: bool
    kind: Literal["write_update"] = "write_update"


@dataclass(frozen=True)
class Store:
    """Write the state."""

    kind: Literal["store"] = "store"


@dataclass(frozen=True)
class Counted:
    """The finished update counts: what it has rounded away, and what training keeps."""

    kind: Literal["counted"] = "counted"


@dataclass(frozen=True)
class Announce:
    """An update is about to leave.

    Attributes:
        task: of the update.
        update: its message.
        finished: the update.
        data: its file, as it is sent.
        more: what the client knows of its group: `group`, `members`, `noise`, `epsilon`.
        context: of the group's plan; None: it is in no group.
    """

    task: Mapping[str, Any]
    update: dict[str, Any]
    finished: Finished
    data: bytes
    more: Mapping[str, Any]
    context: bytes | None
    kind: Literal["announce"] = "announce"


@dataclass(frozen=True)
class TakePart:
    """Take part in the sum of a group, see group.take_part.

    Attributes:
        task: of the group.
        end: of the training.
        last: of the stages after it.
    """

    task: dict[str, Any]
    end: float
    last: float
    kind: Literal["take_part"] = "take_part"


@dataclass(frozen=True)
class Progress:
    """Tell of bytes of a file.

    Attributes:
        run, number: of the task.
        phase: of the task.
        done, total: bytes.
    """

    run: str
    number: int
    phase: Literal["fetch", "send"]
    done: int
    total: int
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True)
class Result:
    """Tell of a round that has ended."""

    message: dict[str, Any]
    kind: Literal["result"] = "result"


@dataclass(frozen=True)
class Last:
    """The weights are those after the last round."""

    kind: Literal["last"] = "last"


@dataclass(frozen=True)
class Declined:
    """Tell why a task was declined."""

    error: EdgewiseError
    kind: Literal["declined"] = "declined"


Request = (
    Hello
    | Welcome
    | Send
    | SendPart
    | Receive
    | Expect
    | Silent
    | Now
    | Allowed
    | SentToday
    | Digest
    | Fingerprint
    | Unpack
    | Keep
    | Train
    | WriteUpdate
    | Store
    | Counted
    | Announce
    | TakePart
    | Progress
    | Result
    | Last
    | Declined
)
