"""Tokenizers and processors for models/, which have none."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

SPECIAL = {100: "<|eos|>", 101: "<|sot|>", 102: "<|en|>", 103: "<|fr|>", 106: "<|startofprev|>"}


def tokenizer(folder, size, special=()):
    """Writes a tokenizer whose token `wN` has the id N."""
    words = {dict(special).get(i, f"w{i}"): i for i in range(size)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    split = pre_tokenizers.Split(Regex(r"w\d+"), "isolated")  # also those without a space
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split])
    made.add_special_tokens([AddedToken(name, special=True) for name in dict(special).values()])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")


def whisper_texts(folder):
    """Writes the tokenizer of models/whisper, and its processor."""
    tokenizer(folder, 181, SPECIAL)
    config = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 8}
    config |= {"chunk_length": 1, "hop_length": 160, "n_fft": 400, "sampling_rate": 16000}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
