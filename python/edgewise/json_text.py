"""Parsing of untrusted JSON: the result is a value or an EdgewiseError. Writing what was parsed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .errors import EdgewiseError, ModelError, OutOfMemory

MAX_BYTES = 1 << 24
MAX_NUMBER = 1e30
REMEDY = "Copy the file again from the model it belongs to."


def parse_json(
    data: bytes | bytearray | memoryview | str,
    where: object,
    error: type[EdgewiseError] = ModelError,
    remedy: str = "Copy the file again; it may be truncated.",
    most_bytes: int = MAX_BYTES,
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
    most_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """As parse_json; also raises `error` if the value is not an object."""
    value = parse_json(data, where, error, remedy, most_bytes)
    if not isinstance(value, dict):
        raise error("expected a JSON object", str(where), remedy)
    return value


def object_field(
    fields: Mapping[str, Any], name: str, where: object, error: type[EdgewiseError] = ModelError
) -> dict[str, Any]:
    """The object in a field; {} if it is missing or null. Raises `error`: it is something else."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise error(f"`{name}` is not an object", str(where), REMEDY)
    return value


def integer_field(
    fields: Mapping[str, Any],
    name: str,
    default: int,
    bounds: tuple[int, int],
    where: object,
    error: type[EdgewiseError] = ModelError,
) -> int:
    """The integer in a field; `default` if it is missing or null.

    Args:
        fields: the object.
        name: of the field.
        default: as above.
        bounds: the lowest and the highest value.
        where: the file's name, for errors.
        error: class of the error that is raised.

    Raises:
        error: it is no integer within the bounds.
    """
    value = fields.get(name)
    value = default if value is None else value
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        what = f"`{name}` is {str(value)[:40]}, no integer from {bounds[0]} to {bounds[1]}"
        raise error(what, str(where), REMEDY)
    return value


def number_field(
    fields: Mapping[str, Any],
    name: str,
    default: float,
    where: object,
    error: type[EdgewiseError] = ModelError,
) -> float:
    """The finite number in a field; `default` if it is missing or null. Raises `error`."""
    value = fields.get(name)
    value = default if value is None else value
    if type(value) not in (int, float) or not abs(value) <= MAX_NUMBER:
        raise error(f"`{name}` is {str(value)[:40]}, no number", str(where), REMEDY)
    return float(value)


def written_json(value: Any, **options: Any) -> bytes:
    """A value as JSON in UTF-8. Halves of characters, which JSON may hold and UTF-8 may not, are
    written as escapes.
    """
    try:
        return json.dumps(value, ensure_ascii=False, **options).encode()
    except UnicodeEncodeError:
        return json.dumps(value, **options).encode()
