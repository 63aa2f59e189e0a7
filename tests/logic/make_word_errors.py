"""Makes word_errors.json: word error rates by jiwer, which evaluate's metric "wer" is.

    python tests/logic/make_word_errors.py

Made with jiwer 4.0.0.
"""

import json
import random
from pathlib import Path

import jiwer

WORDS = ["to", "be", "or", "not", "To", "be,", "naïve", "東京", "\U0001f600", "é"]


def main() -> None:
    generator = random.Random(1)

    def text(most: int) -> str:
        words = generator.choices(WORDS, k=generator.randint(0, most))
        return "".join(word + " " * generator.randint(1, 3) for word in words)

    cases = [["", ""], ["", "to be"], ["to", ""], [["to", ""], ["to", "be"]], [[""], [" "]]]
    for _ in range(30):
        count = generator.randint(1, 4)
        cases.append([[text(7) for _ in range(count)], [text(7) for _ in range(count)]])
    found = [[*case, float(jiwer.wer(*case))] for case in cases]
    path = Path(__file__).with_name("word_errors.json")
    path.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
