"""JSON files of strangers: whatever is in one, reading it ends in a value or in an error of
ours.
"""

from __future__ import annotations

import json

from .errors import EdgewiseError, ModelError, OutOfMemory

MOST_BYTES = 1 << 24


def parse_json(
    data,
    where,
    error: type[EdgewiseError] = ModelError,
    remedy: str = "Copy the file again; it may be truncated.",
    most_bytes: int = MOST_BYTES,
    pairs=None,
):
    """The value of a JSON text.

    Args:
        data: bytes-like, or str.
        where: the file's name, for errors.
        error: class of the error that is raised; `remedy`: what it says last.
        most_bytes: a longer text is refused.
        pairs: called with the (name, value) pairs of each object, as json.loads' object_pairs_hook;
        may raise ValueError.
    Raises:
        `error`: it is too long, not UTF-8, no JSON, nested too deeply, or holds a number of
        thousands of digits. OutOfMemory: it does not fit into memory.
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
            f"broken JSON: {e.msg}", f"{where}, line {e.lineno} column {e.colno}", remedy
        ) from None
    except RecursionError:
        raise error("broken JSON: it is nested too deeply", where, remedy) from None
    except ValueError as e:
        raise error(f"broken JSON: {str(e)[:200]}", where, remedy) from None
    except MemoryError:
        raise OutOfMemory(
            f"{len(data)} bytes of JSON do not fit into memory",
            where,
            "Close other programs, or use a smaller model.",
        ) from None


def parse_json_object(
    data,
    where,
    error: type[EdgewiseError] = ModelError,
    remedy: str = "Copy the file again; it may be truncated.",
    most_bytes: int = MOST_BYTES,
) -> dict:
    """As parse_json; raises `error` as well where the value is not an object."""
    value = parse_json(data, where, error, remedy, most_bytes)
    if not isinstance(value, dict):
        raise error("expected a JSON object", str(where), remedy)
    return value
