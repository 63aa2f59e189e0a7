"""Makes english.json: words of numbers by num2words, and words of CMUdict with their phonemes.

pip install num2words
python tests/logic/make_english.py index.js   # of the npm package cmu-pronouncing-dictionary 3.0.0
"""

import json
import random
import re
import sys
from pathlib import Path

from num2words import num2words

CARDINALS = [0, 1, 7, 13, 20, 21, 40, 85, 99, 100, 101, 110, 342, 999, 1000, 1001, 1100, 12345]
CARDINALS += [100_000, 1_000_000, 7_654_321, 10**9, 10**12 + 5]
ORDINALS = [1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 20, 21, 30, 100, 101, 112, 1000]
YEARS = [1100, 1492, 1776, 1800, 1905, 1984, 1999, 2000, 2005, 2010, 2024]


def words(number, kind):
    said = num2words(number, to=kind).replace(" and ", " ")
    return re.findall("[a-z]+", said)


def main(path):
    text = Path(path).read_text(encoding="utf-8")
    entries = re.findall(r'^  "?([a-z]{4,9})"?: "([A-Z0-9 ]+)', text, re.M)
    chosen = random.Random(1).sample(sorted(entries), 120)
    found = {
        "cardinal": {str(n): words(n, "cardinal") for n in CARDINALS},
        "ordinal": {str(n): words(n, "ordinal") for n in ORDINALS},
        "year": {str(n): words(n, "year") for n in YEARS},
        "words": dict(sorted(chosen)),
    }
    out = Path(__file__).with_name("english.json")
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
