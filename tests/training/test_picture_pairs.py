"""`fine_tune` of models that see, as in PyTorch with PEFT from the same adapter, from pictures and
texts.
"""

import edgewise
import numpy as np
import pytest
from edgewise.cli import main
from edgewise.errors import Aborted, InputError, UnsupportedField

from tests.multimodal.asking import pictures
from tests.multimodal.conftest import tiny  # noqa: F401 (a fixture)

TASK = "image-text-to-text"
STEPS, RATE = 6, 3e-3
ASKED = [
    ("what is in this picture ?", "a cat"),
    ("is this red ?", "blue and green"),
    ("what is this ?", "two dog ."),
]
GREEDY = {"max_new_tokens": 6, "do_sample": False}


def pairs():
    return [{"image": p, "prompt": q, "answer": a} for p, (q, a) in zip(pictures(3), ASKED)]


def chat(prompt, answer=None):
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    messages = [{"role": "user", "content": content}]
    if answer is not None:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return messages


def adapted(model, path):
    """The model with an adapter of random numbers, which is saved."""
    import peft
    import torch

    torch.manual_seed(7)
    targets = r".*(text_model|language_model)\..*layers.*(_proj|in_proj|out_proj|w[123])"
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, init_lora_weights=False)
    made = peft.get_peft_model(model, config)
    made.save_pretrained(path)
    return made


def given_to(processor, text, picture):
    """The inputs of transformers for a text of the template."""
    special = not text.startswith(processor.tokenizer.bos_token)
    options = {"images": [picture], "return_tensors": "pt", "add_special_tokens": special}
    return dict(processor(text=text, **options))


def prompts_of(processor):
    return [
        given_to(processor, processor.apply_chat_template(chat(q), add_generation_prompt=True), p)
        for p, (q, _) in zip(pictures(3), ASKED)
    ]


def rows_of(processor):
    """Inputs of transformers: those of its processor, with labels for what follows the tokens of
    the prompt, and an end.
    """
    import torch

    rows, end = [], processor.tokenizer.eos_token_id
    for picture, asked, before in zip(pictures(3), ASKED, prompts_of(processor)):
        given = given_to(processor, processor.apply_chat_template(chat(*asked)), picture)
        ids = [*given.pop("input_ids")[0].tolist(), end]
        given["attention_mask"] = torch.ones(1, len(ids), dtype=torch.int64)
        if "token_type_ids" in given:
            given["token_type_ids"] = torch.nn.functional.pad(given["token_type_ids"], (0, 1))
        alike = [a == b for a, b in zip(before["input_ids"][0].tolist(), ids)]
        first = (alike + [False]).index(False)
        labels = [-100] * first + ids[first:]
        rows.append(given | {"input_ids": torch.tensor([ids]), "labels": torch.tensor([labels])})
    return rows


def losses_of(model, rows, steps=STEPS):
    """Those of AdamW with clipped gradients, over the tokens of all rows."""
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
    counts = [int((row["labels"][:, 1:] != -100).sum()) for row in rows]
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses = [model(**row).loss * n / sum(counts) for row, n in zip(rows, counts)]
        sum(losses).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        found.append(sum(losses).item())
    return found


def learn(pipe, given, **more):
    options = {"learning_rate": RATE, "batch_size": 3, "max_steps": STEPS}
    options["optimizer"] = {"type": "AdamW", "weight_decay": 0.0}
    return edgewise.fine_tune(pipe, given, **{**options, **more})


def answers(pipe):
    """The ids of greedy answers."""
    found = []
    for picture, (prompt, _) in zip(pictures(3), ASKED):
        [made] = pipe([picture], chat(prompt), return_tensors=True, **GREEDY)
        found.append(made["generated_token_ids"])
    return found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("smolvlm", marks=pytest.mark.family("SmolVLM", exporter="torch")),
        pytest.param("llava", marks=pytest.mark.family("LLaVA", exporter="torch")),
        pytest.param("qwen3-vl stacked", marks=pytest.mark.family("Qwen3-VL", exporter="torch")),
        pytest.param("gemma3", marks=pytest.mark.family("Gemma 3 with pictures", exporter="torch")),
    ],
)
def test_answers_are_learned_as_in_pytorch(tiny, tmp_path, name):  # noqa: F811
    """From pixels; then the pipeline answers as PyTorch with PEFT, and so does one that reads the
    adapter, which PEFT reads as well.
    """
    import peft
    import torch

    made = tiny(name)
    model = adapted(made.model, tmp_path / "first")
    try:
        rows = rows_of(made.processor)
        with edgewise.pipeline(TASK, made.root) as pipe:
            before = answers(pipe)
            expected = losses_of(model, rows)
            result = learn(pipe, pairs(), initial=tmp_path / "first")
            np.testing.assert_allclose(result.losses, expected, atol=1e-3)
            assert expected[-1] < expected[0] - 0.5
            after = answers(pipe)
            assert after != before
            for given, ids in zip(prompts_of(made.processor), after):
                assert model.generate(**given, **GREEDY)[0].tolist() == ids
            result.save_adapter(tmp_path / "learned")
            pipe.set_adapter(None)
            assert answers(pipe) == before
        with edgewise.pipeline(TASK, made.root) as again:
            again.load_adapter(tmp_path / "learned")
            again.set_adapter("default")
            assert answers(again) == after
        theirs = [model(**row).loss.item() for row in rows]
        base = model.unload()
        loaded = peft.PeftModel.from_pretrained(base, tmp_path / "learned")
        with torch.no_grad():
            mine = [loaded(**row).loss.item() for row in rows]
        np.testing.assert_allclose(mine, theirs, atol=2e-3)
        loaded.unload()
    finally:
        model.unload()


def test_held_out_pairs_several_pictures_and_stopped_runs(tiny, tmp_path):  # noqa: F811
    class Signal:
        aborted = False

    images = pictures(3)
    both = {"images": images[:2], "prompt": "what is red ?", "completion": "a dog"}
    given = [*pairs(), both]
    with edgewise.pipeline(TASK, tiny("llava").root) as pipe:
        judged = {"evaluation": [both], "evaluate_every": 1, "early_stopping_patience": 9}
        best = learn(pipe, given, max_steps=3, load_best_model_at_end=True, **judged)
        least = min(loss for _, loss in best.evaluations)
        assert dict(best.evaluations)[best.best_step] == least
        cut = learn(pipe, given, max_steps=1, sequence_length=52, evaluation=0.3, name="short")
        assert cut.report.truncated > 0 and len(cut.evaluations) == 1
        assert list(pipe.adapters) == ["default", "short"] and pipe.adapter == "short"
        options = {"max_steps": 3, "batch_size": 2, "adapters": {"r": 2}}
        whole = learn(pipe, given, **options)
        signal, seen, file = Signal(), [], tmp_path / "run.safetensors"

        def on_step(progress):
            seen.append(progress.loss)
            signal.aborted = progress.step == 2

        with pytest.raises(Aborted):
            learn(pipe, given, checkpoint=file, signal=signal, on_step=on_step, **options)
        rest = learn(pipe, given, checkpoint=file, resume=True, **options)
        assert [*seen, *rest.losses] == whole.losses


def test_what_cannot_be_learned_is_refused_and_changes_nothing(tiny, tmp_path):  # noqa: F811
    one, image = pairs()[0], pictures(1)[0]
    (tmp_path / "noise.png").write_bytes(b"\x89PNG no picture")
    with edgewise.pipeline(TASK, tiny("llava").root, capacity=64) as pipe:
        before = answers(pipe)
        for given, error in (
            ([], r"pairs: there are no pairs. Give some, such as \{\"image\""),
            ([one, {**one, "image": None}], "pairs, record 2: it has no image"),
            ([{**one, "image": []}], "pairs, record 1: it has no picture"),
            ([{**one, "image": tmp_path / "noise.png"}], "record 1.*not a picture that can"),
            ([{**one, "image": str(tmp_path / "no.png")}], "record 1.*no.png"),
            ([{**one, "image": np.zeros((4, 4), "f4")}], "record 1.*is not a picture"),
            ([one, {**one, "answer": " "}], "pairs, record 2: answer is empty"),
            ([{"image": image, "text": "a cat"}], "pairs, record 1: it has no answer"),
            ([{"image": image, "answer": "a cat"}], "pairs, record 1: it has no prompt"),
            ([{**one, "answer": "<image>"}], "record 1.*2 placeholders '<image>', and 1 pictures"),
            ([{**one, "prompt": "a cat " * 20}], "record 1.*tokens.*a sequence has at most 64"),
            ([{"audio": "a.wav", "text": "a cat"}], "pairs, record 1: it has no image"),
        ):
            with pytest.raises(InputError, match=error):
                learn(pipe, given)
        for more, error in (
            ({"sequence_length": 65}, "65 tokens are more than the model's 64"),
            ({"sequence_length": 20}, "the first 20 tokens are all prompt"),
            ({"call_options": {"language": "en"}}, "call_options.*language"),
            ({"evaluation": [{**one, "answer": ""}]}, "evaluation, record 1: answer is empty"),
        ):
            with pytest.raises(InputError, match=error):
                learn(pipe, [one], **more)
        with pytest.raises(InputError, match="only next tokens of a language model are learned"):
            learn(pipe, [one], packing=True)
        with pytest.raises(UnsupportedField, match="trained by plain adapters"):
            learn(pipe, [one], adapters={"use_dora": True})
        assert pipe.adapters == {} and pipe.adapter is None and answers(pipe) == before
    options = ["--task", TASK, str(tiny("llava").root), "-o", str(tmp_path / "v.edge")]
    main(["build", *options])
    with edgewise.pipeline(TASK, tmp_path / "v.edge") as pipe:
        with pytest.raises(InputError, match="a package holds plans.*from the model's folder"):
            learn(pipe, [one])
    main(["build", *options, "--train", "lora", "--lora-r", "4", "--sequence-length", "64"])
    with edgewise.pipeline(TASK, tmp_path / "v.edge") as pipe:
        assert answers(pipe) == before  # adapters that are none have no effect
