"""Pictures and words of the tests of models that write about pictures."""

from __future__ import annotations

import numpy as np

PICTURES = [(40, 50), (32, 32), (90, 20)]
QUESTION = "w20 w30"
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
TAGS = ["<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>"]


def writing(height: int, width: int, seed: int):
    """A picture: PIL.Image."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(height // 8, 1), max(width // 8, 1), 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.BICUBIC)


def tokenizer():
    """A tokenizer of transformers with 90 words; some are places of Florence-2."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = [
        *SPECIAL,
        *TAGS,
        *(f"w{i}" for i in range(9, 50)),
        *(f"<loc_{i * 25}>" for i in range(40)),
    ]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([*SPECIAL, *TAGS, *words[50:]])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
