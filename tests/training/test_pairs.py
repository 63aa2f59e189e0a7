"""`fine_tune`: pipelines of models with an encoder learn from pairs, as in PyTorch with PEFT from
the same adapter.
"""

import json
import shutil
from pathlib import Path

import edgewise
import numpy as np
import pytest
from edgewise.errors import Aborted, InputError, UnsupportedField

from tests.seq2seq import make
from tests.seq2seq.words import tokenizer, whisper_texts

MODELS = Path(__file__).parents[1] / "seq2seq" / "models"
TEXTS = ["w5 w9 w17", "w33 w13", "w90 w11 w4 w8 w12"]
SOURCES = ["w60 w61 w62 w63", "w70", "w80 w81 w82"]
TASKS = {"t5": "text2text-generation", "bart": "summarization", "marian": "translation"}
STEPS, RATE = 12, 1e-2


def clips():
    generator = np.random.default_rng(0)
    return [0.1 * generator.standard_normal(n).astype("f4") for n in (9000, 16000, 12000)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("pairs")
    for name in ("whisper", *TASKS):
        shutil.copytree(MODELS / name, target / name)
        if name == "whisper":
            whisper_texts(target / name)
        else:
            tokenizer(target / name, 120)
    return target


def adapted(name, path):
    """The model of transformers with an adapter of random numbers, which is saved."""
    import peft
    import torch

    torch.manual_seed(7)
    model = getattr(make, name)().eval()
    targets = r".*decoder\.(layers|block).*\.(?:[qkvo]|wi_0|wi_1|wo|\w+_proj|fc1|fc2)"
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, init_lora_weights=False)
    made = peft.get_peft_model(model, config)
    made.save_pretrained(path)
    return made


def losses_of(model, inputs, steps=STEPS, rate=RATE):
    """Those of AdamW with clipped gradients."""
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    found = []
    for _ in range(steps):
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


def padded(rows, filler):
    longest = max(map(len, rows))
    return np.array([row + [filler] * (longest - len(row)) for row in rows])


def ids_of(text):
    return [int(word[1:]) for word in text.split()]


def spoken(folder):
    """Inputs of Whisper as transformers makes them: features, and labels after the prompt."""
    import torch
    import transformers

    extractor = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    features = extractor(clips(), sampling_rate=16000, return_tensors="pt").input_features
    prompt = [make.START, 102, 104, make.TIMES - 1]
    rows = [prompt + ids_of(text) for text in TEXTS]
    labels = [[-100] * 3 + ids_of(text) + [make.EOS] for text in TEXTS]
    return {
        "input_features": features,
        "decoder_input_ids": torch.tensor(padded(rows, make.EOS)),
        "labels": torch.tensor(padded(labels, -100)),
    }


def written(model):
    """Inputs of a model from text to text; transformers shifts the labels."""
    import torch

    config = model.get_base_model().config
    rows = [ids_of(text) for text in SOURCES]
    labels = padded([[*ids_of(text), config.eos_token_id] for text in TEXTS], -100)
    return {
        "input_ids": torch.tensor(padded(rows, 3)),
        "attention_mask": torch.tensor(padded([[1] * len(row) for row in rows], 0)),
        "labels": torch.tensor(labels),
    }


def learn(pipe, pairs, **more):
    options = {"learning_rate": RATE, "batch_size": 3, "optimizer": {"weight_decay": 0.0}}
    options["optimizer"]["type"] = "AdamW"
    return edgewise.fine_tune(pipe, pairs, **{"max_steps": STEPS, **options, **more})


SPEECH = [{"audio": clip, "text": text} for clip, text in zip(clips(), TEXTS)]
TEXT = [{"source": source, "target": text} for source, text in zip(SOURCES, TEXTS)]
ENGLISH = {"call_options": {"language": "en"}}


@pytest.mark.family("Whisper", exporter="optimum")
def test_whisper_learns_words_as_in_pytorch(folder, tmp_path):
    """From samples; then the pipeline writes what PyTorch with PEFT writes, and so does a pipeline
    that reads the adapter, which PEFT reads as well.
    """
    import peft
    import torch

    model = adapted("whisper", tmp_path / "first")
    given = spoken(folder)
    expected = losses_of(model, given)
    with edgewise.pipeline("asr", folder / "whisper") as asr:
        before = [asr(clip, language="en")["text"] for clip in clips()]
        result = learn(asr, SPEECH, initial=tmp_path / "first", **ENGLISH)
        np.testing.assert_allclose(result.losses, expected, atol=1e-3)
        assert expected[-1] < expected[0] - 1
        result.save_adapter(tmp_path / "learned")
        card = (tmp_path / "learned" / "README.md").read_text()
        assert f"| updates | {len(expected)} |" in card
        assert "pipeline_tag: automatic-speech-recognition" in card
        after = [asr(clip, language="en")["text"] for clip in clips()]
        assert before != after
        out = model.generate(given["input_features"], language="en", task="transcribe")
        texts = [" ".join(f"w{i}" for i in row if i < 100) for row in out.tolist()]
        assert [text.replace(" ", "") for text in after] == [t.replace(" ", "") for t in texts]
        asr.set_adapter(None)
        assert before == [asr(clip, language="en")["text"] for clip in clips()]
    with edgewise.pipeline("asr", folder / "whisper") as again:
        again.load_adapter(tmp_path / "learned", "mine")
        assert again.adapter is None and list(again.adapters) == ["mine"]
        again.set_adapter("mine")
        assert after == [again(clip, language="en")["text"] for clip in clips()]
    torch.manual_seed(7)
    loaded = peft.PeftModel.from_pretrained(make.whisper().eval(), tmp_path / "learned")
    with torch.no_grad():
        assert loaded(**given).loss.item() == pytest.approx(model(**given).loss.item(), abs=2e-3)


def test_an_adapter_of_a_decoder_is_none_of_the_encoder(folder, tmp_path):
    """PEFT adapts the layers that were trained, though those of the encoder have such names."""
    import peft
    import safetensors.torch

    with edgewise.pipeline("asr", folder / "whisper") as asr:
        result = learn(asr, SPEECH, max_steps=1, adapters={"r": 2}, **ENGLISH)
        result.save_adapter(tmp_path / "learned")
    learned = safetensors.torch.load_file(tmp_path / "learned" / "adapter_model.safetensors")
    assert len(learned) == 2 * 20  # as many as PEFT would shorten
    loaded = peft.PeftModel.from_pretrained(make.whisper(), tmp_path / "learned")
    theirs = peft.get_peft_model_state_dict(loaded)
    assert set(theirs) == set(learned) and not any("encoder.layers" in n for n in theirs)


@pytest.mark.parametrize("name", TASKS)
def test_texts_are_learned_as_in_pytorch(folder, tmp_path, name):
    model = adapted(name, tmp_path / "first")
    expected = losses_of(model, written(model))
    with edgewise.pipeline(TASKS[name], folder / name) as pipe:
        result = learn(pipe, TEXT, initial=tmp_path / "first")
        np.testing.assert_allclose(result.losses, expected, atol=1e-3)
        assert result.losses[-1] < result.losses[0] - 0.5


def test_what_cannot_be_learned_is_refused_and_changes_nothing(folder, tmp_path):
    clip, long = clips()[0], np.zeros(16800, "f4")
    (tmp_path / "noise.wav").write_bytes(b"RIFF no sound")
    with edgewise.pipeline("asr", folder / "whisper") as asr:
        for pairs, error in (
            ([], r"pairs: there are no pairs. Give some, such as \{\"audio\""),
            ("one", "a str is no list of pairs"),
            ([SPEECH[0], "one"], r"pairs, record 2: 'one' is not a pair"),
            ([{"audio": clip}], "pairs, record 1: it has no text"),
            ([{"text": "w5"}], "pairs, record 1: it has no audio"),
            ([{"audio": clip, "text": " "}], "record 1: text is empty"),
            ([{"audio": clip, "text": 5}], "record 1: text is 5. Give a text"),
            ([SPEECH[0], {"audio": "no.wav", "text": "w5"}], "pairs, record 2: no.wav: "),
            ([{"audio": tmp_path / "noise.wav", "text": "w5"}], "pairs, record 1: .*noise.wav"),
            ([{"audio": long, "text": "w5"}], r"record 1: the recording has 1.1 s.* 1 s.*Cut it"),
            ([{"audio": long[:0], "text": "w5"}], "record 1"),
        ):
            with pytest.raises(InputError, match=error):
                learn(asr, pairs, **ENGLISH)
        for more, error in (
            ({"sequence_length": 49}, "sequence_length: 49 tokens are more than the model's 48"),
            ({"sequence_length": 4}, "the first 4 tokens are all prompt"),
            ({"evaluation": []}, "evaluation: there are no pairs"),
            ({"evaluation": 1.5}, "evaluation: 1.5 is not between 0 and 1"),
            ({"adapters": 8}, "adapters: a int is no configuration"),
            ({"call_options": {"language": "xx"}}, "the language 'xx' is unknown"),
            ({"learning_rate": -1}, "learning_rate"),
            ({"batch_size": 0}, "batch_size: it is 0"),
            ({"loss": "mse"}, "fine_tune: .*loss"),
            ({"model": "t5"}, "fine_tune: .*model"),
            ({"early_stopping_patience": 2}, "early_stopping_patience: there is no evaluation"),
        ):
            with pytest.raises(InputError, match=error):
                learn(asr, SPEECH, **{**ENGLISH, **more})
        for more in ({"bias": "all"}, {"use_dora": True}, {"modules_to_save": ["proj_out"]}):
            with pytest.raises(UnsupportedField, match="trained by plain adapters"):
                learn(asr, SPEECH, **ENGLISH, adapters=more)
        with pytest.raises(InputError, match="there is no adapter 'mine'. Train one"):
            asr.set_adapter("mine")
        assert asr.adapters == {} and asr.adapter is None
    with edgewise.pipeline("text2text-generation", folder / "t5") as pipe:
        with pytest.raises(InputError, match="pairs, record 1: .*600"):
            learn(pipe, [{"source": "w5 " * 600, "target": "w6"}])
    with pytest.raises(InputError, match="a str does not learn from pairs"):
        edgewise.fine_tune("t5", TEXT)


def test_long_texts_one_pair_and_held_out_ones(folder):
    with edgewise.pipeline("asr", folder / "whisper") as asr:
        words = {"audio": clips()[0], "text": "w5 " * 60}
        result = learn(asr, [words], max_steps=1, evaluation=SPEECH[1:], **ENGLISH)
        report = result.report
        assert (report.examples, report.truncated, report.lost) == (1, 1, 60 + 1 - (48 - 4))
        assert [step for step, _ in result.evaluations] == [1] and len(result.losses) == 1
        result = learn(asr, SPEECH, max_steps=1, evaluation=0.3, name="other", **ENGLISH)
        assert len(result.evaluations) == 1
        judged = {"early_stopping_patience": 9, "load_best_model_at_end": True, "evaluation": 0.3}
        best = learn(asr, SPEECH, max_steps=3, evaluate_every=1, name="other", **judged, **ENGLISH)
        least = min(loss for _, loss in best.evaluations)
        assert dict(best.evaluations)[best.best_step] == least
        assert list(asr.adapters) == ["default", "other"] and asr.adapter == "other"


def test_a_stopped_run_goes_on(folder, tmp_path):
    """Bit for bit; one that is aborted keeps what was learned."""

    class Signal:
        aborted = False

    options = {"max_steps": 4, "batch_size": 2, "adapters": {"r": 2}, **ENGLISH}
    file = tmp_path / "run.safetensors"
    with edgewise.pipeline("asr", folder / "whisper") as asr:
        whole = learn(asr, SPEECH, **options)
        signal, seen = Signal(), []

        def on_step(progress):
            seen.append(progress.loss)
            signal.aborted = progress.step == 2

        with pytest.raises(Aborted):
            learn(asr, SPEECH, checkpoint=file, signal=signal, on_step=on_step, **options)
        assert seen == whole.losses[:2] and file.exists()
        rest = learn(asr, SPEECH, checkpoint=file, resume=True, **options)
        assert [*seen, *rest.losses] == whole.losses
        tensors = whole.adapter.tensors()
        assert all(x[2] == tensors[n][2] for n, x in rest.adapter.tensors().items())


def test_a_package_and_a_loaded_model_are_refused(folder, tmp_path):
    from edgewise.cli import main
    from edgewise.host.session.seq2seq import Seq2SeqModel

    main(["build", "--task", "asr", str(folder / "whisper"), "-o", str(tmp_path / "w.edge")])
    with edgewise.pipeline("asr", tmp_path / "w.edge") as asr:
        with pytest.raises(InputError, match="a package holds plans.*from the model's folder"):
            learn(asr, SPEECH)
    model = Seq2SeqModel(str(folder / "t5"))
    pipe = edgewise.pipeline("text2text-generation", model, tokenizer=folder / "t5")
    with pytest.raises(InputError, match="made of a loaded model"):
        learn(pipe, TEXT)
    model.free()


def test_a_page_asks_for_packages_that_train(folder):
    """What the compiler of a page answers; parameters are not trained."""
    from edgewise.compiler.task_package import page_task
    from edgewise.host.session.open import folder_files

    files, _ = folder_files(folder / "marian")
    graphs = {n: f"onnx/{n}.onnx" for n in ("encoder_model", "decoder_model_merged")}
    options = {"task": "translation", "graphs": graphs}
    program = {"name": "lora", "batch": 2, "sequence": 16, "lora": {"r": 2}}
    manifest = json.loads(page_task(files, {**options, "programs": [program]})[0])
    (made,) = manifest["training"]
    assert (made["batch"], made["sequence"], made["source"]) == (2, 16, 16)
    with pytest.raises(UnsupportedField, match="trained by adapters"):
        page_task(files, {**options, "programs": [{**program, "lora": None}]})
