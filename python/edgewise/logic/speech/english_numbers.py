"""English words of numbers."""

from __future__ import annotations

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split(" ")
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ")
THOUSANDS = ("", "thousand", "million", "billion", "trillion")
ORDINALS: dict[str, str] = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MAX_DIGITS = 15  # of numbers; longer ones are read digit by digit


def digits(text: str) -> list[str]:
    """The words of digits, one by one."""
    return [SMALL[int(c)] for c in list(text)]


def cardinal(text: str) -> list[str]:
    """The words of a whole number that is written in digits."""
    if len(text) > MAX_DIGITS or (len(text) > 1 and text.startswith("0")):
        return digits(text)
    rest = int(text)
    if rest == 0:
        return ["zero"]
    words: list[str] = []
    for thousand in THOUSANDS:
        if rest % 1000:
            words = [*_below(rest % 1000), *([thousand] if thousand else []), *words]
        rest //= 1000
    return words


def _below(number: int) -> list[str]:
    """The words of 1 to 999."""
    words = [SMALL[number // 100], "hundred"] if number >= 100 else []
    rest = number % 100
    if rest >= 20:
        words.append(TENS[rest // 10 - 2])
        rest %= 10
    return [*words, SMALL[rest]] if rest else words


def ordinal(text: str) -> list[str]:
    """The words of a place in an order."""
    words = cardinal(text)
    last = words[-1]
    if last in ORDINALS:
        return [*words[:-1], ORDINALS[last]]
    return [*words[:-1], f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"]


def year(text: str) -> list[str]:
    """The words of four digits as a year: nineteen eighty-four."""
    first, last = text[:2], text[2:]
    if first.endswith("0") or first.startswith("0"):  # two thousand and five
        return cardinal(text) if last.startswith("0") or first != "20" else _halves(first, last)
    return _halves(first, last)


def _halves(first: str, last: str) -> list[str]:
    if last == "00":
        return [*cardinal(first), "hundred"]
    if last.startswith("0"):
        return [*cardinal(first), "oh", *cardinal(last[1:])]
    return [*cardinal(first), *cardinal(last)]
