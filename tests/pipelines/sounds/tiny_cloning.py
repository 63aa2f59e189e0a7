"""Tiny random models that speak in the voice of a reference, with the graphs, inputs and outputs of
onnx-community's Chatterbox and of the exports of Pocket TTS; and their loops in torch.
"""

from __future__ import annotations

import json
from pathlib import Path

from .tiny_codecs import export
from .tiny_speakers import LETTERS

RATE, HIDDEN, LAYERS, HEADS = 800, 32, 2, 2
START, STOP, SILENCE = 6561, 6562, 4299
VOCABULARY = 6564
LATENT, SIZE = 6, 8


def _tokenizer(folder: Path, chatterbox: bool, first: int = 0) -> None:
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    vocabulary = {t: first + i for i, t in enumerate(["[STOP]", "[UNK]", *LETTERS])}
    names = {START: "[START_SPEECH]", 6563: "[EXAGGERATION]"}
    known = {*vocabulary.values()}
    vocabulary |= {names.get(i, f"<{i}>"): i for i in range(VOCABULARY) if i not in known}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if chatterbox and not first:
        made.post_processor = processors.TemplateProcessing(
            single="[EXAGGERATION] $A [STOP] [START_SPEECH]",
            special_tokens=[("[EXAGGERATION]", 6563), ("[STOP]", 0), ("[START_SPEECH]", START)],
        )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (folder / "preprocessor_config.json").write_text(json.dumps({"sampling_rate": RATE}))


class Chatterbox:
    """Modules of torch, and a Llama of transformers. turbo: as Chatterbox Turbo, whose texts have
    tokens after those of speech, and whose language model is told positions.
    """

    def __init__(self, turbo: bool = False):
        import torch
        import transformers
        from torch import nn

        torch.manual_seed(21)

        class Encoder(nn.Module):
            """Two features and tokens for each 40 samples."""

            def __init__(self):
                super().__init__()
                self.features, self.voice = nn.Linear(40, HIDDEN), nn.Linear(40, 6)
                self.bins = nn.Linear(40, 5)

            def forward(self, audio_values):
                rows = audio_values[:, : audio_values.shape[1] // 40 * 40].reshape(1, -1, 40)
                tokens = (rows.abs().mean(-1) * 900).long() % 300
                features = self.features(rows)
                return features, tokens, self.voice(rows.mean(1)), self.bins(rows)

        class Embedder(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Embedding(6700, HIDDEN)
                self.places = nn.Embedding(400, HIDDEN)
                self.mood = nn.Linear(1, HIDDEN)

            def forward(self, input_ids, position_ids=None, exaggeration=None):
                found = self.tokens(input_ids)
                if turbo:
                    return found
                return found + self.places(position_ids) + self.mood(exaggeration.view(-1, 1, 1))

        class Decoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.mix = nn.Embedding(VOCABULARY, 8), nn.Linear(6, 8)
                self.frames, self.up = nn.Linear(5, 8), nn.ConvTranspose1d(8, 1, 4, 4)

            def forward(self, speech_tokens, speaker_embeddings, speaker_features):
                hidden = self.tokens(speech_tokens) + self.mix(speaker_embeddings).unsqueeze(1)
                hidden = hidden + self.frames(speaker_features).mean(1, keepdim=True)
                return self.up(hidden.transpose(1, 2)).tanh().squeeze(1)

        self.turbo, self.vocabulary = turbo, START + 2 if turbo else VOCABULARY
        config = transformers.LlamaConfig(
            vocab_size=self.vocabulary, hidden_size=HIDDEN, intermediate_size=48,
            num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS,
            max_position_embeddings=512, attn_implementation="eager", tie_word_embeddings=False,
        )  # fmt: skip
        self.encoder, self.embedder, self.decoder = Encoder(), Embedder(), Decoder()
        self.model = transformers.LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for p in self.model.parameters():
                p.add_(0.2 * torch.randn_like(p))

    def save(self, folder: Path) -> Path:
        """Files as of onnx-community/chatterbox-ONNX."""
        import torch

        _tokenizer(folder, True, self.vocabulary if self.turbo else 0)
        text = {"vocab_size": self.vocabulary, "max_position_embeddings": 512}
        config = {"model_type": "chatterbox", "architectures": ["ChatterboxModel"]}
        (folder / "config.json").write_text(json.dumps({**config, "text_config": text}))
        onnx = folder / "onnx"
        voice = ["audio_features", "audio_tokens", "speaker_embeddings", "speaker_features"]
        rows = {n: {1: "rows"} for n in ("audio_features", "audio_tokens", "speaker_features")}
        export(self.encoder, {"audio_values": torch.randn(1, 200)}, voice,
               {"audio_values": {1: "samples"}, **rows}, onnx / "speech_encoder.onnx")  # fmt: skip
        ids = torch.tensor([[3, 4, 5]])
        inputs = {"input_ids": ids}
        if not self.turbo:
            inputs |= {"position_ids": ids, "exaggeration": torch.tensor([0.5])}
        names = ("input_ids", "position_ids", "inputs_embeds")
        export(self.embedder, inputs, ["inputs_embeds"], {n: {1: "length"} for n in names},
               onnx / "embed_tokens.onnx")  # fmt: skip
        self._save_model(onnx / "language_model.onnx")
        inputs = {"speech_tokens": ids, "speaker_embeddings": torch.randn(1, 6)}
        inputs["speaker_features"] = torch.randn(1, 4, 5)
        axes = {"speech_tokens": {1: "tokens"}, "speaker_features": {1: "frames"}}
        export(self.decoder, inputs, ["waveform"], {**axes, "waveform": {1: "samples"}},
               onnx / "conditional_decoder.onnx")  # fmt: skip
        return folder

    def _save_model(self, path: Path) -> None:
        import torch
        from transformers.cache_utils import DynamicCache

        model, turbo = self.model, self.turbo

        class Step(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, inputs_embeds, attention_mask, *past):
                told = past[0] if turbo else None
                past = past[1:] if turbo else past
                rows = tuple(past[i : i + 2] for i in range(0, len(past), 2))
                total, count = attention_mask.shape[1], inputs_embeds.shape[1]
                places = torch.arange(total)
                own = places[total - count :]
                mask = torch.where(places[None] <= own[:, None], 0.0, -1e9)[None, None]
                found = model(
                    inputs_embeds=inputs_embeds, attention_mask=mask,
                    position_ids=told if turbo else own[None],
                    past_key_values=DynamicCache.from_legacy_cache(rows), use_cache=True,
                )  # fmt: skip
                states = [s for row in found.past_key_values.to_legacy_cache() for s in row]
                return (found.logits, *states)

        names = [f"{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")]
        inputs = {"inputs_embeds": torch.randn(1, 3, HIDDEN)}
        inputs["attention_mask"] = torch.ones(1, 5, dtype=torch.int64)
        if turbo:
            inputs["position_ids"] = torch.tensor([[2, 3, 4]])
        for name in names:
            inputs[f"past_key_values.{name}"] = torch.randn(1, HEADS, 2, HIDDEN // HEADS)
        axes = {"inputs_embeds": {1: "length"}, "attention_mask": {1: "total"}}
        axes |= {n: {1: "length"} for n in ("logits", "position_ids")}
        axes |= {f"past_key_values.{n}": {2: "past"} for n in names}
        axes |= {f"present.{n}": {2: "total"} for n in names}
        export(Step(), inputs, ["logits", *(f"present.{n}" for n in names)], axes, path)

    def speak(self, ids, audio, exaggeration=0.5, penalty=1.2, most=12, ends=(STOP,)):
        """(samples, tokens), by the steps of transformers.js: each of the whole sequence."""
        import torch
        from transformers import RepetitionPenaltyLogitsProcessor

        process = RepetitionPenaltyLogitsProcessor(penalty)
        with torch.no_grad():
            features, tokens, embedding, frames = self.encoder(torch.tensor(audio[None]))
            sequence, places, text = list(ids), [], 0
            for i in ids:
                places.append(0 if i >= START else text)
                text += i < START
            while len(sequence) - len(ids) < most:
                told = (torch.tensor([places]), torch.tensor([float(exaggeration)]))
                made = self.embedder(torch.tensor([sequence]), *(() if self.turbo else told))
                logits = self.model(inputs_embeds=torch.cat([features, made], 1)).logits[:, -1]
                seen = [i for i in sequence if i < self.vocabulary] or [START]
                token = int(process(torch.tensor([seen]), logits).argmax())
                sequence.append(token)
                places.append(0 if self.turbo else len(sequence) - 1 - ids.index(START))
                if token in ends:
                    break
            new = sequence[len(ids) : -1]
            all_tokens = torch.cat([tokens, torch.tensor([[*new, *[SILENCE] * 3]])], 1)
            return self.decoder(all_tokens, embedding, frames).numpy(), sequence[len(ids) :]


class Pocket:
    """Five modules of torch."""

    def __init__(self):
        import torch
        from torch import nn

        torch.manual_seed(22)

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.down = nn.Conv1d(1, SIZE, 50, 50)

            def forward(self, audio):
                return self.down(audio).transpose(1, 2)

        class Model(nn.Module):
            """The mean of all that it has read, and the last of it."""

            def __init__(self):
                super().__init__()
                self.begin = nn.Parameter(torch.randn(LATENT))
                self.read, self.mix = nn.Linear(LATENT, SIZE), nn.Linear(2 * SIZE, SIZE)
                self.end = nn.Linear(SIZE, 1)

            def forward(self, sequence, text_embeddings, past, frames):
                known = torch.where(torch.isnan(sequence), self.begin, sequence)
                all_read = torch.cat([past, text_embeddings, self.read(known)], 1)
                mean = all_read.mean(1, keepdim=True)
                hidden = self.mix(torch.cat([mean, all_read[:, -1:]], -1)).tanh()
                count = frames + sequence.shape[1]
                ends = self.end(hidden)[:, :, 0] + 0.5 * count.float() - 8
                return hidden, ends, all_read, count

        class Flow(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(SIZE + LATENT + 2, LATENT)

            def forward(self, c, s, t, x):
                return self.layer(torch.cat([c.view(1, SIZE), s, t, x], -1)).tanh()

        class Decoder(nn.Module):
            """It remembers the frame before."""

            def __init__(self):
                super().__init__()
                self.up = nn.Linear(2 * LATENT, 16)

            def forward(self, latent, before):
                whole = torch.cat([before, latent], 1)
                made = self.up(torch.cat([whole[:, :-1], whole[:, 1:]], -1)).tanh()
                return made.reshape(1, 1, -1), latent[:, -1:]

        self.encoder, self.text = Encoder(), nn.Embedding(4 + len(LETTERS), SIZE)
        self.model, self.flow, self.decoder = Model(), Flow(), Decoder()

    def save(self, folder: Path) -> Path:
        """Files as of the exports of Pocket TTS."""
        import torch

        _tokenizer(folder, False)
        onnx, width = folder / "onnx", torch.randn(1, 3, LATENT)
        export(self.encoder, {"audio": torch.randn(1, 1, 200)}, ["conditioning"],
               {"audio": {2: "samples"}, "conditioning": {1: "rows"}},
               onnx / "mimi_encoder.onnx")  # fmt: skip
        export(self.text, {"token_ids": torch.tensor([[3, 4, 5]])}, ["embeddings"],
               {"token_ids": {1: "length"}, "embeddings": {1: "length"}},
               onnx / "text_conditioner.onnx")  # fmt: skip
        inputs = {"sequence": width, "text_embeddings": torch.randn(1, 2, SIZE)}
        inputs |= {"state_0": torch.randn(1, 4, SIZE), "state_1": torch.tensor([2])}
        axes = {"sequence": {1: "frames"}, "text_embeddings": {1: "text"}, "state_0": {1: "past"}}
        names = ["conditioning", "eos_logit", "out_state_0", "out_state_1"]
        export(self.model, inputs, names, {**axes, "out_state_0": {1: "all"}},
               onnx / "flow_lm_main.onnx")  # fmt: skip
        inputs = {"c": torch.randn(1, 1, SIZE), "s": torch.randn(1, 1), "t": torch.randn(1, 1)}
        inputs["x"] = torch.randn(1, LATENT)
        export(self.flow, inputs, ["flow_dir"], {}, onnx / "flow_lm_flow.onnx")
        inputs = {"latent": width, "state_0": torch.randn(1, 1, LATENT)}
        export(self.decoder, inputs, ["audio_frame", "out_state_0"],
               {"latent": {1: "frames"}, "audio_frame": {2: "samples"}},
               onnx / "mimi_decoder.onnx")  # fmt: skip
        return folder

    def speak(self, ids, audio, noise, temperature=0.7, steps=1, after=3, most=500):
        """Samples, and how many frames. noise: gives a random number."""
        import torch

        with torch.no_grad():
            voice = self.encoder(torch.tensor(audio[None, None]))
            nothing, empty = torch.zeros(1, 0, LATENT), torch.zeros(1, 0, SIZE)
            past, count = empty, torch.tensor([0])
            for condition in (voice, self.text(torch.tensor([ids]))):
                _, _, past, count = self.model(nothing, condition, past, count)
            frame, frames, end = torch.full((1, 1, LATENT), float("nan")), [], None
            for at in range(most):
                hidden, logit, past, count = self.model(frame, empty, past, count)
                if end is None and logit.item() > -4:
                    end = at
                if end is not None and at >= end + after:
                    break
                x = torch.tensor([[noise() * temperature**0.5 for _ in range(LATENT)]])
                for step in range(steps):
                    s, t = torch.tensor([[step / steps]]), torch.tensor([[(step + 1) / steps]])
                    x = x + self.flow(hidden, s, t, x) / steps
                frame = x[None]
                frames.append(frame)
            made, _ = self.decoder(torch.cat(frames, 1), torch.zeros(1, 1, LATENT))
            return made.numpy()[0], len(frames)
