"""Pairs in both forms; rows are those that transformers makes by shifting labels."""

import pytest
from edgewise.errors import InputError

from .forms import both, module


@both
def test_pairs_and_what_is_none(form):
    pairs = module(form, "training.pairs")
    made = pairs.pairs_of(
        [{"source": "a", "target": "b"}, {"input": "c", "output": "d"}], "text", "x"
    )
    assert [(p.source, p.target, p.where) for p in made] == [
        ("a", "b", "x, record 1"),
        ("c", "d", "x, record 2"),
    ]
    (asked,) = pairs.pairs_of([{"image": "i", "prompt": "p", "answer": "a"}], "pictures", "x")
    assert (asked.source, asked.prompt, asked.target) == (["i"], "p", "a")
    several = {"images": ["i", "j"], "prompt": "p", "completion": "a"}
    assert pairs.pairs_of([several], "pictures", "x")[0].source == ["i", "j"]
    for given, kind, error in (
        ([], "speech", "x: there are no pairs"),
        ([{"audio": "a"}], "speech", "x, record 1: it has no text"),
        ([{"text": "a"}], "speech", "x, record 1: it has no audio"),
        ([{"audio": "a", "text": " "}], "speech", "x, record 1: text is empty"),
        ([{"source": 5, "target": "a"}], "text", "x, record 1: source is 5"),
        ([{"source": "a", "target": 5}], "text", "x, record 1: target is 5"),
        ([{"image": "i", "answer": "a"}], "pictures", "x, record 1: it has no prompt"),
        ([{"image": [], "prompt": "p", "answer": "a"}], "pictures", "record 1: it has no picture"),
        ([{"image": "i", "prompt": "p", "answer": ""}], "pictures", "record 1: answer is empty"),
        (["a"], "text", "x, record 1: .a. is not a pair"),
    ):
        with pytest.raises(InputError, match=error):
            pairs.pairs_of(given, kind, "x")


@both
def test_rows_are_labels_and_inputs_of_transformers(form):
    """The input of the decoder is the labels, shifted to the right after the first token."""
    torch = pytest.importorskip("torch")
    from transformers.models.whisper.modeling_whisper import shift_tokens_right

    pairs, chat = module(form, "training.targets"), module(form, "training.chat")
    for prefix, target, end in (([9], [5, 6, 2], 2), ([9, 7, 8], [5, 6], 2), ([9], [5], None)):
        example = pairs.target_example(prefix, target, end)
        kept = chat.kept_rows([example], 8, 1, "x")
        ids, labels = kept.rows[0]
        count = len(example.ids)
        labelled = [*example.ids[1:count], *[-100] * (8 - count)]
        shifted = shift_tokens_right(torch.tensor([labelled]), 1, 9)[0].tolist()
        assert ids[:count] == shifted[:count] and ids[count:] == [1] * (8 - count)
        learned = [*target, *([end] if end is not None and target[-1] != end else [])]
        assert [i for i in labels if i != -100] == learned
    assert pairs.target_ids([3, 5, 6, 2], 4, [3, 4]) == [4, 5, 6, 2]
    assert pairs.target_ids([3, 5], None, [3]) == [3, 5]
    assert pairs.end_id({"eos_token_id": [4, 5]}, {}) == 4 and pairs.end_id({}, {}) is None
    assert pairs.end_id({"eos_token_id": None}, {"eos_token_id": 0}) == 0
    example = pairs.target_example([9], [5, 6, 7], 2)
    assert pairs.row_length([example], None, 100) == 5 and pairs.row_length([example], None, 4) == 4
    with pytest.raises(InputError, match="sequence_length: 9 tokens are more than the model's 8"):
        pairs.row_length([example], 9, 8)
    with pytest.raises(InputError, match="has 2.0 s, a window of the model 1 s"):
        pairs.check_window(20, 10, 10, "x")
