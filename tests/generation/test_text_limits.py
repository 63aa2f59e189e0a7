"""Limits for untrusted tokenizer.json files and chat templates; pages open the same files
(web/test/text/text.test.ts).
"""

import base64
import json
import struct

import pytest
from conformance.vectors import vectors
from edgewise.errors import EdgewiseError, TokenizerError
from edgewise.logic.text.limits import LIMITS
from edgewise.logic.text.tokenizer_limits import LimitError
from edgewise.text import ChatTemplate, Tokenizer

from tests.logic.forms import both, module

TOKENIZERS, TEMPLATES = vectors("tokenizers"), vectors("chat_templates")
BASE = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {
        "type": "BPE",
        "unk_token": "<s>",
        "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3},
        "merges": ["a b"],
    },
}


@pytest.mark.parametrize(
    "name, value, says", TOKENIZERS["files"], ids=[row[0] for row in TOKENIZERS["files"]]
)
@both
def test_tokenizer_files(form, name, value, says):
    limits = module(form, "text.tokenizer_limits")
    if says is None:
        assert limits.check_tokenizer(value)["encode"] >= 1
    else:
        with pytest.raises(LimitError, match=says):
            limits.check_tokenizer(value)
        with pytest.raises(TokenizerError, match=says):
            Tokenizer(json.dumps(value))


def charsmap(*replacements):
    """sentencepiece's: the bytes of a trie, and texts that end with NUL."""
    return struct.pack("<I", 8) + bytes(8) + b"".join(x + b"\0" for x in replacements)


@both
@pytest.mark.parametrize(
    "data, growth",
    [
        (charsmap(b"a", b"abcdefgh"), 1 + 8 / 64),
        (charsmap(b"a" * 64), 64),
        (charsmap(), 1),
        (struct.pack("<I", 1 << 31) + b"abc", 1),  # a trie beyond the end
        (b"abc", 1),
    ],
)
def test_growth_of_replacements(form, data, growth):
    check_tokenizer = module(form, "text.tokenizer_limits").check_tokenizer
    for written in (base64.b64encode(data).decode(), list(data)):
        normalizer = {"type": "Precompiled", "precompiled_charsmap": written}
        found = check_tokenizer({**BASE, "normalizer": normalizer})
        assert found == {"encode": growth, "decode": 1}


@both
@pytest.mark.parametrize("data", ["a", "ä", 5, None, [1, 2, 3, 256, 5], [1, 2, 3, "4", 5]])
def test_replacements_that_are_no_bytes_are_left_to_the_library(form, data):
    check_tokenizer = module(form, "text.tokenizer_limits").check_tokenizer
    normalizer = {"type": "Precompiled", "precompiled_charsmap": data}
    assert check_tokenizer({**BASE, "normalizer": normalizer}) == {"encode": 1, "decode": 1}


@both
@pytest.mark.parametrize(
    "pattern, slow", [("(a+)+$", True), ("(a|a)*b", True), ("(?:abc)+", False), ("", False)]
)
def test_files_that_may_take_forever(form, pattern, slow):
    may_take_forever = module(form, "text.tokenizer_limits").may_take_forever
    assert may_take_forever(split(pattern)) == slow
    nested = {"type": "Sequence", "pretokenizers": [split(pattern)["pre_tokenizer"]]}
    assert may_take_forever({**BASE, "pre_tokenizer": nested}) == slow


@both
@pytest.mark.parametrize("pattern, expected", TOKENIZERS["patterns"], ids=lambda x: str(x)[:40])
def test_patterns(form, pattern, expected):
    limits = module(form, "text.regex_limits")
    bounds = (LIMITS.regex_chars, LIMITS.regex_depth, LIMITS.regex_states)
    if isinstance(expected, int):
        assert limits.check_regex(pattern, *bounds) == expected
    else:
        with pytest.raises(limits.RegexError) as e:
            limits.check_regex(pattern, *bounds)
        assert expected in str(e.value)


GPT4 = r"(?i:'s|'t)|[^\r\n\p{L}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}]+[\r\n]*|\s+(?!\S)|\s+"


@both
def test_patterns_of_exponential_time(form):
    may_not_end = module(form, "text.regex_limits").may_not_end
    for pattern in ("(a+)+$", "(a|a)*b", "(a?){40}a", r"x((\w|\.)+)+!", "a?" * 20 + "b"):
        assert may_not_end(pattern, LIMITS.regex_depth), pattern
    for pattern in ("", r"\s+", "(?:abc)+", GPT4):
        assert not may_not_end(pattern, LIMITS.regex_depth), pattern


def split(pattern):
    return {
        **BASE,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        },
    }


def test_what_the_library_panics_at_is_a_tokenizer_error():
    """Each of these raises pyo3's PanicException, a BaseException, in the library, or aborted the
    process.
    """
    pytest.importorskip("tokenizers")
    broken = [
        {**BASE, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "QUJD"}},
        {**BASE, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
        {**BASE, "model": {**BASE["model"], "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 4294967295}}},
        split("(a+)+$"),
        split("(a|aa)+c"),
    ]
    for value in broken:
        try:
            tokenizer = Tokenizer(json.dumps(value))
            tokenizer.decode(tokenizer.encode("a" * 40 + "b"))
        except TokenizerError as e:
            assert e.what and e.where and e.remedy
    with pytest.raises(TokenizerError):
        Tokenizer(json.dumps(broken[0]))
    with pytest.raises(TokenizerError, match="retry-limit"):
        Tokenizer(json.dumps(broken[3])).encode("a" * 40 + "b")


def test_growth_counts_with_the_length_of_the_text():
    value = {
        **BASE,
        "normalizer": {
            "type": "Sequence",
            "normalizers": (
                [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 90}] * 2
            ),
        },
    }
    tokenizer = Tokenizer(json.dumps(value))
    assert len(tokenizer.encode("a")) == 8100
    with pytest.raises(TokenizerError, match="8100 times as long"):
        tokenizer.encode("a" * 40_000)


def test_files_of_any_content():
    pytest.importorskip("tokenizers")
    good = json.dumps(BASE).encode()
    deep, digits = b"[" * 1_000_000, b'{"a": ' + b"1" * 5000 + b"}"
    for name, data in [
        ("tokenizer.json", deep),
        ("tokenizer.json", digits),
        ("tokenizer.json", b'{"a": NaN}'),
        ("tokenizer_config.json", deep),
        ("tokenizer_config.json", digits),
        ("special_tokens_map.json", deep),
        ("tokenizer_config.json", b" " * (LIMITS.config_bytes + 1)),
        (
            "tokenizer_config.json",
            b'{"chat_template": [{"name": []}, 3, {"name": {}, "template": 5}]}',
        ),
        ("tokenizer_config.json", b'{"bos_token": 5}'),
    ]:
        files = {"tokenizer.json": good, name: data}
        try:
            tokenizer = Tokenizer.from_files(files.get, "m")
            tokenizer.encode("ab")
            tokenizer.apply_chat_template([{"role": "user", "content": "x"}])
            pytest.fail(f"{name}: {data[:40]}")
        except TokenizerError as e:
            assert e.what and e.where and e.remedy


@pytest.mark.parametrize("row", TEMPLATES["rendered"], ids=lambda row: row["name"])
def test_templates_render_as_in_transformers(row):
    """The file has the texts of transformers; if that is installed, they are computed again."""
    variables = {**TEMPLATES["messages"][row["messages"]], "bos_token": "<s>", "eos_token": "</s>"}
    try:
        import jinja2
        from transformers.utils.chat_template_utils import _compile_jinja_template

        try:
            assert (
                _compile_jinja_template(row["template"]).render(documents=None, **variables)
                == row["text"]
            )
        except jinja2.TemplateError:
            assert row["text"] is None
    except ImportError:
        pass
    messages = variables.pop("messages")
    if row["text"] is None:
        with pytest.raises(TokenizerError, match="refused the messages"):
            ChatTemplate(row["template"])(messages, **variables)
    else:
        assert ChatTemplate(row["template"])(messages, **variables) == row["text"]


@both
@pytest.mark.parametrize(
    "source, says",
    [
        ("x" * (1 << 18), None),
        ("x" * ((1 << 18) + 1), "has 262145 characters, at most 262144 are read"),
        ("\U0001f600" * (1 << 18), None),
        ("a" + " " * 4096 + "b" + "\n\u3000\ufeff\x1c" * 1000, None),
        ("a" + "\n\u3000\ufeff\x1c\t" * 820, "4100 spaces and line ends in a row, at most 4096"),
    ],
    ids=["longest", "too long", "outside of the BMP", "most spaces", "too many spaces"],
)
def test_sources_of_templates(form, source, says):
    check_template = module(form, "text.template_limits").check_template
    if says is None:
        check_template(source, "m")
    else:
        with pytest.raises(TokenizerError, match=says) as e:
            check_template(source, "m")
        assert e.value.where == "m" and "Copy the tokenizer's files again" in e.value.remedy


@both
@pytest.mark.parametrize("chars, fits", [(33140, True), (33141, False)])
def test_growth_of_a_text(form, chars, fits):
    check_growth = module(form, "text.tokenizer_limits").check_growth
    growth = {"encode": 8100.0, "decode": 1.0}
    check_growth(growth, "decode", chars * 9000, "m")
    if fits:
        check_growth(growth, "encode", chars, "m")
    else:
        with pytest.raises(TokenizerError, match="33141 characters 8100 times as long"):
            check_growth(growth, "encode", chars, "m")


@pytest.mark.parametrize("row", TEMPLATES["refused"], ids=lambda row: row["name"])
def test_templates_that_ask_for_too_much(row):
    with pytest.raises(TokenizerError) as e:
        ChatTemplate(row["template"])([{"role": "user", "content": "hi"}])
    assert e.value.what and e.value.where and e.value.remedy


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10000000000 }}",
        "{{ ([0] * 3000000000)|length }}",
        "{{ 'x'|center(9999999999) }}",
        "{{ 'x'.center(9999999999) }}",
        "{{ 'x'.zfill(9999999999) }}",
        "{{ '%09999999999d' % 1 }}",
        "{{ '%*d' % (9999999999, 1) }}",
        "{{ '%09999999999d'|format(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 9999999999) }}",
        "{{ [1]|batch(3000000000, 0)|list }}",
        "{{ [1]|slice(3000000000)|list }}",
        "{{ {'a': 1}|tojson(indent=999999999) }}",
        "{{ 1.5|round(1000000000) }}",
        "{{ 'x\ty'.expandtabs(9999999999) }}",
        "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
        "{{ ('b' * 100000).join(['x'] * 100000) }}",
        "{{ (['x'] * 100000)|join('b' * 100000) }}",
        "{{ ('a' * 16000000).split('a') }}",
        "{{ ('a' * 16000000)|list }}",
        "{{ (10 ** 4000) * (10 ** 40000) }}",
        "{{ 'x'.translate({120: 'y' * 16000000}) ~ ('z' * 16000000) }}",
        "{{ lipsum(n=1000000) }}",
        "{{ strftime_now('%Y' * 1000) }}",
        (
            "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{%"
            " endfor %}{{ ns.x }}"
        ),
        (
            "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = {'a': ns.x, 'b':"
            " ns.x} %}{% endfor %}{{ ns.x|tojson }}"
        ),
        (
            "{% set ns = namespace(x='a' * 16000000) %}{% for i in range(99999) %}{% set y = ns.x ~"
            " i %}{% endfor %}"
        ),
        (
            "{% set big = ['aaaaaaaa'] * 99999 %}{% set x %}{% for i in range(99999) %}{{ big }}{%"
            " endfor %}{% endset %}"
        ),
        "{% for i in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 40 }}{% endfor %}",
        "{{ raise_exception() }}",
        "{{ [1, 'a']|sort }}",
        "{% break %}",
    ],
)
def test_what_makes_much_is_refused_before_it_is_made(source):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EdgewiseError) as e:
        ChatTemplate(source)([{"role": "user", "content": "hi"}])
    assert e.value.what and e.value.where and e.value.remedy
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000
    )  # kB; each asks for gigabytes


def test_a_long_conversation_is_within_the_budget():
    messages = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"message {i} " * 20}
        for i in range(2000)
    ]
    collect = (
        "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + [m] %}{%"
        " endfor %}{% for m in ns.all %}{{ m.role ~ ': ' ~ m.content }}\n{% endfor %}"
    )
    assert len(ChatTemplate(collect)(messages)) > 400_000


def test_templates_of_processors():
    """chat_template.json, of models that see or hear, is read before tokenizer_config.json."""
    words = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    files = {
        "tokenizer.json": json.dumps({"version": "1.0", "added_tokens": [], "model": words}),
        "tokenizer_config.json": json.dumps({"chat_template": "config"}),
        "chat_template.json": json.dumps({"chat_template": "processor"}),
    }

    def template():
        return Tokenizer.from_files(
            lambda name: files[name].encode() if name in files else None, "m"
        ).chat_template

    assert template() == "processor"
    files["chat_template.jinja"] = "own"
    assert template() == "own"
    del files["chat_template.jinja"]
    files["chat_template.json"] = json.dumps({"other": 1})
    assert template() == "config"
