"""Texts in Pyodide with the wheel alone: the tokenizers and chat templates of pages give what the
`tokenizers` library and jinja2 give in CPython. tests/generation/test_text_library.py compares the
library of pages itself, with many tokenizers.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from conformance.vectors import vectors
from edgewise.text import Tokenizer
from generation import tokenizer_files
from hostile.packages import places
from pipelines import tiny

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "web/demo/model"
TOKENIZERS, TEMPLATES = vectors("tokenizers"), vectors("chat_templates")
# Those that only the number of steps ends, which takes seconds; web/test/text lowers it.
ENDLESS = ("loops", "filtered loops", "macros")
TEXTS = [
    *tokenizer_files.TEXT[:7],
    "Élise ate a crème brûlée in Montréal.  Two  spaces, 漢字 and ☃!",
    "\U0001f409 before, \U0001f389\U0001f389 within, after \U0001f409",
    " leads and trails ",
    "",
]


@pytest.fixture(scope="module")
def demo(pyodide):
    """Path of the demo's model in Pyodide."""
    shutil.copytree(DEMO, pyodide.folder / "demo", dirs_exist_ok=True)
    return "/work/demo"


CODES = """
def everything(tokenizer, texts):
    out = [tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_id]
    for text in texts:
        ids = tokenizer.encode(text)
        out.append([
            ids,
            tokenizer.encode(text, add_special_tokens=False),
            tokenizer.decode(ids),
            tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=True),
            tokenizer.decode([*ids, 1 << 31]),
            tokenizer.convert_ids_to_tokens([*ids, 1 << 31]),
            tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(ids)),
            [tokenizer.token_to_id(t) for t in ("a", "no such token")],
            [list(map(list, vars(e).values())) for e in tokenizer.encodings(text)],
        ])
    return out
"""


def plain(value):
    """As JSON has it."""
    return json.loads(json.dumps(value))


def in_cpython(code, **names):
    names |= {"__name__": "__main__"}
    exec(code, names)
    return plain(names["result"])


def both(pyodide, code, **names):
    """Runs code here and in Pyodide; both results have to be equal."""
    got = pyodide.run(code, **names)
    assert got == in_cpython(code, **names)
    return got


def test_tokenizer_of_a_model(pyodide, demo):
    code = CODES + (
        "from edgewise.text import Tokenizer\n"
        "result = everything(Tokenizer.from_pretrained(folder), texts)\n"
    )
    got = pyodide.run(code, folder=demo, texts=TEXTS)
    assert got == in_cpython(code, folder=str(DEMO), texts=TEXTS)
    assert len(got) == 3 + len(TEXTS) and len(got[3][0]) > 10


@pytest.mark.parametrize("family", ["byte_level", "sentencepiece", "words"])
def test_tokenizers_of_all_kinds(pyodide, family):
    made = getattr(tokenizer_files, family)()
    names = {  # see OTHERWISE and the like in test_text_library.py
        "byte_level": ["gpt2", "llama3", "added tokens"],
        "sentencepiece": ["llama2", "metaspace first", "fused"],
        "words": ["bert", "bert cased", "word level"],
    }[family]
    code = CODES + (
        "from edgewise.text import Tokenizer\n"
        "result = [everything(Tokenizer(file), texts) for file in files]\n"
    )
    texts = [text for text in TEXTS if family != "words" or "\u200d" not in text]
    both(pyodide, code, files=[json.dumps(made[name]) for name in names], texts=texts)


@pytest.mark.parametrize("bos,eos", [(True, False), (False, True), (True, True), (False, False)])
def test_add_bos(pyodide, bos, eos):
    code = CODES + (
        "from edgewise.text import Tokenizer\nresult = everything(Tokenizer(file, config), texts)\n"
    )
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    config |= {"add_bos_token": bos, "add_eos_token": eos}
    file = json.dumps(tokenizer_files.sentencepiece()["llama2"])
    got = both(pyodide, code, file=file, config=config, texts=TEXTS[:2])
    assert len(got[3][0]) == len(got[3][1]) + bos + eos


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_pairs_parts_and_words(pyodide, kind):
    """Encodings of pairs, overlapping parts and lists of words."""
    pytest.importorskip("transformers")
    code = """
        from edgewise.text import Tokenizer
        tokenizer = Tokenizer(file, {"model_max_length": 40})
        result = []
        for a, b in zip(texts, texts[1:]):
            for found in (
                tokenizer.encodings(a, b, truncation="only_second", stride=5),
                tokenizer.encodings(f"{a} {b} {a}", truncation=True, stride=7),
                tokenizer.encodings(a.split()),
            ):
                result.append([list(map(list, vars(e).values())) for e in found])
        """
    file = tiny.tokenizer_of(kind).backend_tokenizer.to_str()
    got = both(pyodide, textwrap.dedent(code), file=file, texts=tiny.TEXTS)
    assert max(map(len, got)) > 1


def test_tokenizer_of_clip(pyodide):
    """From vocab.json and merges.txt."""
    file = tokenizer_files.words()["clip"]["model"]
    vocab = {token: i for i, token in enumerate(file["vocab"])}
    vocab |= {t: len(vocab) + i for i, t in enumerate(("<|startoftext|>", "<|endoftext|>"))}
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["merges"]]
    files = {"vocab.json": json.dumps(vocab), "merges.txt": "\n".join(["#", *merges])}
    code = (
        "from edgewise.compiler.tokenizers.clip import clip_files\n"
        "from edgewise.text import Tokenizer\n"
        "read = lambda name: files[name].encode() if name in files else None\n"
        "tokenizer = Tokenizer.from_files(clip_files(read, 'm'), 'm')\n"
        "result = [tokenizer.encode(text) for text in texts]\n"
    )
    both(pyodide, code, files=files, texts=["A Photo  of  a cat's 3 toys!", "Ünïcode 😀"])


def test_streaming(pyodide, demo):
    """A streamer gives the text in pieces, each of them whole characters."""
    code = """
import edgewise
from edgewise.text import TextStreamer
class Pieces(TextStreamer):
    def on_finalized_text(self, text, stream_end=False):
        pieces.append(text)
pieces = []
write = edgewise.pipeline("text-generation", folder)
text = write("One day", max_new_tokens=16, do_sample=False,
             streamer=Pieces(write.tokenizer, skip_special_tokens=True))[0]["generated_text"]
result = [text, pieces]
"""
    text, pieces = pyodide.run(code, folder=demo)
    assert [text, pieces] == in_cpython(code, folder=str(DEMO))
    assert "".join(pieces) == text and len(pieces) > 5


@pytest.mark.parametrize("part", range(4))
def test_chat_templates(pyodide, part):
    rows = TEMPLATES["rendered"][part::4]
    got = pyodide.run(
        """
        from edgewise.errors import TokenizerError
        from edgewise.text import ChatTemplate
        result = []
        for row in rows:
            given = {**messages[row["messages"]], "bos_token": "<s>", "eos_token": "</s>"}
            try:
                result.append(ChatTemplate(row["template"])(given.pop("messages"), **given))
            except TokenizerError as e:
                assert "refused the messages" in str(e), e
                result.append(None)
        """,
        rows=rows,
        messages=TEMPLATES["messages"],
    )
    assert got == [row["text"] for row in rows]


def test_chat_templates_beyond_the_limits(pyodide):
    rows = [row["template"] for row in TEMPLATES["refused"] if row["name"] not in ENDLESS]
    got = pyodide.run(
        """
        from edgewise.errors import TokenizerError
        from edgewise.text import ChatTemplate
        result = []
        for source in rows:
            try:
                result.append(ChatTemplate(source)([{"role": "user", "content": "hi"}]))
            except TokenizerError as e:
                result.append(bool(e.what and e.where and e.remedy))
        # a refused template does not affect others
        result.append(ChatTemplate("{% for i in range(3) %}{{ i }}{% endfor %}")([]))
        """,
        rows=rows,
    )
    assert got == [True] * len(rows) + ["012"]


def test_chat_of_a_model(pyodide):
    """A message that is continued, ids, and variables that are no JSON."""
    file = json.dumps(tokenizer_files.byte_level()["gpt2"])
    code = """
from edgewise.errors import TokenizerError
from edgewise.text import Tokenizer
config = {"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}"}
tokenizer = Tokenizer(file, config)
chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello, "}]
result = [
    tokenizer.apply_chat_template(chat),
    tokenizer.apply_chat_template(chat, tokenize=False, continue_final_message=True),
]
for template in (None, "{% if %}", "{{ raise_exception('no ' ~ messages[0].role) }}"):
    tokenizer.chat_template = template
    try:
        tokenizer.apply_chat_template(chat)
    except TokenizerError as e:
        result.append(e.what.split(":")[0])
"""
    got = both(pyodide, code, file=file)
    assert got[1].endswith("Hello, ")
    assert got[2:] == [
        "this tokenizer has no chat template",
        "the chat template is invalid",
        "the chat template refused the messages",
    ]
    got = pyodide.run(
        """
        from collections import UserDict
        from edgewise.errors import TokenizerError
        from edgewise.text import ChatTemplate
        say = ChatTemplate("{{ tools[0].name }}")
        result = [say([], tools=(UserDict(name="x"),))]
        for wrong in ([object()], [float("nan")]):
            try:
                say([], tools=wrong)
            except TokenizerError as e:
                result.append("not JSON" in e.what)
        """
    )
    assert got == ["x", True, True]


REFUSED = """
from edgewise.errors import TokenizerError
from edgewise.text import Tokenizer
result = []
for file, config in files:
    try:
        tokenizer = Tokenizer(file, config)
        tokenizer.decode(tokenizer.encode("abba"))
        tokenizer.encodings("ab ba")
        result.append(None)
    except TokenizerError as e:
        assert e.what and e.where and e.remedy, e
        result.append(e.what)
"""


def test_limits_of_files(pyodide):
    """The vectors that pages and CPython have, too, and texts that grow."""
    files = [[json.dumps(value), {}] for _, value, _ in TOKENIZERS["files"]]
    for (name, _, says), got in zip(TOKENIZERS["files"], pyodide.run(REFUSED, files=files)):
        assert says is None or says in got, (name, got)
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 90}
    grown = dict(TOKENIZERS["files"][0][1])
    grown["normalizer"] = {"type": "Sequence", "normalizers": [replace] * 2}
    got = pyodide.run(
        """
        from edgewise.errors import TokenizerError
        from edgewise.text import Tokenizer
        tokenizer = Tokenizer(file)
        result = [len(tokenizer.encode("a"))]
        try:
            tokenizer.encode("a" * 40_000)
        except TokenizerError as e:
            result.append(e.what)
        """,
        file=json.dumps(grown),
    )
    assert got[0] == 8100 and "8100 times as long" in got[1]


def edited(value, path, new):
    """A copy with a part replaced, or removed for `...`."""
    value = copy.deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    if new is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = new
    return value


def test_damaged_files(pyodide):
    """Each gives a tokenizer or a TokenizerError."""
    value = tokenizer_files.byte_level()["llama3"]
    value["model"]["vocab"] = {"a": 0, "b": 1, "ab": 2, "<s>": 3}
    value["model"]["merges"] = ["a b"]
    value["added_tokens"] = value["added_tokens"][:1]
    text, rng = json.dumps(value), random.Random(6)
    files = [[text[:n], {}] for n in range(0, len(text), 64)]
    new = [..., None, True, -1, 1 << 40, 4294967295, "x", [], {}, [1], {"type": "BPE"}]
    for path in places(value):
        if path:
            files += [[json.dumps(edited(value, path, x)), {}] for x in rng.sample(new, 4)]
    got = pyodide.run(REFUSED, files=files)
    assert len(got) == len(files) > 200 and None in got
    assert all(got[: len(text) // 64])


@pytest.mark.parametrize(
    "split, says",
    [
        ({"type": "UnicodeScripts"}, "UnicodeScripts"),
        *(
            ({"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}, s)
            for p, s in [("(a+)+$", "exponential time"), ("(?x) a", "Invalid group")]
        ),
    ],
)
def test_what_only_the_library_does(pyodide, split, says):
    """What JavaScript lacks, and a pattern that nothing could end, are refused; CPython takes
    both.
    """
    value = {**TOKENIZERS["files"][0][1], "pre_tokenizer": split}
    [got] = pyodide.run(REFUSED, files=[[json.dumps(value), {}]])
    assert "not supported" in got and says in got
    assert Tokenizer(json.dumps(value)).encode("ab")


def test_long_texts(pyodide):
    """One word of 200,000 characters."""
    file = tokenizer_files.byte_level()["gpt2"]
    code = (
        "from edgewise.text import Tokenizer\n"
        "tokenizer = Tokenizer(file)\n"
        "ids = tokenizer.encode('the' * 70_000)\n"
        "result = [len(ids), ids[-5:], tokenizer.decode(ids) == 'the' * 70_000]\n"
    )
    assert both(pyodide, code, file=json.dumps(file))[2]
