"""Chats and other records as training data, on both forms: tokens and which of them are learned
beside TRL's, and formats of files.
"""

import csv
import io
import json
from html.parser import HTMLParser

import pytest
from edgewise.errors import InputError
from edgewise.host.training.data import answer_of, read_data
from edgewise.text import Tokenizer

from tests.conformance.vectors import vectors

from .forms import ROOT, both, module

VECTORS = vectors("training_chats")
MODEL = ROOT / "web/demo/model"


def tokenizer_of(template):
    files = {p.name: p.read_bytes() for p in MODEL.glob("*.json")}
    if template is not None:
        files["chat_template.jinja"] = template.encode()
    return Tokenizer.from_files(files.get, str(MODEL))


def examples(form, record, template, end=None, sequence=10_000):
    """What `example_of` makes, with this tokenizer."""
    answer_to, answer = answer_of(tokenizer_of(template)), None
    steps = module(form, "training.chat").example_of(record, template, end, sequence, "data")
    while True:
        try:
            request = steps.send(answer)
            answer = answer_to(request)
            if form == "page" and request.kind == "locate":  # places are in units of UTF-16
                units = [0]
                for c in request.text:
                    units.append(units[-1] + len(c.encode("utf-16-le")) // 2)
                answer = [t._replace(start=units[t.start], end=units[t.end]) for t in answer]
        except StopIteration as over:
            return [{"ids": e.ids, "counts": [int(c) for c in e.counts]} for e in over.value]


@both
@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda c: f"{c['template']}-{c['chat']}")
def test_the_assistants_turns_are_learned_as_in_trl(form, case):
    template, messages = VECTORS["templates"][case["template"]], VECTORS["chats"][case["chat"]]
    assert examples(form, {"messages": messages}, template) == case["examples"]
    speakers = {"user": "human", "assistant": "gpt", "system": "system"}
    shared = [{"from": speakers[m["role"]], "value": m["content"]} for m in messages]
    assert examples(form, {"conversations": shared}, template) == case["examples"]


@both
@pytest.mark.parametrize("case", VECTORS["completions"], ids=lambda c: c["prompt"] or "none")
def test_completions_are_learned_as_in_trl(form, case):
    record = {"prompt": case["prompt"], "completion": case["completion"]}
    assert examples(form, record, None, VECTORS["eos_token_id"]) == [case["example"]]


GREETING = [
    {"role": "assistant", "content": "Be short."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Bye"},
]


@both
def test_a_first_turn_is_learned_without_the_templates_own_prompt(form):
    own = "{% if messages[0].role != 'system' %}<|system|>\nBe short.<|end|>\n{% endif %}"
    plain = VECTORS["templates"]["plain"]
    [example] = examples(form, {"messages": GREETING}, own + plain)
    learned = [i for i, c in zip(example["ids"], example["counts"]) if c]
    assert tokenizer_of(None).decode(learned) == "Be short.<|end|>\nBye<|end|>\n"
    with pytest.raises(InputError, match="data: .*does not show where the text"):
        examples(form, {"messages": GREETING}, "{{ messages | length }}" + own)


@both
def test_turns_after_the_end_of_the_row_are_not_rendered(form):
    """Each turn renders all before it, which takes hours for a chat of thousands of turns."""
    turn = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Bye"}]
    messages, asked = turn * 50, []

    def answer(request):
        if request.kind == "render":
            asked.append(len(request.messages))
            return "".join(m["content"] for m in request.messages)
        return [ord(c) for c in request.text]

    steps = module(form, "training.chat").example_of(
        {"messages": messages}, "plain", None, 12, "data"
    )
    given = None
    while True:
        try:
            given = answer(steps.send(given))
        except StopIteration as over:
            [example] = over.value
            break
    assert asked == [100, 1, 2, 3, 4, 5, 6]  # of 5 tokens each: the third one ends after the row
    assert [bool(c) for c in example.counts[:15]] == [False, False, True, True, True] * 3


@both
@pytest.mark.parametrize("mark", ["\ufdd0", "\ufdd1"])
def test_messages_with_the_marks_of_a_template_are_refused(form, mark):
    record = {"messages": [{"role": "user", "content": [{"text": mark}]}, GREETING[0]]}
    with pytest.raises(InputError, match="data: a message has the code point"):
        examples(form, record, VECTORS["templates"]["marked"])


@both
def test_alpacas_fields_become_messages_or_its_own_prompt(form):
    normal = module(form, "training.records").normal
    record = {"instruction": "Add.", "input": "1 2", "output": "3"}
    assert normal(record, True, "data") == {
        "messages": [
            {"role": "user", "content": "Add.\n\n1 2"},
            {"role": "assistant", "content": "3"},
        ]
    }
    # the prompt of github.com/tatsu-lab/stanford_alpaca, train.py
    assert normal(record, False, "data") == {
        "prompt": "Below is an instruction that describes a task, paired with an input that"
        " provides further context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n",
        "completion": "3",
    }
    assert normal({**record, "input": ""}, False, "data")["prompt"] == (
        "Below is an instruction that describes a task. Write a response that appropriately"
        " completes the request.\n\n### Instruction:\nAdd.\n\n### Response:\n"
    )


@both
def test_files_are_read_as_python_reads_them(form):
    read_records = module(form, "training.records").read_records
    records = [
        {"prompt": 'a "b", c', "completion": "two\nlines \u00e9\U0001f600"},
        {"prompt": "", "completion": ","},
        {"prompt": '"', "completion": ""},
    ]
    lines = "\n".join(json.dumps(r, ensure_ascii=False) for r in records)
    assert read_records(lines, "jsonl", "f") == records
    assert read_records("\ufeff\n" + lines + "\r\n\n", "jsonl", "f") == records
    assert read_records(json.dumps(records, indent=1), "jsonl", "f") == records
    for end in ("\n", "\r\n"):
        out = io.StringIO()
        writer = csv.DictWriter(out, list(records[0]), lineterminator=end)
        writer.writeheader()
        writer.writerows(records)
        for text in (out.getvalue(), out.getvalue().removesuffix(end)):
            assert read_records(text, "csv", "f") == list(csv.DictReader(io.StringIO(text)))
            assert read_records(text, "csv", "f") == records
    assert read_records("a,b,c\n1,,\n", "csv", "f") == [{"a": "1", "b": "", "c": ""}]
    assert read_records("a,b\n1,", "csv", "f") == [{"a": "1", "b": ""}]
    assert read_records("\n \na,b\n1,2\n", "csv", "f") == [{"a": "1", "b": "2"}]
    assert read_records(json.dumps(records[0], indent=1), "jsonl", "f") == records[:1]
    assert read_records("one line", "text", "f") == [{"text": "one line"}]
    format_of = module(form, "training.records").format_of
    names = {"a.CSV": "csv", "a.jsonl": "jsonl", "a.json": "jsonl", "a.txt": "text", "": "text"}
    assert {n: format_of(n, "x") for n in names} == names
    assert format_of("", ' {"a": 1}') == "jsonl"


@both
@pytest.mark.parametrize(
    "text, format, error",
    [
        ("", "jsonl", "is empty"),
        (" \n ", "text", "is empty"),
        ("{}\n{", "jsonl", "line 2"),
        ("[1]", "jsonl", "record 1"),
        ("[{}", "jsonl", "not a list of JSON"),
        ('a,b\n1,"2', "csv", "record 1"),
        ("a,b\n1", "csv", "names 2"),
        ("a,b", "csv", "no records"),
        ("a", "csv", "no records"),
        ('a,b\n"1"2,3', "csv", "record 1: a field goes on"),
        ("a,b,a\n1,2,3", "csv", "names .a. twice"),
        ("a;b\n1;2", "csv", "separated by .;."),
        ("[" * 100_000, "jsonl", "not a list of JSON"),
        # the parsers of pages have no limit of depth
        ("[" * 100_000 + "]" * 100_000, "jsonl", "not a list of JSON|record 1: .* not an object"),
        ('{"a":' * 100_000, "jsonl", "is not JSON"),
        ('{\n"a": 1\n}\n{', "jsonl", "line 1: .* is not JSON"),
        ("\n" * 10_000_000 + "x", "jsonl", "10000001 lines"),
    ],
)
def test_files_that_cannot_be_read_are_refused_in_words(form, text, format, error):
    if form == "page" and len(text) > 1_000_000:
        pytest.skip("the text is too long to be sent to Node")
    with pytest.raises(InputError, match=error):
        module(form, "training.records").read_records(text, format, "f")


@both
def test_long_columns_are_read_in_one_pass(form):
    """A search from each field to the end of the file would take minutes."""
    lines = [f"{i} \U0001f600" for i in range(50_000)]
    records = module(form, "training.records").read_records("a\n" + "\n".join(lines), "csv", "f")
    assert [r["a"] for r in records] == lines


@both
def test_data_are_records_alone_in_a_known_format(form):
    records = module(form, "training.records")
    assert records.are_records([{"text": "a"}, {}], "data")
    assert not records.are_records(["a", [1]], "data") and not records.are_records([], "data")
    with pytest.raises(InputError, match="data, record 2: .b. is not a record"):
        records.are_records([{"text": "a"}, "b"], "data")
    with pytest.raises(InputError, match="format: there is no format .xml.*jsonl, csv, text"):
        records.check_format("xml")


def test_a_file_has_a_known_format(tmp_path):
    (tmp_path / "a.xml").write_text('{"text": "a"}')
    with pytest.raises(InputError, match="there is no format 'xml'"):
        read_data(tmp_path / "a.xml", format="xml")


@both
@pytest.mark.parametrize(
    "record, error",
    [
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "loss.*dpo"),
        ({}, "its fields are none"),
        ({"mesages": []}, "mesages"),
        ({"messages": []}, "not a list of messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "message 1: its role is"),
        ({"messages": [{"role": "user", "content": 1}]}, "its content is 1"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no message of the assistant"),
        ({"prompt": "x", "completion": [{"role": "user", "content": "y"}]}, "one of prompt"),
        ({"text": None}, "text is"),
        ({"instruction": "x", "output": 1}, "output is 1"),
    ],
)
def test_records_with_other_fields_or_roles_are_refused(form, record, error):
    with pytest.raises(InputError, match=error):
        examples(form, record, VECTORS["templates"]["plain"])


@both
def test_rows_hold_one_document_each_and_truncation_is_stated(form):
    chat, data = module(form, "training.chat"), module("python", "training.chat")
    given = [
        data.Example([1, 2, 3], [False, True, True]),
        data.Example([4, 5, 6, 7, 8], [False, False, True, True, True]),
        data.Example([4, 5, 6, 7, 8], [False, False, False, False, True]),
    ]
    rows, report = chat.fitted(given, 4, 9, "data")
    assert rows == [([1, 2, 3, 9], [-100, 2, 3, -100]), ([4, 5, 6, 7], [-100, -100, 6, 7])]
    assert (report.examples, report.truncated, report.lost, report.dropped) == (3, 2, 2, 1)
    assert "2 of 3 examples are longer than 4 tokens: 2 tokens" in chat.stated(report, 4)
    with pytest.raises(InputError, match="the first 4 tokens are all prompt"):
        chat.fitted(given[2:], 4, 9, "data")
    tokens = chat.seen(given[1], lambda ids: "".join("abcde"[i - 4] for i in ids), 4)
    assert [(t.text, t.learned, t.fits) for t in tokens] == [
        ("a", False, True),
        ("b", False, True),
        ("c", True, True),
        ("d", True, True),
        ("e", False, False),
    ]


class Parts(HTMLParser):
    """The texts of HTML by their elements."""

    def __init__(self):
        super().__init__()
        self.open, self.parts = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.parts.append((self.open[-1], data))


@both
def test_a_preview_shows_what_is_learned(form):
    preview = module(form, "training.preview")
    texts = ["<b>&", " Hi\n", '"yes"', " and", " no"]
    tokens = [preview.Seen(t, i == 2, i < 4) for i, t in enumerate(texts)]
    caption = "1 of 5 tokens are learned, 1 are left out: the row ends before them"
    parts = Parts()
    parts.feed(preview.preview_html([tokens, tokens[:1]]))
    assert parts.parts == [
        ("figcaption", caption),
        ("div", "<b>& Hi\n"),
        ("mark", '"yes"'),
        ("div", " and"),
        ("del", " no"),
        ("figcaption", "0 of 1 tokens are learned"),
        ("div", "<b>&"),
    ]
    lines = preview.preview_text([tokens]).split("\n")
    assert lines == [
        "example 1: " + caption,
        r"    read | <b>& Hi\n",
        ' learned | "yes"',
        "    read |  and",
        "left out |  no",
    ]


@both
def test_tokens_that_begin_a_text_keep_their_space_in_a_preview(form):
    """Decoders of SentencePiece's tokens remove the first one."""
    words = {1: "\u2581Once", 2: "\u2581upon", 3: "!"}

    def decode(ids):
        return "".join(words[i] for i in ids).replace("\u2581", " ").removeprefix(" ")

    chat = module(form, "training.chat")
    example = chat.Example([1, 2, 3], [True] * 3, 0)
    assert [t.text for t in chat.seen(example, decode, 8)] == ["Once", " upon", "!"]
