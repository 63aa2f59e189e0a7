"""A WordPiece vocabulary of given texts that is the same in every process.

The trainer of the package tokenizers chooses among equally frequent pairs by the order of a hash
map, which differs from process to process: a random model with its tokens does, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def word_pieces(tokenizer, texts: Iterable[str], special: list[str]) -> None:
    """Gives a tokenizer (of the package tokenizers, with normalizer and pre-tokenizer) a model.

    Its tokens are the special ones, each character alone and within words, pairs that come more
    than once within words, two of three words whole, and the others in two parts.
    """
    from tokenizers import models

    words = {
        word: None
        for text in texts
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(
            tokenizer.normalizer.normalize_str(text)
        )
    }
    letters = sorted(set("".join(words)))
    pairs = Counter(word[i : i + 2] for word in words for i in range(len(word) - 1))
    inside = [*letters, *sorted(pair for pair, count in pairs.items() if count > 1)]
    tokens = [*special, *letters, *(f"##{part}" for part in inside)]
    for i, word in enumerate(words):
        tokens += [word] if i % 3 else [word[:3], f"##{word[3:]}"] if len(word) > 3 else []
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer.model = models.WordPiece(vocabulary, unk_token="[UNK]")
