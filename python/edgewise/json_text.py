"""Parsing of untrusted JSON: the result is a value or an EdgewiseError."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .errors import EdgewiseError, ModelError, OutOfMemory

MOST_BYTES = 1 << 24


def parse_json(
    data: bytes | bytearray | memoryview | str,
    where: object,
    error: type[EdgewiseError] = ModelError,
    remedy: str = "Copy the file again; it may be truncated.",
    most_bytes: int = MOST_BYTES,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Parses JSON.

    Args:
        data: the text; bytes are UTF-8.
        where: the file's name, for errors.
        error: class of the error that is raised.
        remedy: of the error.
        most_bytes: maximum length of the text.
        pairs: called with the (name, value) pairs of each object, as `object_pairs_hook` of
            json.loads; may raise ValueError.

    Raises:
        error: the text is too long, not UTF-8, not JSON, nested too deeply, or contains a number
            with too many digits.
        OutOfMemory: it does not fit into memory.
    """
    where = str(where)
    if len(data) > most_bytes:
        raise error(f"it has {len(data)} bytes, at most {most_bytes} are read", where, remedy)
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
        return json.loads(text, object_pairs_hook=pairs)
    except UnicodeDecodeError as e:
        raise error(f"byte {e.start} is not UTF-8", where, remedy) from None
    except json.JSONDecodeError as e:
        raise error(
            f"invalid JSON: {e.msg}", f"{where}, line {e.lineno} column {e.colno}", remedy
        ) from None
    except RecursionError:
        raise error("invalid JSON: it is nested too deeply", where, remedy) from None
    except ValueError as e:
        raise error(f"invalid JSON: {str(e)[:200]}", where, remedy) from None
    except MemoryError:
        raise OutOfMemory(
            f"{len(data)} bytes of JSON do not fit into memory",
            where,
            "Close other programs, or use a smaller model.",
        ) from None


def parse_json_object(
    data: bytes | bytearray | memoryview | str,
    where: object,
    error: type[EdgewiseError] = ModelError,
    remedy: str = "Copy the file again; it may be truncated.",
    most_bytes: int = MOST_BYTES,
) -> dict[str, Any]:
    """As parse_json; also raises `error` if the value is not an object."""
    value = parse_json(data, where, error, remedy, most_bytes)
    if not isinstance(value, dict):
        raise error("expected a JSON object", str(where), remedy)
    return value
