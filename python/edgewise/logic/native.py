"""What the logic of both hosts takes from its host: functions that are written by hand in each
language. web/src/shared/native.ts is the counterpart for pages.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import math
import os
import random
import struct
import unicodedata
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NewType, NoReturn, cast

from .. import seeds

# A seed of 63 bits. Logic passes it on and does not compute with it: pages have it as a bigint.
Seed = NewType("Seed", int)

_FLOAT = struct.Struct("<f")
_INT = struct.Struct("<i")
_LETTERS = str.maketrans("ui", "Ii")  # of a kind, for struct


def f32(value: float) -> float:
    """The nearest float32; infinite where that is."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def fixed(value: float, digits: int) -> str:
    """A number with so many digits after the point, 1 at least; halves become the even digit."""
    return f"{value:.{digits}f}"


def float64(value: float) -> bytes:
    """The bytes of a float64, the highest first."""
    return struct.pack(">d", value)


def next_one(data: bytes, value: int, start: int, stop: int) -> int:
    """The first place of a byte from `start` on, before `stop`; -1 if there is none."""
    return data.find(value, start, stop)


def part(text: str, start: int, end: int) -> str:
    """text[start:end]. Positions of texts that come from the host, such as those of tokens, count
    code points in Python and units of UTF-16 in pages.
    """
    return text[start:end]


def size(text: str) -> int:
    """The length of a text in the same units."""
    return len(text)


def units(text: str) -> int:
    """The number of UTF-16 units of a text."""
    return len(text) if text.isascii() else len(text) + sum(c > "\uffff" for c in text)


def is_broken(text: str) -> bool:
    """Whether a text has a lone surrogate."""
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def nfd(text: str) -> str:
    """A text in Unicode's normalization form D."""
    return unicodedata.normalize("NFD", text)


def from_base64(text: str) -> bytes | None:
    """The bytes of base64; None if it is not valid."""
    try:
        return base64.b64decode(text)
    except ValueError:
        return None


def utf8(data: Sequence[int]) -> str:
    """The text of bytes in UTF-8; U+FFFD for what is not."""
    return bytes(data).decode("utf-8", "replace")


def utf8_bytes(text: str) -> list[int]:
    """The bytes of a text; those of U+FFFD for half of a surrogate pair."""
    return list(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())


def sha256(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def read_json(text: bytes, too_deep: str) -> tuple[Any, str]:
    """Parses JSON with the numbers of JavaScript: 1.0 is 1, and 2^53 is not an integer.

    Args:
        text: in UTF-8.
        too_deep: what is wrong with a value that the parser has no room for.

    Returns:
        (the value, "") or (None, what is wrong), which completes a sentence.
    """

    def parse_int(digits: str) -> float:
        x = int(digits) if len(digits) <= 17 else float(digits)
        return x if abs(x) < 1 << 53 else float(x)

    def parse_float(digits: str) -> float:
        x = float(digits)
        return int(x) if abs(x) < 1 << 53 and x.is_integer() else x

    def parse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(
            text.decode(),
            parse_int=parse_int,
            parse_float=parse_float,
            parse_constant=parse_constant,
        )
    except RecursionError:
        return None, too_deep
    except UnicodeDecodeError:
        return None, "is not UTF-8"
    except ValueError:
        return None, "is not JSON"
    return value, ""


def base64url(data: bytes) -> str:
    """Bytes in base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def next_up(value: float) -> float:
    """The least float64 above a finite one."""
    return math.nextafter(value, math.inf)


def digits_of(value: float) -> str:
    """The shortest decimal number that is read as a number of 0 or more, without an exponent."""
    if isinstance(value, int):
        return str(value)
    digits, _, exponent = repr(value).partition("e")
    whole, _, fraction = digits.partition(".")
    point = len(whole) + int(exponent or 0)
    all_ = (whole + fraction).ljust(point, "0")
    text = "0" * (1 - point) + all_
    point = max(point, 1)
    return (text[:point] + "." + text[point:]).rstrip("0").rstrip(".")


def written_json(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value)


def number_of(text: str) -> tuple[Any, bool]:
    """(the number that JSON is, whether it is one); NaN and Infinity are not JSON"""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None, False
    return value, True


def _no_number(text: str) -> Any:
    raise ValueError(text)


def order(count: int, seed: Seed) -> list[int]:
    """range(count) in the order of the random numbers that follow from a seed."""
    return sorted(range(count), key=lambda k: seeds.seed_of_run(seed, k))


def seed_of_run(seed: Seed, run: int) -> Seed:
    """The seed of the random numbers of a run."""
    return Seed(seeds.seed_of_run(seed, run))


def random_words(seed: Seed, more: int) -> Callable[[], int]:
    """A function that returns the next 32 random bits: those of MT19937 (Matsumoto and Nishimura
    1998), seeded with the low 32 bits of seed + more, as PyTorch's generator is.
    """
    state = [seed + more & 0xFFFFFFFF]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*state, 624), None))
    return lambda: generator.getrandbits(32)


def check_seed(value: object, where: str) -> Seed | None:
    """A seed of a caller; None: there is none. Raises InputError: it is not one of 63 bits."""
    seed = seeds.check_seed(value, where)
    return None if seed is None else Seed(seed)


def random_seed() -> Seed:
    """An unpredictable seed."""
    return Seed(seeds.random_seed())


def seed_after(seed: Seed, more: int) -> Seed:
    """The seed that is larger by `more`; 0 follows the largest one."""
    return Seed((seed + more) & ((1 << 63) - 1))


def float_bits(value: float) -> int:
    """The bits of the nearest float32, as an int32."""
    return int(_INT.unpack(_FLOAT.pack(value))[0])


def given(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields that a caller gave. In pages, undefined is none, unlike null."""
    return list(fields.items())


def listed(value: object) -> list[Any] | None:
    """The elements of a list of a host, such as a tuple or a typed array; None of other values."""
    found = value.tolist() if hasattr(value, "tolist") else value
    return list(found) if isinstance(found, (list, tuple, set)) else None


def frames(value: object) -> list[Any] | None:
    """The frames of a video: the elements of a list, or pictures of an array [frames, height,
    width, 3]; None of other values.
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    shape: Any = getattr(value, "shape", ())
    return list(cast("Any", value)) if len(shape) == 4 else None


def written(value: object) -> str:
    """A value in the host's language, for errors; of bounded length."""
    try:
        return repr(value)[:200]
    except (ValueError, RecursionError):  # such as integers of thousands of digits
        return f"a {type(value).__name__} that is too large to write"


def option(name: str) -> str:
    """Where an option of a call is, for errors."""
    return name


def setting(name: str, value: object) -> str:
    """How an option is set in the host's language."""
    return f"{name}={written(value)}"


def meant(name: str, known: Sequence[str], otherwise: str) -> str:
    """What to do about a name that is not known: the one that was meant, if there is one like
    it.
    """
    low = name.lower()
    # lr is learning_rate, stop is stop_strings
    short = [
        full
        for full in known
        if "_" in full
        and (full.startswith(f"{low}_") or "".join(w[:1] for w in full.split("_")) == low)
    ]
    near = short or difflib.get_close_matches(name, known, 1)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def seed_fault(value: object) -> str:
    """The form that a seed has to have, if this one is none; else ""."""
    fits = isinstance(value, int) and -(2**63) <= value < 2**64
    return "" if fits else "an integer of 64 bits"


def seed_words(seed: Any | None) -> tuple[int, int]:
    """The low and the high 32 bits of a seed; of a random one if there is none."""
    bits = int.from_bytes(os.urandom(8), "little") if seed is None else seed % 2**64
    return bits & 0xFFFFFFFF, bits >> 32


def packed(kinds: str, values: Sequence[Any]) -> bytes:
    """Numbers of four bytes each. kinds: a letter for each: u32, i32 or f32."""
    return struct.pack("<" + kinds.translate(_LETTERS), *values)


def unpacked(names: Sequence[str], kinds: str, data: bytes) -> Mapping[str, Any]:
    """The numbers that `packed` wrote, by names."""
    return dict(zip(names, struct.unpack("<" + kinds.translate(_LETTERS), data)))


def int32_bytes(values: Sequence[int]) -> bytes:
    """The bytes of int32."""
    return array("i", values).tobytes()


def int32s(data: bytes) -> list[int]:
    """The int32 in bytes."""
    return array("i", bytes(data)).tolist()


def float32_bytes(values: array[float]) -> bytes:
    """The bytes of float32."""
    return values.tobytes()


def float32s(data: bytes) -> array[float]:
    """The float32 in bytes, as a copy."""
    return array("f", bytes(data))
