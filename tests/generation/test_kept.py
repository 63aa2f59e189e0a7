"""States of earlier generations, from which later ones continue: each result is that of a model
that keeps none, bit for bit.
"""

import random
import threading
from contextlib import suppress

import pytest
from edgewise import CausalLM, Trainer, generate, pipeline
from edgewise.errors import Aborted, InputError
from edgewise.logic.generation.chunks import Shape, kept_length, parts_of, runs_of, tail_of
from edgewise.logic.generation.kept import BUDGET, Kept
from edgewise.training.peft import LoraConfig
from tiers import slow_unless

from tests.training import llama

from .decoders import decoder
from .hybrid import hybrid_model

LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
CAPACITY = 700
# Layers that see all tokens or a window of them, and some with a recurrent state besides
WINDOWS = ["attention", ("gqa", {"window": 20}), ("windowed", {"window": 90})]
MADE = {"windows": WINDOWS, "mixed": [*WINDOWS, "recurrent"]}


def saved(tmp_path, kind):
    path = tmp_path / "model.onnx"
    if kind in MADE:
        model = decoder(MADE[kind]).model.SerializeToString()
    else:
        model = hybrid_model().SerializeToString() if kind == "hybrid" else llama.base(kind)
    path.write_bytes(model)
    return path


def load(path, **options):
    return CausalLM(path, capacity=CAPACITY, **options)


def answer(lm, prompt, cache, **fields):
    """(ids, bits of the logits, tokens that were kept) of an answer of up to 40 tokens."""
    out = generate(
        lm, prompt, cache=cache, return_dict_in_generate=True, output_logits=True, **fields
    )
    rows = [x.tobytes() for step in out["logits"] for x in step if x is not None]
    return out["sequences"], rows, out.get("cached_tokens")


def text(r, vocab, most):
    return [r.randrange(1, vocab) for _ in range(r.randint(1, most))]


def edited(r, vocab, conversations):
    """The next prompt: a new turn, another answer, an edit of an earlier turn, or a new
    conversation; and the conversation that it belongs to.
    """
    which = r.randrange(len(conversations))
    turns = conversations[which]
    deed = r.choice(["turn", "turn", "turn", "again", "edit", "new", "like another"])
    if deed == "turn":
        turns = [*turns, text(r, vocab, 90)]
    elif deed == "edit":
        at = r.randrange(len(turns))
        turns = [*turns[:at], text(r, vocab, 150)]
    elif deed == "new" or sum(map(len, turns)) > CAPACITY - 150:
        turns = [text(r, vocab, r.choice([40, 300]))]
    elif deed == "like another":
        which = r.randrange(len(conversations) + 1)
        turns = [turns[0], text(r, vocab, 200)]
    while sum(map(len, turns)) > CAPACITY - 60:
        turns = turns[:-1] or [text(r, vocab, 300)]
    conversations[which : which + 1] = [turns]
    return which, [i for turn in turns for i in turn]


@pytest.mark.parametrize(
    "kind, seed",
    slow_unless(
        lambda kind, seed: seed == (kind != "q4"),
        [(k, s) for k in ("q4", "fp32", "hybrid", "windows", "mixed") for s in range(5)],
    ),
)
def test_random_conversations(tmp_path, kind, seed):
    """Turns, edits, regenerated answers, conversations in turn, aborts and answers that are read
    ahead, within several budgets, with caches of all types.
    """
    path, r = saved(tmp_path, kind), random.Random(seed)
    dtype = (None, "int4", "float16", "int8", "int4")[seed]
    plain = load(path, cache_bytes=0, cache_dtype=dtype)
    whole = plain.bytes_for(CAPACITY)
    whole += 3 * plain.marked_bytes(CAPACITY)
    lm = load(path, cache_bytes=r.choice([None, whole, 2 * whole + 4096]), cache_dtype=dtype)
    vocab, conversations, reused = lm.vocab_size, [[text(r, lm.vocab_size, 300)]], 0
    for _ in range(20):
        which, prompt = edited(r, vocab, conversations)
        fields = r.choice([{}, {}, {"num_beams": 3}, {"do_sample": True, "seed": r.randrange(99)}])
        fields = {"max_new_tokens": r.choice([1, 5, 40]), "do_sample": False, **fields}
        if r.random() < 0.2:
            calls = iter(range(r.randint(0, 6)))
            with suppress(Aborted):  # an answer of one token may end before
                answer(lm, prompt, True, signal=lambda: next(calls, None) is None, **fields)
        expected, got = answer(plain, prompt, True, **fields), answer(lm, prompt, True, **fields)
        assert got[:2] == expected[:2]
        assert expected[2] is None
        reused += got[2]
        conversations[which].append(got[0][0][len(prompt) :])
        while r.random() < 0.7 and lm.read_ahead():
            pass
        assert lm.kept.bytes() <= lm.kept.budget
    assert reused > 500
    lm.clear_cache()
    assert not lm.sequences and not lm.kept.entries


@pytest.mark.parametrize("kind", ["fp32", "q4", "hybrid"])
def test_short_chats(tmp_path, kind):
    """Less than a piece is kept as well: what follows is read by runs of 16 tokens."""
    path, r = saved(tmp_path, kind), random.Random(7)
    lm, plain = load(path), load(path, cache_bytes=0)
    fields = {"max_new_tokens": 10, "do_sample": False}
    made, reused = [], []
    for size, ahead in ((40, False), (9, False), (3, True), (8, False), (40, False), (20, False)):
        while ahead and lm.read_ahead():
            pass
        prompt = [*made, *text(r, lm.vocab_size, 1)] + [5] * (size - 1)
        got, expected = (answer(one, prompt, True, **fields) for one in (lm, plain))
        assert got[:2] == expected[:2]
        made = got[0][0]
        reused.append((len(prompt), got[2]))
    # 90 tokens are read in one run, or, where no run is padded, by 16; 140 begin with a piece
    expected = [(40, 0), (59, 32), (72, 64), (90, 64 if kind == "hybrid" else 0)]
    assert reused == [*expected, (140, 0), (170, 128)]


def test_tails_are_read_alike():
    """However a tail is divided, the runs are those of a new conversation."""
    for sizes in ([1, 16, 128], [1, 8, 32], [1, 4, 16, 64], [1, 2, 3], [1, 16], [1]):
        for padded in (True, False):
            shape, tail = Shape(sizes, 10**6, 9, padded=padded), tail_of(sizes, padded)
            piece = sizes[-1]
            assert (tail is None) == (len(sizes) < 3)
            for length in range(1, 3 * piece):
                whole = runs_of(shape, [1] * length, 0, [])
                for start in range(length):
                    if start != kept_length(start, length, piece, tail):
                        continue
                    runs, at = [run for run in whole if run.past < start], start
                    for first, end, keeps in parts_of(start, length, piece, tail):
                        assert first == at and keeps == (
                            end == kept_length(end, length, piece, tail)
                        )
                        runs += runs_of(shape, [1] * (end - first), first, [])
                        at = end
                    assert at == length
                    assert runs == whole, (sizes, padded, length, start)


def test_adapters(tmp_path):
    """States of one adapter, or of other values of it, are not those of another."""
    path, r = saved(tmp_path, "fp32"), random.Random(3)
    for i, name in enumerate("ab"):
        trainer = Trainer(
            path, adapters=LORA, batch_size=2, sequence_length=16, learning_rate=2e-2, seed=i
        )
        trainer.fit([text(r, 90, 160)] * 2, progress=False)
        trainer.save_adapter(tmp_path / name)
        trainer.free()
    lm, plain = (load(path, lora=LORA, cache_bytes=b) for b in (None, 0))
    prompt, reused = text(r, 90, 1) * 300, []
    for deed in ("a", "b", None, "a", ("a", 0.5), "a", "other a", "b"):
        for one in (lm, plain):
            name, scale = deed if isinstance(deed, tuple) else (deed, 1.0)
            if deed == "other a":
                name = "a"
                one.load_adapter(tmp_path / "b", "a")
            elif name is not None and name not in one.adapters:
                one.load_adapter(tmp_path / name, name)
            one.set_adapter(name, scale)
        got = [answer(one, prompt, True, max_new_tokens=4) for one in (lm, plain)]
        assert got[0][:2] == got[1][:2], deed
        reused.append(got[0][2])
    assert reused == [0, 0, 0, 288, 0, 288, 0, 288]


def test_training_between_turns(tmp_path):
    """An adapter that learns: what was read before is read again."""
    path, r = saved(tmp_path, "fp32"), random.Random(4)
    trainer = Trainer(path, adapters=LORA, batch_size=2, sequence_length=16, learning_rate=2e-2)
    lm, prompt = trainer.language_model(), text(r, 90, 1) * 100
    trainer.fit([text(r, 90, 160)], progress=False)
    for _ in range(2):
        for _ in range(2):
            plain = answer(lm, prompt, False, max_new_tokens=4)
            assert answer(lm, prompt, True, max_new_tokens=4)[:2] == plain[:2]
        trainer.fit([text(r, 90, 160)], progress=False)
    trainer.free()


def test_threads(tmp_path):
    """Conversations in several threads at once."""
    path = saved(tmp_path, "fp32")
    lm, plain = load(path), load(path, cache_bytes=0)
    wrong = []

    def converse(seed):
        r = random.Random(seed)
        prompt = [r.randrange(1, 90) for _ in range(150)]
        for _ in range(4):
            got = answer(lm, prompt, True, max_new_tokens=8)
            if got[:2] != answer(plain, prompt, True, max_new_tokens=8)[:2]:
                wrong.append(seed)
            prompt = got[0][0] + text(r, 90, 60)

    threads = [threading.Thread(target=converse, args=(s % 3,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    lm.clear_cache()
    assert not lm.sequences


def test_a_failed_run_keeps_what_was_read(tmp_path):
    """A prompt that exceeds the context in its last piece, then the same with less."""
    path, r = saved(tmp_path, "hybrid"), random.Random(1)
    lm, plain = load(path), load(path, cache_bytes=0)
    prompt = [r.randrange(1, 60) for _ in range(400)]
    answer(lm, prompt, True, max_new_tokens=2)
    with pytest.raises(InputError):
        answer(lm, prompt + [61] * 20, True, max_new_tokens=2)  # ids that it does not have
    expected = answer(plain, prompt, True, max_new_tokens=2)
    got = answer(lm, prompt, True, max_new_tokens=2)
    assert got[:2] == expected[:2] and got[2] == 384


def test_pipelines(tmp_path):
    """Chats continue without being asked; `cache=False` and `clear_cache` end that."""
    pipe = pipeline("text-generation", "web/demo/model", capacity=600)
    story = "Once upon a time there was a little dog. " * 20
    fields = {"max_new_tokens": 8, "do_sample": False}
    whole = pipe(story, cache=False, **fields)
    assert pipe.model.kept.bytes() == 0
    assert pipe(story, **fields) == pipe(story, **fields) == whole
    assert pipe.model.kept.bytes() > 0
    pipe.clear_cache()
    assert pipe.model.kept.bytes() == 0 and not pipe.model.sequences


@pytest.mark.parametrize("given", [-1, 1.5, True, "1 GB"])
def test_budgets_that_are_none(given):
    with pytest.raises(InputError, match="cache_bytes"):
        load("web/demo/model", cache_bytes=given)


class Counted:
    """A store of sequences that are numbers."""

    def __init__(self, size=10, mark_bytes=0):
        self.next, self.live, self.size, self.mark_bytes = 0, set(), size, mark_bytes

    def bytes_for(self, count):
        return self.size

    def bytes_of(self, sequence):
        assert sequence in self.live
        return self.size

    def open(self):
        self.next += 1
        self.live.add(self.next)
        return self.next

    def close(self, sequence):
        self.live.remove(sequence)

    def copy(self, source, target):
        assert {source, target} <= self.live

    def truncate(self, sequence, n):
        assert sequence in self.live

    def cuts(self, sequence, n):
        return not self.mark_bytes

    def marked_bytes(self, n):
        return self.mark_bytes

    def save(self, sequence):
        return self.open()

    def drop(self, saved):
        self.close(saved)

    def restore(self, saved, sequence, n):
        assert {saved, sequence} <= self.live


@pytest.mark.parametrize("mark_bytes", [0, 3])
def test_the_least_recently_used_goes_first(mark_bytes):
    """Within the budget: sequences, and copies of their states."""
    store, r = Counted(mark_bytes=mark_bytes), random.Random(0)
    kept = Kept(store, 50, 4)
    for _ in range(300):
        start = r.choice([[1] * 12, [2] * 8, []])
        prompt = start + [r.randrange(3) for _ in range(r.randint(1, 40))]
        taken = kept.take("k", prompt)
        assert taken.past % 4 == 0 and taken.past < len(prompt)
        for n in range(taken.past + 4, len(prompt) + 1, 4):
            kept.mark(taken, n, n + 4 >= len(prompt))
        kept.give(taken, prompt[: len(prompt) // 4 * 4], [], r.choice(["k", "k", "k", "other"]))
        assert kept.bytes() <= 50
    kept.clear()
    assert not store.live


def test_one_sequence_of_any_size():
    """Is kept where no budget is given, and nothing beside it."""
    store = Counted(2 * BUDGET)
    kept = Kept(store, None, 4)
    for ids in ([1] * 8, [2] * 8):
        kept.give(kept.take("k", ids), ids, [], "k")
        assert kept.bytes() == 2 * BUDGET and len(store.live) == 1
    assert kept.take("k", [2] * 9).past == 8
    kept = Kept(store, 2 * BUDGET - 1, 4)
    kept.give(kept.take("k", [1] * 8), [1] * 8, [], "k")
    assert kept.bytes() == 0


def test_a_system_prompt_that_two_conversations_share():
    """The second copies what both begin with; the first is still there."""
    store = Counted()
    kept = Kept(store, 100, 4)
    first = kept.take("k", [1] * 40)
    kept.give(first, [1] * 40, [], "k")
    second = kept.take("k", [1] * 8 + [2] * 20)
    assert second.past == 8 and second.sequence != first.sequence
    kept.give(second, [1] * 8 + [2] * 20, [], "k")
    assert kept.take("k", [1] * 41).past == 40
