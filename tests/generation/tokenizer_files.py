"""Small tokenizers of every kind that models use, trained here by the `tokenizers` library."""

import json

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXT = [
    "Once upon a time there was a small dragon, and it didn't know what it'd do: 'we'll see'.",
    "In 1984 the price rose from 12.50 to 1,234,567 euros (about 99%)!  Why?\n\n\tNobody knows.",
    "Der Zwölfbeinige grüßt naïve Café-Gäste; l'été, où es-tu? ¿Qué señor? Żółć, Ångström.",
    "Съешь же ещё этих мягких французских булок. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "日本語のテキストです。東京都は大きい。你好，世界！안녕하세요 세계. สวัสดีชาวโลก नमस्ते दुनिया",
    "مرحبا بالعالم שלום עולם \U0001f409\U0001f389 👩‍👩‍👧 👍🏽 ©️ e\u0301 a\u0308 ﬁ ½ Ⅷ ²",
    'def f(x):\n    return x + 1  # <html> {"a": [1, 2]} \\n https://example.org/?q=a&b=c',
] * 3

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN3 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MISTRAL = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

# A precompiled_charsmap for 15 rules, such as ligatures and accents, written by sentencepiece.
CHARSMAP = (
    "AAQAAAAgAAAJCQAACgUAAAEAAIDMKAIADRkAAIgFAAAQAACAzAACAIENAAATAACAvR0AAAUAAICBDQAAAAAAgIBQ"
    "AgCLeQAAoA0AAAMAAICBQQAAgAQCAIBZAACBBQAADQAAgKEJAACWLAIACwAAgLYdAAAWAACAvnACAJG8AgCe/QAA"
    "GgAAgKzYAgAjAAAAIgAAACUAAAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAALQAAACwAAAAvAAAALgAAAL10"
    "AgC8IAIAMwAAADIAAAA1AAAANAAAADcAAAA2AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAA"
    "QAAAAEMAAABCAAAARQAAAEQAAABHAAAARgAAAEkAAABIAAAASwAAAEoAAABNAAAATAAAAE8AAABOAAAAUQAAAFAA"
    "AABTAAAAUgAAAFUAAABUAAAAVwAAAFYAAABZAAAAWAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAA"
    "YwAAAGIAAABlAAAAZAAAAGcAAABmAAAAaQAAAGGEAgBrAAAAagAAAG0AAABlpAIAbwAAAG4AAABxAAAAcAAAAHMA"
    "AAByAAAAdQAAAHQAAAB3AAAAdgAAAHkAAAB4AAAAewAAAHoAAAB9AAAAfAAAAH8AAAB+AAAAgQAAAIAAAACDAAAA"
    "ggAAAIUAAACEAAAAhwAAAIYAAACJAAAAiAAAAIsAAACKAAAAjQAAAIwAAACPAAAAjgAAAJEAAACQAAAAkwAAAJIA"
    "AACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0AAACcAAAAnwAAAJ4AAAChAAAAoAAAAKMAAACiAAAA"
    "pQAAAKQAAACnAAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAACzAAAAsgAAALUA"
    "AAC0AAAAtwAAALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/AAAAvgAAAMEAAADAAAAAwwAAAMIAAADMIAEA"
    "xAAAAMcAAADGAAAAyQAAAMgAAADC8AEAygAAAM0AAADMAAAAzwAAAM4AAADRAAAA0AAAANMAAADSAAAA1QAAANQA"
    "AADXAAAA1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA4QAAAOAAAADjAAAA4gAAAOUAAADkAAAA"
    "5wAAAO+oAQDpAAAA6AAAAOKUAQDj/AEA7QAAAOwAAADvAAAA7gAAAPEAAADwAAAA8wAAAO9AAQD1AAAA9AAAAPcA"
    "AAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/wAAAP4AAAAAIAAxADHigYQyAEEAZmkAw6QAw6kA44KrAOOC"
    "rAA="
)


def file(tokenizer, **changed):
    """The contents of the tokenizer.json of a tokenizer, with members replaced."""
    return {**json.loads(tokenizer.to_str()), **changed}


def _trained(model, trainer, normalizer=None, pre_tokenizer=None, decoder=None, processor=None):
    tokenizer = Tokenizer(model)
    for name, value in (
        ("normalizer", normalizer),
        ("pre_tokenizer", pre_tokenizer),
        ("decoder", decoder),
        ("post_processor", processor),
    ):
        if value is not None:
            setattr(tokenizer, name, value)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def _bytes(pattern=None, prefix=False, specials=("<|end|>",), size=420):
    """A byte-level BPE tokenizer. pattern: how words are split, instead of as GPT-2 does."""
    words = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    if pattern is not None:
        parts = [
            pre_tokenizers.Split(Regex(p), "isolated")
            for p in ([pattern] if isinstance(pattern, str) else pattern)
        ]
        words = pre_tokenizers.Sequence([*parts, words])
    return _trained(
        models.BPE(),
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(specials),
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
        pre_tokenizer=words,
        decoder=decoders.ByteLevel(),
    )


def byte_level():
    """{name: file} of GPT-2 and its descendants."""
    gpt2 = _bytes()
    bloom = _bytes(BLOOM)
    roberta = _bytes(prefix=True, specials=("<s>", "</s>", "<pad>"))
    roberta.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    smol = _bytes(specials=("<|im_start|>", "<|im_end|>"))
    smol.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    llama3 = _bytes(LLAMA3)
    llama3.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|end|> $A", pair="<|end|> $A <|end|> $B", special_tokens=[("<|end|>", 0)]
            ),
        ]
    )
    llama3 = file(llama3)
    llama3["model"]["ignore_merges"] = True
    qwen = _bytes(QWEN3)
    qwen.normalizer = normalizers.NFC()
    added = _bytes()
    added.add_tokens(
        [
            AddedToken("<left>", lstrip=True, normalized=False),
            AddedToken("<right>", rstrip=True, normalized=False),
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("time", single_word=True, normalized=True),
            AddedToken("  ", normalized=False),
            AddedToken("    ", normalized=False),
        ]
    )
    added.add_special_tokens(["<|a|>", "<|a|>b", "<|both|>"])
    return {
        "gpt2": file(gpt2),
        "bloom": file(bloom),
        "roberta": file(roberta),
        "smollm2": file(smol),
        "llama3": llama3,
        "qwen3": file(qwen),
        "o200k": file(_bytes(O200K)),
        "mistral": file(_bytes(MISTRAL)),
        "deepseek": file(_bytes([r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK])),
        "added tokens": file(added),
    }


# long: a table of tokenizers
def sentencepiece():
    """{name: file} of Llama 2, Gemma, T5, XLM-R and others from sentencepiece."""
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))],
    )
    llama = _trained(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        trainer,
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizers.Split(Regex("▁"), "merged_with_next"),
        decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        ),
        processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
        ),
    )
    whole = file(llama, pre_tokenizer=None)  # the whole text is one word
    first = file(llama, normalizer=None)
    first["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "first",
        "split": False,
    }
    strict = json.loads(json.dumps(whole))
    strict["model"] |= {"byte_fallback": False, "fuse_unk": False}
    fused = json.loads(json.dumps(strict))
    fused["model"]["fuse_unk"] = True
    result = {"llama2": whole, "metaspace first": first, "no bytes": strict, "fused": fused}
    for name, charsmap in (("t5", CHARSMAP), ("xlm-r", None)):
        t5 = _trained(
            models.Unigram(),
            trainers.UnigramTrainer(
                vocab_size=400,
                show_progress=False,
                special_tokens=["<pad>", "</s>", "<unk>"],
                unk_token="<unk>",
            ),
            normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
            decoders.Metaspace(),
            processors.TemplateProcessing(
                single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
            ),
        )
        result[name] = file(t5)
        if charsmap:
            result[name]["normalizer"] = {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Precompiled", "precompiled_charsmap": charsmap},
                    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
                ],
            }
    unigram = json.loads(json.dumps(result["xlm-r"]))
    unigram["model"]["byte_fallback"] = True
    known = {entry[0] for entry in unigram["model"]["vocab"]}
    unigram["model"]["vocab"] += [
        [f"<0x{b:02X}>", -20.0] for b in range(256) if f"<0x{b:02X}>" not in known
    ]
    return result | {"unigram bytes": unigram}


# long: a table of tokenizers
def words():
    """{name: file} of BERT, CLIP, wav2vec2 and others with words."""
    bert = _trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(
            vocab_size=500,
            show_progress=False,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        ),
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
        processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
    )
    cased = file(bert)
    cased["normalizer"] |= {"lowercase": False, "strip_accents": False}
    uncased = file(bert)
    uncased["model"]["max_input_chars_per_word"] = 8
    clip = _trained(
        models.BPE(end_of_word_suffix="</w>", unk_token="<|end|>"),
        trainers.BpeTrainer(
            vocab_size=600,
            show_progress=False,
            special_tokens=["<|start|>", "<|end|>"],
            end_of_word_suffix="</w>",
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
        normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
        ),
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(
                    Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                    "removed",
                    invert=True,
                ),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        ),
        decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")]),
        processors.RobertaProcessing(("<|end|>", 1), ("<|start|>", 0)),
    )
    level = _trained(
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(show_progress=False, special_tokens=["[UNK]"]),
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()]),
        pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(False)]),
    )
    letters = {c: i for i, c in enumerate("<pad> <unk> | e t a o n i h s r d".split(" "))}
    speech = Tokenizer(models.WordLevel(letters, unk_token="<unk>"))
    speech.normalizer = normalizers.Replace(" ", "|")
    speech.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    speech.decoder = decoders.CTC()
    pieces = file(bert)
    pieces["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "CharDelimiterSplit", "delimiter": " "},
            {"type": "Punctuation", "behavior": "MergedWithPrevious"},
            {"type": "FixedLength", "length": 5},
        ],
    }
    suffixes = file(clip, decoder={"type": "BPEDecoder", "suffix": "</w>"})
    return {
        "bert": file(bert),
        "bert cased": cased,
        "bert short words": uncased,
        "clip": file(clip),
        "clip, BPEDecoder": suffixes,
        "word level": file(level),
        "speech": file(speech),
        "pieces": pieces,
    }
