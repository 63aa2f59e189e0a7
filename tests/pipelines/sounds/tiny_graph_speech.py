"""Tiny random models of several graphs that speak: SpeechT5 of transformers, as optimum exports it,
and torch modules with the graphs of Supertonic.
"""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from .tiny_codecs import export
from .tiny_speakers import LETTERS

BINS, SIZE, RATE = 6, 16, 800


def _tokenizer(folder: Path) -> None:
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    vocabulary = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>", *LETTERS])}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def make_speecht5(folder: Path, merged: bool, dropout: float = 0.0):
    """(SpeechT5ForTextToSpeech, its vocoder)"""
    import torch
    import transformers

    torch.manual_seed(11)
    config = transformers.SpeechT5Config(
        vocab_size=4 + len(LETTERS), hidden_size=SIZE, encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, num_mel_bins=BINS, speech_decoder_prenet_units=8,
        speech_decoder_prenet_dropout=dropout, speaker_embedding_dim=4, reduction_factor=2,
        speech_decoder_postnet_units=8, speech_decoder_postnet_layers=2, max_speech_positions=200,
        max_text_positions=100, encoder_max_relative_position=10, positional_dropout=0.0,
    )  # fmt: skip
    model = transformers.SpeechT5ForTextToSpeech(config).eval()
    # which keeps numbers with the probability of dropping them, so that 0 keeps none
    model.speecht5.decoder.prenet._consistent_dropout = lambda x, p: x
    vocoder = transformers.SpeechT5HifiGan(
        transformers.SpeechT5HifiGanConfig(
            model_in_dim=BINS, sampling_rate=RATE, upsample_initial_channel=8,
            upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4], resblock_kernel_sizes=[3],
            resblock_dilation_sizes=[[1, 3]],
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for p in [*model.parameters(), *vocoder.parameters()]:
            p.add_(0.1 * torch.randn_like(p))
    _tokenizer(folder)
    config.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"sampling_rate": RATE}))
    _export_t5(folder / "onnx", model, vocoder, merged)
    return model, vocoder


class _Wrapped:
    """Modules with the signatures of optimum's graphs."""

    @staticmethod
    def encoder(model):
        import torch

        class Encoder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, input_ids):
                mask = torch.ones_like(input_ids)
                found = model.speecht5.encoder(input_values=input_ids, attention_mask=mask)
                return found.last_hidden_state, mask

        return Encoder()

    @staticmethod
    def decoder(model, names):
        import torch
        from transformers.cache_utils import EncoderDecoderCache

        class Decoder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, sequence, speaker, hidden, mask, *past):
                rows = [past[i : i + 4] for i in range(0, len(past), 4)]
                inner = model.speecht5.decoder
                found = inner.wrapped_decoder(
                    hidden_states=_prenet(inner.prenet, sequence, speaker)[:, -1:],
                    encoder_hidden_states=hidden,
                    encoder_attention_mask=mask,
                    past_key_values=EncoderDecoderCache.from_legacy_cache(tuple(rows) or None),
                    use_cache=True,
                )
                last = found.last_hidden_state[0, -1]
                net = model.speech_decoder_postnet
                spectrum = net.feat_out(last).view(model.config.reduction_factor, BINS)
                whole = torch.cat((sequence, spectrum[-1].view(1, 1, BINS)), dim=1)
                states = [s for row in found.past_key_values.to_legacy_cache() for s in row]
                return (whole, spectrum, torch.sigmoid(net.prob_out(last)), *states)

        return Decoder()

    @staticmethod
    def vocoder(model, vocoder):
        import torch

        class Vocoder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model, self.vocoder = model, vocoder

            def forward(self, spectrogram):
                smooth = model.speech_decoder_postnet.postnet(spectrogram.unsqueeze(0))
                return vocoder(smooth.squeeze(0))

        return Vocoder()


def _prenet(prenet, sequence, speaker):
    """The prenet, with optimum's form of dropout."""
    import torch

    rate, x = prenet.config.speech_decoder_prenet_dropout, sequence
    for layer in prenet.layers:
        x = torch.relu(layer(x))
        if rate:
            x = x * (torch.rand(x.shape) > rate) / (1 - rate)
    x = prenet.encode_positions(prenet.final_layer(x))
    voice = torch.nn.functional.normalize(speaker).unsqueeze(1).expand(-1, x.size(1), -1)
    return torch.relu(prenet.speaker_embeds_layer(torch.cat([x, voice], dim=-1)))


def _export_t5(folder: Path, model, vocoder, merged: bool) -> None:
    import torch

    names = [f"{i}.{part}.{what}" for i in range(2) for part in ("decoder", "encoder")
             for what in ("key", "value")]  # fmt: skip
    past, present = [f"past_key_values.{n}" for n in names], [f"present.{n}" for n in names]
    ids = torch.tensor([[4, 5, 6, 7, 2]])
    export(
        _Wrapped.encoder(model), {"input_ids": ids}, ["encoder_outputs", "encoder_attention_mask"],
        {"input_ids": {1: "text"}, "encoder_outputs": {1: "text"},
         "encoder_attention_mask": {1: "text"}}, folder / "encoder_model.onnx",
    )  # fmt: skip
    inputs = {
        "output_sequence": torch.randn(1, 1, BINS), "speaker_embeddings": torch.randn(1, 4),
        "encoder_hidden_states": torch.randn(1, 5, SIZE),
        "encoder_attention_mask": torch.ones(1, 5, dtype=torch.int64),
    }  # fmt: skip
    axes = {n: {1: n} for n in ("output_sequence", "encoder_hidden_states", "output_sequence_out")}
    axes["encoder_attention_mask"] = {1: "encoder_hidden_states"}
    axes |= {n: {0: "batch", 2: n} for n in (*past, *present)}
    outputs = ["output_sequence_out", "spectrum", "prob", *present]
    decoder = _Wrapped.decoder(model, names)
    export(decoder, inputs, outputs, axes, folder / "decoder_model.onnx")
    inputs["output_sequence"] = torch.randn(1, 3, BINS)
    lengths = {"decoder": 2, "encoder": 5}
    inputs |= {
        p: torch.randn(1, 2, lengths[n.split(".")[1]], SIZE // 2) for p, n in zip(past, names)
    }
    export(decoder, inputs, outputs, axes, folder / "decoder_with_past_model.onnx")
    export(
        _Wrapped.vocoder(model, vocoder), {"spectrogram": torch.randn(8, BINS)}, ["waveform"],
        {"spectrogram": {0: "frames"}, "waveform": {0: "samples"}},
        folder / "decoder_postnet_and_vocoder.onnx",
    )  # fmt: skip
    if merged:
        _merge(folder)


def _merge(folder: Path) -> None:
    """decoder_model_merged.onnx, which chooses by use_cache_branch."""
    first, later = folder / "decoder_model.onnx", folder / "decoder_with_past_model.onnx"
    whole = onnx.load(later)
    bodies = []
    for path, name in ((later, "then"), (first, "else")):
        graph = onnx.compose.add_prefix_graph(
            onnx.load(path).graph, f"{name}.", rename_inputs=False, rename_outputs=True
        )
        del graph.input[:]
        bodies.append(graph)
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    outputs = [o.name for o in whole.graph.output]
    node = helper.make_node(
        "If", ["use_cache_branch"], outputs, then_branch=bodies[0], else_branch=bodies[1]
    )
    inputs = {i.name: i for path in (first, later) for i in onnx.load(path).graph.input}
    ports = [*inputs.values(), flag]
    graph = helper.make_graph([node], "merged", ports, whole.graph.output)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8),
              folder / "decoder_model_merged.onnx")  # fmt: skip
    first.unlink()
    later.unlink()


def make_supertonic(folder: Path):
    """(text encoder, denoiser, decoder), torch modules."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix = nn.Embedding(4 + len(LETTERS), 8), nn.Linear(4, 8)

        def forward(self, input_ids, attention_mask, style):
            hidden = self.embed(input_ids) + self.mix(style).mean(1, keepdim=True)
            hidden = hidden * attention_mask.unsqueeze(-1)
            return hidden, 0.1 + 0.03 * attention_mask.sum(-1).float()

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.text = nn.Conv1d(6, 6, 3, padding=1), nn.Linear(8, 6)

        def forward(self, style, noisy_latents, latent_mask, encoder_outputs, attention_mask,
                    timestep, num_inference_steps):  # fmt: skip
            text = (encoder_outputs * attention_mask.unsqueeze(-1)).mean(1)
            step = (timestep / num_inference_steps).view(-1, 1, 1)
            flow = self.conv(noisy_latents).tanh() + self.text(text).unsqueeze(-1) + step
            moved = noisy_latents + (flow + style.mean()) / num_inference_steps.view(-1, 1, 1)
            return moved * latent_mask.unsqueeze(1)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose1d(6, 1, 16, 16)

        def forward(self, latents):
            return self.up(latents).tanh().squeeze(1)

    torch.manual_seed(12)
    encoder, denoiser, decoder = Encoder().eval(), Denoiser().eval(), Decoder().eval()
    _tokenizer(folder)
    config = {"model_type": "supertonic", "sampling_rate": RATE, "chunk_compress_factor": 2,
              "base_chunk_size": 8, "latent_dim": 3, "style_dim": 4}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    ids, style = torch.tensor([[4, 5, 6]]), torch.randn(1, 5, 4)
    ones = torch.ones(1, 3, dtype=torch.int64)
    text = {n: {1: "text"} for n in ("input_ids", "attention_mask", "encoder_outputs")}
    text["last_hidden_state"] = {1: "text"}
    export(encoder, {"input_ids": ids, "attention_mask": ones, "style": style},
           ["last_hidden_state", "durations"], text, folder / "onnx/text_encoder.onnx")  # fmt: skip
    latents = {n: {2: "frames"} for n in ("noisy_latents", "denoised_latents", "latents")}
    latents["latent_mask"] = {1: "frames"}
    inputs = {
        "style": style, "noisy_latents": torch.randn(1, 6, 4),
        "latent_mask": torch.ones(1, 4, dtype=torch.int64),
        "encoder_outputs": torch.randn(1, 3, 8), "attention_mask": ones,
        "timestep": torch.tensor([1.0]), "num_inference_steps": torch.tensor([5.0]),
    }  # fmt: skip
    export(denoiser, inputs, ["denoised_latents"], text | latents,
           folder / "onnx/latent_denoiser.onnx")  # fmt: skip
    export(decoder, {"latents": torch.randn(1, 6, 4)}, ["waveform"],
           latents | {"waveform": {1: "samples"}}, folder / "onnx/voice_decoder.onnx")  # fmt: skip
    return encoder, denoiser, decoder
