"""Tasks: encodings as the `tokenizers` library makes them, options, candidate labels."""

import json
import re

import pytest
from edgewise.errors import InputError
from edgewise.logic.images.geometry import Layout
from edgewise.logic.tasks.inputs import Values
from edgewise.logic.text.encoding import EncodeOptions, Token

from tests.generation import tokenizer_files

from .forms import both, module

TEXT = "Once upon a time there was a small dragon in a very deep cave."
OTHER = "It slept all day; nobody came by."


@pytest.fixture(scope="module")
def library():
    """A tokenizer of the library."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_files.words()["bert"]))
    first = made.id_to_token(0)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{first} $A {first}",
        pair=f"{first} $A {first} $B:1 {first}:1",
        special_tokens=[(first, 0)],
    )
    return made


def tokens_of(library, text):
    """The tokens of a text, without special ones."""
    found = library.encode(text, add_special_tokens=False)
    return [Token(i, *o, w) for i, o, w in zip(found.ids, found.offsets, found.word_ids)]


@both
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "pair, strategy, most, stride",
    [
        (None, "longest_first", 9, 0),
        (None, "longest_first", 14, 3),
        (None, "only_first", 14, 3),
        (OTHER, "longest_first", 9, 0),
        (OTHER, "longest_first", 45, 3),
        (OTHER, "only_first", 45, 2),
        (OTHER, "only_second", 65, 3),
        (OTHER, "only_first", 200, 0),
    ],
)
def test_encodings_are_those_of_the_library(form, library, side, pair, strategy, most, stride):
    encoding = module(form, "text.encoding")
    template = encoding.read_template(json.loads(library.to_str())["post_processor"])
    second = None if pair is None else tokens_of(library, pair)
    first = tokens_of(library, TEXT)
    library.enable_truncation(most, stride=stride, strategy=strategy, direction=side)
    try:
        wanted = library.encode(TEXT, pair) if pair else library.encode(TEXT)
    finally:
        library.no_truncation()
    every = [wanted, *wanted.overflowing]
    parts = encoding.truncated(template, first, second, strategy, most, stride, side)
    if pair is not None and strategy == "longest_first":
        every = every[:1]  # the library's parts of a pair overlap in both texts
    assert [p.ids for p in parts] == [w.ids for w in every]
    for got, want in zip(parts, every):
        assert got.type_ids == want.type_ids and got.special == want.special_tokens_mask
        assert got.words == want.word_ids and got.sequences == want.sequence_ids
        assert [tuple(o) for o in got.offsets] == want.offsets


@both
def test_post_processors(form):
    encoding = module(form, "text.encoding")
    bert = {"type": "BertProcessing", "cls": ["a", 5], "sep": ["b", 6]}
    level = {"type": "ByteLevel"}
    first = [Token(1, 0, 1, 0)]
    for value, ids in (
        (None, [1, 1]),
        (level, [1, 1]),
        (bert, [5, 1, 6, 1, 6]),
        ({"type": "Sequence", "processors": [level, bert]}, [5, 1, 6, 1, 6]),
        ({**bert, "type": "RobertaProcessing"}, [5, 1, 6, 6, 1, 6]),
    ):
        template = encoding.read_template(value)
        assert encoding.assemble(template, first, first, True).ids == ids
        assert encoding.assemble(template, first, first, False).ids == [1, 1]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}
    for wrong, says in (
        (3, "is not an object"),
        ({**bert, "cls": ["a"]}, "no pair of a text and an id"),
        ({"type": "Sequence"}, "is not a list"),
        ({"type": "Sequence", "processors": [bert, bert]}, "several post-processors"),
        ({"type": "Other"}, "has the type 'Other'"),
        (template, "lacks the ids of 'x'"),
    ):
        with pytest.raises(ValueError, match=says):
            encoding.read_template(wrong)


@both
def test_what_is_cut(form):
    encoding = module(form, "text.encoding")
    tokens = [Token(i, i, i + 1, i) for i in range(9)]
    plain = encoding.plain()
    for given, says in (
        ((tokens, None, "all", 3), "not a way of truncation"),
        ((tokens[:2], tokens, "only_first", 5), "have to be cut"),
        ((tokens, None, "only_first", 4, 4), "stride is 4"),
    ):
        with pytest.raises(InputError, match=says):
            encoding.truncated(plain, *given)


@both
def test_candidate_labels(form):
    candidates = module(form, "tasks.candidates")

    def of(labels, template="a {} {}"):
        given = {"candidate_labels": labels, "hypothesis_template": template}
        found = candidates.candidates(given, "zero-shot-classification")
        return found.labels, found.texts

    assert of(["red, white and blue"], "{}!")[1] == ["red, white and blue!"]
    assert of("a cat, dog,") == (["a cat", "dog"], ["a a cat a cat", "a dog dog"])
    assert of(["$& a", "a"], None or "{}") == (["$& a", "a"], ["$& a", "a"])
    for wrong in (None, [], "", " , ", ["a", ""], [1], 7):
        with pytest.raises(InputError, match="candidate_labels: there are no labels"):
            of(wrong)
    for wrong in ("a", 3):
        with pytest.raises(InputError, match="hypothesis_template"):
            of(["a"], wrong)


@both
@pytest.mark.parametrize(
    "reader, given, says",
    [
        ("encode_options", {"max_length": 0}, "max_length: it is 0. Give an integer of 1 or more"),
        ("encode_options", {"truncation": "some"}, "truncation.*longest_first"),
        ("encode_options", {"padding": "some"}, "padding.*longest"),
        ("encode_options", {"add_special_tokens": 1}, "add_special_tokens"),
        ("grouping", {"stride": 3}, "stride: overlapping parts.*aggregation_strategy"),
        ("grouping", {"ignore_labels": [3]}, "ignore_labels"),
        ("grouping", {"aggregation_strategy": "some"}, "first, average, max"),
        ("is_multi_label", {"multi_label": "yes"}, "multi_label"),
    ],
)
def test_options_that_are_not_valid(form, reader, given, says):
    texts = module(form, "tasks.texts")
    with pytest.raises(InputError, match=says):
        getattr(texts, reader)(given)


@both
def test_options(form):
    texts = module(form, "tasks.texts")
    assert texts.encode_options({}) == EncodeOptions()
    assert texts.encode_options({"truncation": False}).truncation == "do_not_truncate"
    assert texts.encode_options({"truncation": "only_first"}, 9, 7).max_length == 7
    assert texts.encode_options({"max_length": 8}, 9, 7).max_length == 8
    for given, strategy in (
        ({"grouped_entities": True}, "simple"),
        ({"grouped_entities": True, "ignore_subwords": True}, "first"),
        ({"ignore_subwords": True, "aggregation_strategy": "max"}, "none"),
        ({"aggregation_strategy": "max"}, "max"),
    ):
        assert texts.grouping(given).strategy == strategy
    how = texts.asking({}, None)
    assert (how.top_k, how.most, how.stride, how.longest) == (1, 384, 128, 15)
    how = texts.asking({"topk": 2}, 100)
    assert (how.top_k, how.most, how.stride) == (2, 100, 50)
    with pytest.raises(InputError, match="max_seq_len"):
        texts.asking({"doc_stride": 5, "max_seq_len": 4}, None)


def test_names():
    """Each task of a page has a kind of inputs, and a class in Python, and packages unless it asks
    those of another task; codecs are no pipelines.
    """
    from edgewise.host.pipelines import TASKS
    from edgewise.logic.manifest.limits import PROGRAM_TASKS
    from edgewise.logic.tasks.names import ALIASES, KINDS, task_of

    others = {"codec"}
    without = set(KINDS) - set(PROGRAM_TASKS)
    assert set(PROGRAM_TASKS) - set(KINDS) == others and not without - {"visual-question-answering"}
    assert set(TASKS) == {*KINDS, *ALIASES, "text-generation"}
    assert set(ALIASES.values()) <= set(KINDS) and not set(ALIASES) & set(KINDS)
    assert task_of("ner") == "token-classification" and task_of("other") == "other"


@both
def test_planes(form):
    pictures = module(form, "tasks.pictures")
    done = Layout(height=800, width=1333, kept=(600, 1333))
    assert pictures.kept_size(25, 42, done) == (19, 42)  # 18.75 rows of the planes
    assert pictures.kept_size(800, 1333, done) == (600, 1333)
    assert pictures.count_planes([1, 9, 4, 5], "x") == 9
    pictures.check_one_plane([1, 4, 5], "x")
    for dims in ([1, 9, 4, 5], [4, 5]):
        with pytest.raises(InputError, match=f"shape {' x '.join(map(str, dims))} is not that"):
            pictures.check_one_plane(dims, "x")


@both
def test_masks(form):
    pictures = module(form, "tasks.pictures")
    queries = ["logits", "pred_masks", "other"]
    old = ["class_queries_logits", "masks_queries_logits"]
    for subtask, outputs, wanted in (
        (None, queries, ("segments", "logits", "pred_masks")),
        ("panoptic", old, ("segments", *old)),
        ("instance", queries, ("segments", "logits", "pred_masks")),
        ("semantic", old, ("planes", *old)),
        ("instance", old, ("instances", *old)),
        ("semantic", ["logits"], ("classes", "logits", "")),
        (None, ["logits"], ("classes", "logits", "")),
    ):
        how = pictures.segmenting({"subtask": subtask})
        found = pictures.masks_of(how, outputs, "image-segmentation", {})
        assert (found.form, found.logits, found.masks) == wanted
    for subtask, outputs, says in (
        ("panoptic", ["logits"], "no panoptic segmentation"),
        (None, ["x"], "no output logits; it has x"),
    ):
        how = pictures.segmenting({"subtask": subtask})
        with pytest.raises(InputError, match=says):
            pictures.masks_of(how, outputs, "image-segmentation", {})


@both
def test_options_of_pictures(form):
    pictures = module(form, "tasks.pictures")
    how = pictures.segmenting({"label_ids_to_fuse": (1, 2), "threshold": 0})
    assert how.fused == [1, 2] and (how.threshold, how.mask_threshold, how.overlap) == (0, 0.5, 0.5)
    assert pictures.segmenting({"label_ids_to_fuse": [1], "subtask": "instance"}).fused == []
    how = pictures.detecting({})
    assert (how.threshold, how.percentage, how.iou, how.agnostic) == (0.5, False, 0.45, False)
    for reader, given in (
        ("segmenting", {"label_ids_to_fuse": ["a"]}),
        ("segmenting", {"label_ids_to_fuse": 3}),
        ("segmenting", {"subtask": "other"}),
        ("segmenting", {"mask_threshold": "a"}),
        ("segmenting", {"overlap_mask_area_threshold": -1}),
        ("detecting", {"iou": 2}),
        ("detecting", {"percentage": 1}),
    ):
        with pytest.raises(InputError, match=next(iter(given))):
            getattr(pictures, reader)(given)


@both
def test_boxes_that_yolo_chose_itself(form):
    pictures = module(form, "tasks.pictures")
    rows = [[0, 0, 64, 32, 0.9, 1], [0, 0, 64, 64, 0.3, 0], *[[0] * 6] * 5]
    made = Values([1, 7, 6], [float(x) for row in rows for x in row])
    how = pictures.detecting({})
    found = pictures.yolo_boxes(made, how, (64, 64), (32, 32), "object-detection")
    assert pictures.detected(found, {"1": "cat"}, (32, 32), False) == [
        {"score": 0.9, "label": "cat", "box": {"xmin": 0, "ymin": 0, "xmax": 32, "ymax": 16}}
    ]
    with pytest.raises(InputError, match="shape 1 x 6 is not that"):
        pictures.yolo_boxes(Values([1, 6], [0.0] * 6), how, (64, 64), (32, 32), "x")
    with pytest.raises(InputError, match="shape 1 x 2 x 4 is not that"):
        logits, boxes = Values([1, 3, 2], [0.0] * 6), Values([1, 2, 4], [0.0] * 8)
        pictures.query_boxes(logits, boxes, {}, 0.5, (32, 32), "x")


@both
def test_options_that_do_not_exist(form):
    options = module(form, "options")
    options.check_known(["a"], ["a", "b"], "task")
    for known, says in (
        (["top_k", "stride"], "task: there is no option 'tempo'. There are: top_k, stride."),
        (["temp", "stride"], "task: there is no option 'tempo'. Did you mean 'temp'?"),
        ([], "task: there is no option 'tempo'. There are none."),
    ):
        with pytest.raises(InputError, match=re.escape(says)):
            options.check_known(["tempo"], known, "task")
