"""Makes parakeet_times.json: texts and times of tokens by transformers' ParakeetProcessor.

    python tests/logic/make_parakeet_times.py

Made with transformers 5.24.0, librosa 0.11.0.
"""

import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import ParakeetFeatureExtractor, ParakeetProcessor, ParakeetTokenizer

WORDS = ["<unk>", "▁the", "<pad>", "s", "ing", "▁be", "e", "r", "▁in", "t", "▁", ".", "▁w", "?"]
WORDS += ["▁-", "é", "▁naïve", ",", "<blank>"]


def main() -> None:
    made = Tokenizer(models.Unigram([(word, -1.0) for word in WORDS], unk_id=0))
    made.decoder = decoders.Metaspace()
    tokenizer = ParakeetTokenizer(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", additional_special_tokens=[]
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<blank>"]})
    extractor, generator, cases = ParakeetFeatureExtractor(), random.Random(1), []
    for kind in ("tdt", "rnnt"):
        processor = ParakeetProcessor(extractor, tokenizer, decoder_type=kind)
        for _ in range(12):
            count = generator.randrange(1, 20)
            ids = [generator.choice([1, *range(3, 19)]) for _ in range(count)]
            # a blank moves on
            steps = [generator.randrange(1, 5) if i == 18 else generator.randrange(5) for i in ids]
            if kind == "rnnt":
                steps = [int(i == 18) for i in ids]
            text, times = processor.decode(
                torch.tensor([ids]), durations=torch.tensor([steps]), skip_special_tokens=True
            )
            found = [[t["token"], t["start"], t["end"]] for t in times[0]]
            cases.append({"kind": kind, "ids": ids, "steps": steps, "text": text[0]})
            cases[-1]["times"] = found
    path = Path(__file__).with_name("parakeet_times.json")
    path.write_text(json.dumps({"words": WORDS, "cases": cases}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
