"""Protocol 1 between a client and the hub.

It runs over a WebSocket of the subprotocol edgewise.federated.1: text frames are JSON objects with
a field `kind`, binary frames are parts of the file that was announced last. Unknown fields are
ignored; unknown kinds are refused by name. docs/architecture/federated.md describes the order of
the messages.

From clients: hello, fetch, update, decline, state, progress, have, bye. From the hub: welcome,
refused, task, ack, accepted, rejected, result, weights, state, bye. Rounds with secure aggregation
have more of both (secure/plan.py).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...json_text import parse_json
from ...logic.federated.tasks import MAX_TEXT, PROTOCOL, Refusal

__all__ = ["FIELDS", "NAME", "VERSION", "Refusal", "check", "choose_version", "decode", "encode"]

VERSION = PROTOCOL
MAX_METRICS = 16

SHA256 = re.compile(r"[0-9a-f]{64}")
UNPRINTED = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
NAME = re.compile(r"[\w.:/-]{1,200}", re.ASCII)


def _text(x: object, field: str, most: int = 200) -> str:
    if not isinstance(x, str) or len(x) > most:
        raise Refusal("field", f"it is not a text of at most {most} characters", field)
    if UNPRINTED.search(x):
        raise Refusal("field", "it contains control characters or half a character", field)
    return x


def _whole(x: object, field: str, least: int = 0, most: int = 2**53 - 1) -> int:
    if type(x) is not int or not least <= x <= most:
        raise Refusal("field", f"it is not an integer from {least} to {most}", field)
    return x


def _digest(x: object, field: str) -> str:
    if not isinstance(x, str) or not SHA256.fullmatch(x):
        raise Refusal("field", "it is not a SHA-256 in hexadecimal", field)
    return x


def _word(x: object, field: str) -> str:
    if not isinstance(x, str) or not NAME.fullmatch(x):
        raise Refusal("field", "it is not a short name", field)
    return x


def _flag(x: object, field: str) -> bool:
    if not isinstance(x, bool):
        raise Refusal("field", "it is neither true nor false", field)
    return x


def _words(x: object, field: str) -> list[str]:
    if not isinstance(x, list) or len(x) > 32:
        raise Refusal("field", "it is not a list of at most 32 names", field)
    return [_word(e, field) for e in x]


def _versions(x: object, field: str) -> list[int]:
    if not isinstance(x, list) or not 0 < len(x) <= 32:
        raise Refusal("field", "it is not a list of versions", field)
    return [_whole(e, field) for e in x]


def _some(kind: type) -> Any:
    """A check of a list or object of few elements; secure/group.py reads them."""

    def checked(x: object, field: str) -> Any:
        if not isinstance(x, kind) or len(x) > 64:  # type: ignore[arg-type]
            raise Refusal("field", "it is not a list or object of at most 64 elements", field)
        return x

    return checked


def _metrics(x: object, field: str) -> dict[str, float]:
    """Finite numbers by name."""
    if not isinstance(x, dict) or len(x) > MAX_METRICS:
        raise Refusal("field", f"it is not an object of at most {MAX_METRICS} numbers", field)
    out = {}
    for name, value in x.items():
        if type(value) not in (int, float) or abs(value) > 1e300 or not math.isfinite(value):
            raise Refusal("field", f"'{str(name)[:40]}' is not a finite number", field)
        out[_word(name, field)] = float(value)
    return out


# Fields of the messages of secure aggregation.
_GROUP = {"run": (_word, True), "round": (_whole, True), "group": (_word, True)}
# Fields of the messages from clients: {kind: {field: (check, whether it is required)}}.
FIELDS: dict[str, dict[str, tuple[Any, bool]]] = {
    "hello": {
        "protocols": (_versions, True),
        "engine": (_text, False),
        "schema": (_digest, True),
        "codecs": (_words, True),
        "resume": (_text, False),
        "have": (_digest, False),
        "name": (_text, False),
        "ticket": (_text, False),
        "available": (_flag, False),
        "secure": (_versions, False),
    },
    "fetch": {"run": (_word, True), "round": (_whole, True), "offset": (_whole, True)},
    "update": {
        "run": (_word, True),
        "round": (_whole, True),
        "sha256": (_digest, True),
        "bytes": (_whole, True),
        "codec": (_word, True),
        "examples": (_whole, True),
        "steps": (_whole, False),
        "metrics": (_metrics, False),
    },
    "decline": {"run": (_word, True), "round": (_whole, True), "reason": (_text, True)},
    "state": {"available": (_flag, True)},
    "progress": {
        "run": (_word, True),
        "round": (_whole, True),
        "step": (_whole, True),
        "steps": (_whole, True),
    },
    "have": {"base": (_digest, True)},
    "bye": {"reason": (_text, False)},
    "keys": {
        **_GROUP,
        **dict.fromkeys(("identity", "channel", "mask", "commitment", "signature"), (_text, True)),
        "certificate": (_some(dict), False),
    },
    "shares": {**_GROUP, "sealed": (_some(list), True)},
    "consent": {**_GROUP, "signature": (_text, True)},
    "unmask": {**_GROUP, "shares": (_some(dict), True)},
}


def encode(kind: str, **fields: Any) -> str:
    """A message as text. Fields that are None are left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({"kind": kind, **given}, separators=(",", ":"), allow_nan=False)


def decode(text: str | bytes) -> dict[str, Any]:
    """Reads a message from the other side.

    Returns:
        Its fields; `kind` is a text.

    Raises:
        Refusal: it is not a JSON object with a kind, or too long.
    """
    size = len(text)
    if size > MAX_TEXT:
        raise Refusal("message", f"a message of {size} bytes is longer than {MAX_TEXT}")
    try:
        message = parse_json(text, "message", InputError)
    except InputError as e:
        raise Refusal("message", e.what, "message") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise Refusal("message", "it is not an object with a field 'kind'", "message")
    return message


def check(message: Mapping[str, Any]) -> dict[str, Any]:
    """Checks a message from a client.

    Returns:
        Its known fields, with `kind`; those that were not given are None.

    Raises:
        Refusal: its kind is unknown, or a field is missing or wrong.
    """
    kind = message["kind"]
    known = FIELDS.get(kind)
    if known is None:
        raise Refusal(
            "kind",
            f"messages of the kind '{kind[:60]}' are unknown",
            "message",
            f"Protocol {VERSION} has {', '.join(FIELDS)}.",
        )
    out: dict[str, Any] = {"kind": kind}
    for field, (checked, required) in known.items():
        value = message.get(field)
        if value is None:
            if required:
                raise Refusal("field", "it is missing", f"{kind}.{field}")
            out[field] = None
        else:
            out[field] = checked(value, f"{kind}.{field}")
    return out


def choose_version(versions: list[int]) -> int:
    """The newest common version.

    Raises:
        Refusal: there is none.
    """
    if VERSION not in versions:
        raise Refusal(
            "protocol",
            f"the client speaks protocol {', '.join(map(str, versions[:8]))}, the server {VERSION}",
            "hello.protocols",
            "Update the older side.",
        )
    return VERSION
