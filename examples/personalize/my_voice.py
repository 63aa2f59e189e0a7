"""Teaches a model your voice from your own recordings, against those of others (MyVoice).

    python examples/personalize/my_voice.py MODEL mine/ others/ [--check talk.wav] [--task TASK]

MODEL is a speaker encoder (WavLM, WeSpeaker, Resemblyzer) or, with --task audio-classification, a
classifier such as wav2vec2, whose last layer is replaced. The folders hold WAV files; five to ten
of some seconds each are enough. A quarter of them is held out to measure the equal error rate.
Writes my-voice.safetensors (the head and the features, no sound) and my-voice.onnx.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import edgewise

RESEMBLYZER = {"feature_extractor_type": "ResemblyzerFeatureExtractor"}


def recordings(folder: str) -> list[str]:
    """Paths of the WAV files of a folder."""
    found = sorted(str(path) for path in Path(folder).glob("*.wav"))
    if not found:
        raise SystemExit(f"{folder} has no .wav files")
    return found


def main() -> None:
    """Runs the recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("mine")
    parser.add_argument("others")
    parser.add_argument("--check", help="a recording: is it your voice?")
    parser.add_argument("--task", default="speaker-verification")
    args = parser.parse_args()
    options = {"feature_extractor": RESEMBLYZER} if "resemblyzer" in args.model.lower() else {}
    voices = edgewise.pipeline(args.task, args.model, **options)
    mine = edgewise.personalize(
        voices,
        {"me": recordings(args.mine)},
        other=recordings(args.others),
        validation_split=0.25,
        name="my-voice",
    )
    measured = mine.validation
    assert measured is not None
    rate = measured["equal_error_rates"]["me"]
    print(f"{measured['count']} held-out recordings: {measured['accuracy']:.0%} right, equal error")
    print(f"rate {rate['rate']:.1%} at the threshold {rate['threshold']:.3f}")
    print(f"loss {mine.losses[0]:.4f} -> {mine.losses[-1]:.4f}")
    mine.save("my-voice.safetensors")
    mine.export("my-voice.onnx")
    print("wrote my-voice.safetensors and my-voice.onnx")
    if args.check:
        scores = {found["label"]: found["score"] for found in mine(args.check)}
        print(f"{args.check}: {scores['me']:.3f}")


if __name__ == "__main__":
    main()
