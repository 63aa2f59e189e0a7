"""Makes models/: tiny random encoder-decoder models as optimum exports them, with the tokens that
transformers generates. Run it in an environment with torch, transformers 4.57 and optimum-onnx:

    python tests/seq2seq/make.py
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent / "models"
TIMES, EOS, START = 130, 100, 101  # ids of Whisper's tokens; those from TIMES on are times
SMALL = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 120}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
SIZES = {**SMALL, **HEADS, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "init_std": 0.6}


def whisper() -> transformers.PreTrainedModel:
    """Windows of 100 frames, 8 mel bins, 51 times, two languages."""
    config = transformers.WhisperConfig(
        **{**SIZES, "vocab_size": TIMES + 51},
        num_mel_bins=8,
        max_source_positions=50,
        max_target_positions=48,
        pad_token_id=EOS,
        bos_token_id=EOS,
        eos_token_id=EOS,
        decoder_start_token_id=START,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=EOS,
        pad_token_id=EOS,
        bos_token_id=EOS,
        decoder_start_token_id=START,
        max_length=40,
        begin_suppress_tokens=[7, EOS],
        suppress_tokens=[1, 2, 102, 103, 104, 105, 106, 107, 108],
        no_timestamps_token_id=TIMES - 1,
        prev_sot_token_id=106,
        max_initial_timestamp_index=20,
        is_multilingual=True,
        lang_to_id={"<|en|>": 102, "<|fr|>": 103},
        task_to_id={"transcribe": 104, "translate": 105},
        alignment_heads=[[0, 1], [1, 0], [1, 1]],
    )
    return model


def moonshine() -> transformers.PreTrainedModel:
    """Samples."""
    config = transformers.MoonshineConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=24,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=2,
        decoder_num_attention_heads=2,
        max_position_embeddings=40,
        initializer_range=0.6,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        pad_token_id=0,
    )
    return transformers.MoonshineForConditionalGeneration(config)


def t5() -> transformers.PreTrainedModel:
    config = transformers.T5Config(
        vocab_size=120,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        initializer_factor=4.0,
        n_positions=64,
    )
    return transformers.T5ForConditionalGeneration(config)


def marian() -> transformers.PreTrainedModel:
    config = transformers.MarianConfig(
        **SIZES,
        max_position_embeddings=64,
        decoder_start_token_id=119,
        pad_token_id=119,
        eos_token_id=0,
        forced_eos_token_id=0,
    )
    return transformers.MarianMTModel(config)


def bart() -> transformers.PreTrainedModel:
    config = transformers.BartConfig(**SIZES, max_position_embeddings=64, forced_bos_token_id=0)
    return transformers.BartForConditionalGeneration(config)


def features(frames: int, seed: int) -> np.ndarray:
    """Random log-mel features, as the tests make them: float32 [1, 8, frames]."""
    return np.random.default_rng(seed).standard_normal((1, 8, frames)).astype(np.float32)


PROMPT = [106, 11, 12, 13]
SPEECH = {
    "greedy": (100, {}),
    "french": (100, {"language": "fr", "task": "translate"}),
    "times": (100, {"return_timestamps": True}),
    "words": (100, {"return_timestamps": True, "return_token_timestamps": True}),
    "beams": (100, {"num_beams": 5}),
    "beams with times": (100, {"num_beams": 4, "return_timestamps": True}),
    "prompt": (100, {"prompt_ids": PROMPT}),
    "short": (63, {"return_timestamps": True, "return_token_timestamps": True}),
    "long": (260, {"return_timestamps": True}),
    "long words": (230, {"return_timestamps": True, "return_token_timestamps": True}),
    "long conditioned": (
        240,
        {"return_timestamps": True, "condition_on_prev_tokens": True, "temperature": 0.0},
    ),
    "long prompted": (
        240,
        {
            "return_timestamps": True,
            "condition_on_prev_tokens": True,
            "temperature": 0.0,
            "prompt_ids": PROMPT,
            "prompt_condition_type": "all-segments",
        },
    ),
    "long with thresholds": (
        260,
        {
            "return_timestamps": True,
            "temperature": [0.0],
            "compression_ratio_threshold": 1.35,
            "logprob_threshold": -1.2,
            "no_speech_threshold": 0.0002,
        },
    ),
    "repetition": (100, {"no_repeat_ngram_size": 2, "repetition_penalty": 1.2}),
}
INPUTS = [[5, 9, 17, 33, 2, 90, 1], [4, 4, 8], list(range(3, 37))]
SOUND = {
    "greedy": {"max_new_tokens": 20},
    "beams": {"max_new_tokens": 20, "num_beams": 3},
    "ngrams": {"max_new_tokens": 20, "no_repeat_ngram_size": 2},
}
TEXT = {
    "greedy": {"max_new_tokens": 20},
    "beams": {"max_new_tokens": 20, "num_beams": 4, "length_penalty": 0.8},
    "ngrams": {"max_new_tokens": 20, "no_repeat_ngram_size": 2},
    "encoder ngrams": {"max_new_tokens": 20, "encoder_no_repeat_ngram_size": 1},
    # without beams, of which transformers penalizes only the first
    "encoder penalty": {"max_new_tokens": 20, "encoder_repetition_penalty": 1.5},
    "forced": {"max_new_tokens": 8, "forced_bos_token_id": 11, "forced_eos_token_id": 12},
    "at least": {"max_new_tokens": 20, "min_new_tokens": 12},
}


def speech_tokens(model: transformers.PreTrainedModel) -> dict[str, object]:
    """What transformers generates for each of SPEECH."""
    model.set_attn_implementation("eager")
    found = {}
    for number, (name, (frames, options)) in enumerate(SPEECH.items()):
        # Without a task transformers leaves its token out, Edgewise transcribes.
        options = {"task": "transcribe", **options}
        given = dict(options)
        if "prompt_ids" in given:
            given["prompt_ids"] = torch.tensor(given["prompt_ids"])
        if "temperature" in given and isinstance(given["temperature"], list):
            given["temperature"] = tuple(given["temperature"])
        x = np.zeros((1, 8, max(100, frames)), np.float32)
        x[..., :frames] = features(frames, number)
        mask = (torch.arange(x.shape[-1]) < frames).long()[None]
        out = model.generate(torch.tensor(x), attention_mask=mask, return_segments=True, **given)
        segments = out["segments"][0]
        found[name] = {
            "frames": frames,
            "seed": number,
            "options": options,
            "segments": [
                {
                    "start": float(s["start"]),
                    "end": float(s["end"]),
                    "tokens": s["tokens"].tolist(),
                    "times": [float(t) for t in s.get("token_timestamps", [])],
                }
                for s in segments
                if "start" in s
            ],
        }
    return found


def text_tokens(model: transformers.PreTrainedModel) -> dict[str, object]:
    """What transformers generates for each of TEXT."""
    return {
        name: {
            "options": options,
            "sequences": [
                model.generate(
                    torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long(), **options
                )[0].tolist()
                for ids in INPUTS
            ],
        }
        for name, options in TEXT.items()
    }


def sound_tokens(model: transformers.PreTrainedModel) -> dict[str, object]:
    """What transformers generates for each of SOUND."""
    from sounds import SOUNDS, samples

    return {
        name: {
            "options": options,
            "sequences": [
                model.generate(torch.tensor(samples(n, i))[None], **options)[0].tolist()
                for i, n in enumerate(SOUNDS)
            ],
        }
        for name, options in SOUND.items()
    }


def main() -> None:
    """Writes the models that are named on the command line; without names, all."""
    from optimum.exporters.onnx import main_export

    torch.set_num_threads(1)
    for make in (whisper, moonshine, t5, marian, bart):
        name = make.__name__
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(7)
        model = make().eval()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(f"{folder}/hf")
            speech = make in (whisper, moonshine)
            task = "automatic-speech-recognition" if speech else "text2text-generation"
            for kind in ("merged", "separate") if make is marian else ("merged",):
                out = Path(f"{folder}/{kind}")
                main_export(
                    f"{folder}/hf",
                    out,
                    task=f"{task}-with-past",
                    no_post_process=kind == "separate",
                    do_validation=False,
                    **({"nb_max_frames": 100} if make is whisper else {}),
                )
                target = HERE / (name if kind == "merged" else f"{name}_separate")
                shutil.rmtree(target, ignore_errors=True)
                (target / "onnx").mkdir(parents=True)
                merged = kind == "merged"
                for file in out.glob("*.onnx"):
                    if not merged or file.stem in ("encoder_model", "decoder_model_merged"):
                        shutil.copy(file, target / "onnx" / file.name)
                for file in ("config.json", "generation_config.json"):
                    shutil.copy(f"{folder}/hf/{file}", target / file)
        found = {whisper: speech_tokens, moonshine: sound_tokens}.get(make, text_tokens)(model)
        text = json.dumps(found, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
