"""An encoder-decoder model with its caches, ready to generate."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from ...compiler.arrays import Array
from ...compiler.compile.cross_attention import ALIGNMENT, FRAMES, ROWS
from ...compiler.compile.seq2seq import compile_seq2seq
from ...compiler.onnx import FileSource
from ...compiler.package import Package
from ...compiler.schema.speech import SPEECH_FIELDS
from ...compiler.targets import Target, target_of
from ...errors import InputError
from ...logic.generation.arguments import start_ids
from ...logic.generation.chunks import Shape
from ...logic.generation.encoder_decoder import aligner_for, encoder_for, reflected, shares
from ...logic.manifest.schema import Manifest, Seq2SeqPipeline, Seq2SeqPlan
from ..engine import Buffer, default_engine
from ..hub import local_path
from .decoder import DecoderModel
from .decoder_plan import DecoderPlan
from .open import folder_files, name_in

if TYPE_CHECKING:
    from typing import Self

    from ...compiler.passes.lora import AdapterConfig
    from ..engine import Engine


@dataclass(frozen=True)
class _Fed:
    """A run of the encoder.

    Attributes:
        run, cross: the plans of the encoder, and of what the decoder attends to.
        positions, room: of the encoder's output: of the input, and of the plan.
        feeds: by name.
        ids: token ids of the input; None: it is none.
    """

    run: DecoderPlan
    cross: DecoderPlan
    positions: int
    room: int
    feeds: dict[str, Any]
    ids: list[int] | None = None


class Seq2SeqModel(DecoderModel):
    """An encoder-decoder model: Whisper, T5, BART, Marian and others.

    `encode` runs the encoder and keeps the keys and values of cross attention. What it returns is a
    decoder: `generate(model.encode(ids), model.start_ids(), num_beams=4)`.

    Args:
        model: path of a model folder (encoder_model.onnx, and decoder_model_merged.onnx or
            decoder_model.onnx with decoder_with_past_model.onnx) or an .edge package; the id of a
            model of the hub; or a Package.
        dtype: suffix of the .onnx files to use, or {"encoder_model": suffix, ...}.
        capacity, engine, cache_dtype, verify, revision: as of DecoderModel.

    Attributes:
        As of DecoderModel; max_length is that of the decoder's tokens.
    """

    def _open_package(
        self,
        model: str | os.PathLike[str],
        dtype: Any,
        capacity: int | None,
        cache_dtype: str | None,
        target: Target,
        revision: str | None,
    ) -> Package:
        path = local_path(str(model), dtype if isinstance(dtype, str) else None, revision)
        if path.endswith(".edge"):
            return Package.read(FileSource(path))
        files, _ = folder_files(path)
        return compile_seq2seq(files, dtype, capacity, cache_dtype, target, halves=False)

    @classmethod
    def from_graphs(
        cls,
        root: str,
        graphs: Mapping[str, str],
        engine: Engine | None = None,
        lora: AdapterConfig | None = None,
    ) -> Self:
        """A model of chosen files.

        Args:
            root: folder of config.json and others.
            graphs: {"encoder_model": path, "decoder_model_merged": path, ...}.
            engine: as of Seq2SeqModel.
            lora: layers of the decoder that can get adapters; None: none.
        """
        files, _ = folder_files(root)
        chosen = {stem: name_in(os.path.abspath(root), path) for stem, path in graphs.items()}
        target = target_of((engine or default_engine()).device)
        package = compile_seq2seq(files, target=target, graphs=chosen, halves=False, lora=lora)
        return cls(package, engine=engine)

    def _read_manifest(self, manifest: Manifest) -> None:
        super()._read_manifest(manifest)
        self.prefill_chunk = None  # the plans for first tokens take a prompt as a whole
        self.described_encoder = manifest["encoder"]
        self.cross_caches = cast("Seq2SeqPipeline", manifest)["decoder"]["cross"]

    def _load(self, manifest: Manifest) -> None:
        described = cast("Seq2SeqPipeline", manifest)["decoder"]
        self.encoders: list[tuple[int, int, DecoderPlan, DecoderPlan]] = []
        self.aligners: dict[int, DecoderPlan | None] = {}
        self.described_aligners: dict[int, Seq2SeqPlan] = {}
        for p in sorted(described["plans"], key=lambda p: (p["kind"] == "step", p["tokens"])):
            if p["kind"] == "align":  # loaded when it is needed: its arena is large
                self.described_aligners[p["tokens"]] = p
            else:
                self.plans.append(DecoderPlan(self, p, p["tokens"], p["registers"]))
        first = [p.tokens for p in self.plans[:-1]]
        self.shape = Shape(first, self.max_length, self.vocab_size, "steps")
        for of in sorted(self.described_encoder["plans"], key=lambda of: of["size"]):
            *before, cross = (
                DecoderPlan(self, part, of["size"], {}, f"{part['file']}/") for part in of["plans"]
            )
            run = before[0] if before else cross
            if before:
                (hidden,) = run.outputs.values()
                index = next(i for i, s in enumerate(cross.slots) if s.kind == "input")
                cross.loaded.bind(index, hidden)
                self._release_buffer(f"{of['plans'][1]['file']}/{cross.slots[index].name}")
            self.encoders.append((of["size"], of["positions"], run, cross))
        for name in [n for n in self.buffers if n.startswith("cache/")]:
            self._release_buffer(name)  # init steps have run; each sequence has its own caches

    def _release_buffer(self, name: str) -> None:
        buffer = self.buffers.pop(name)
        self.owned.remove(buffer)
        self.device.release(buffer)

    # ---- the encoder
    def encode(
        self, values: Any = None, attention_mask: Sequence[int] | None = None
    ) -> EncodedSource:
        """Runs the encoder, and computes the keys and values of cross attention.

        Args:
            values: token ids; or features, float32 with as many elements as the encoder's input, as
                an object with the buffer protocol, an Array or a NumPy array. For models that hear
                samples (Moonshine): the output of their encoder, float32 [1, positions, width].
            attention_mask: 1 for ids that count. Default: all do.

        Returns:
            the source; free it with `close`, or let it go.

        Raises:
            InputError: the input does not fit. OutOfMemory: the caches do not fit.
        """
        fed = self._fed(values, attention_mask)
        run, cross = fed.run, fed.cross
        with self.lock:
            self._check_open()
            self._free_closed()
            caches = self._allocate_caches(
                {c["name"]: c["bytes"] for c in self.cross_caches},
                "the keys and values of cross attention take",
                "Close other sources, or",
            )
            for name, data in fed.feeds.items():
                self.device.write(run.inputs[name], data)
            try:
                if run is not cross:
                    run.loaded.run()
                for i, s in enumerate(cross.slots):
                    if s.kind == "cache":
                        cross.loaded.bind(i, caches[s.name])
                cross.loaded.run()
            except BaseException:
                for buffer in caches.values():
                    self.device.release(buffer)
                raise
        return EncodedSource(self, caches, fed.positions, fed.ids)

    def hidden_states(self, values: Any, attention_mask: Sequence[int] | None = None) -> bytes:
        """The output of the encoder, float32 [positions, width].

        Args:
            values, attention_mask: as `encode` takes them. Raises as it does.
        """
        fed = self._fed(values, attention_mask)
        if fed.run is fed.cross:  # another model is the encoder: these are its states
            return bytes(next(iter(fed.feeds.values())))
        with self.lock:
            self._check_open()
            for name, data in fed.feeds.items():
                self.device.write(fed.run.inputs[name], data)
            fed.run.loaded.run()
            (hidden,) = fed.run.outputs.values()
            return self.device.read(hidden, 0, hidden.nbytes // fed.room * fed.positions)

    def _fed(self, values: Any, attention_mask: Sequence[int] | None) -> _Fed:
        """The plans for an input of the encoder, and what they are fed."""
        kind = self.described_encoder["input"]
        if kind == "input_ids":
            ids = [int(i) for i in (values.tolist() if hasattr(values, "tolist") else values)]
            size, room, run, cross = self._encoder(len(ids))
            mask = list(attention_mask) if attention_mask is not None else [1] * len(ids)
            feeds: dict[str, Any] = {kind: struct.pack(f"<{size}q", *ids, *[0] * (size - len(ids)))}
            if self.described_encoder["masked"]:
                feeds["attention_mask"] = struct.pack(f"<{size}q", *mask, *[0] * (size - len(mask)))
            return _Fed(run, cross, len(ids), room, feeds, ids)
        if kind == "encoder_hidden_states":
            data = _bytes_of(values)
            size, _, run, cross = self.encoders[-1]
            positions = len(data) * size // run.inputs[kind].nbytes
            _, room, run, cross = self._encoder(positions)
            # what is after it is computed, but not attended to
            return _Fed(run, cross, positions, room, {kind: data})
        _, positions, run, cross = self.encoders[0]
        feeds = {kind: _bytes_of(values, run.inputs[kind].nbytes)}
        return _Fed(run, cross, positions, positions, feeds)

    def _encoder(self, count: int) -> tuple[int, int, DecoderPlan, DecoderPlan]:
        unit = "tokens" if self.described_encoder["input"] == "input_ids" else "positions"
        return self.encoders[encoder_for([e[0] for e in self.encoders], count, unit)]

    # ---- the decoder
    def open_on(self, source: EncodedSource) -> int:
        """A new empty sequence of decoder tokens for a source. Raises as `open`."""
        source.check()
        handle = self.open()
        self.sequences[handle].append(source)
        return handle

    def memory_of(self, sequence: int) -> Mapping[str, Buffer]:
        caches, _, _, _, _, _, source = self.sequences[sequence]
        return {**caches, **source.caches}

    def set_registers(self, plan: DecoderPlan, sequence: int) -> None:
        plan.loaded.register(plan.registers["source"], self.sequences[sequence][6].positions)

    def _plan_for(self, size: int, past: int) -> DecoderPlan:
        return self.plans[-1] if past else super()._plan_for(size, past)

    def start_ids(self) -> list[int]:
        """The first tokens of a sequence: decoder_start_token_id, else bos_token_id.

        Raises:
            InputError: the model has neither. ModelError: it is no integer.
        """
        return start_ids(self.generation_config, self.config)

    def align(
        self, source: EncodedSource, ids: Sequence[int], skip: int, length: int
    ) -> list[list[float]]:
        """Weights of cross attention, prepared for dynamic time warping.

        Args:
            source: from `encode`.
            ids: decoder tokens, prompt included.
            skip: number of first tokens that do not count.
            length: number of positions of the source that count, at least 1.

        Returns:
            [len(ids) - skip][length]: for each token (after which the next one is predicted) the
            mean over the alignment heads of weights that are normalized over the tokens and
            smoothed along the positions.

        Raises:
            InputError: the model was compiled without alignment heads, or there are too many ids.
        """
        sizes = sorted(self.described_aligners)
        size = sizes[aligner_for(sizes, len(ids), skip, length, source.positions)]
        with self.lock:
            source.check()
            plan = self.aligners.get(size)
            if plan is None:
                of = self.described_aligners[size]
                plan = self.aligners[size] = DecoderPlan(
                    self, of, size, of["registers"], f"align/{size}/"
                )
                for name in [n for n in self.buffers if n.startswith("cache/")]:
                    self._release_buffer(name)
            return self._align(plan, source, list(ids), skip, length)

    def _align(
        self, plan: DecoderPlan, source: EncodedSource, ids: list[int], skip: int, length: int
    ) -> list[list[float]]:
        size, device = plan.tokens, self.device
        own = {c["name"]: device.allocate(c["bytes"]) for c in self.caches}
        try:
            for i, s in enumerate(plan.slots):
                if s.kind == "cache":
                    plan.loaded.bind(i, {**own, **source.caches}[s.name])
            device.write(
                plan.inputs["input_ids"], struct.pack(f"<{size}q", *ids, *[0] * (size - len(ids)))
            )
            rows = shares(len(ids), skip, size)
            device.write(plan.inputs[ROWS], struct.pack(f"<{size}f", *rows))
            count = plan.inputs[FRAMES].nbytes // 8
            width = count - source.positions + 1
            frames = reflected(length, source.positions, width)
            device.write(plan.inputs[FRAMES], struct.pack(f"<{count}q", *frames))
            self.set_source(plan, source)
            plan.loaded.run()
            values = memoryview(
                device.read(
                    plan.outputs[ALIGNMENT],
                    4 * skip * source.positions,
                    4 * (len(ids) - skip) * source.positions,
                )
            ).cast("f")
        finally:
            for buffer in own.values():
                device.release(buffer)
        step = source.positions
        return [list(values[i * step : i * step + length]) for i in range(len(ids) - skip)]

    def set_source(self, plan: DecoderPlan, source: EncodedSource) -> None:
        """Sets the registers of a plan for a run from an empty sequence."""
        plan.loaded.register(plan.registers["source"], source.positions)

    def _free(self) -> None:
        for plan in getattr(self, "aligners", {}).values():
            if plan is not None:
                plan.loaded.free()
        for _, _, run, cross in getattr(self, "encoders", []):
            for plan in {id(run): run, id(cross): cross}.values():
                plan.loaded.free()
        self.aligners, self.encoders = {}, []
        super()._free()


class EncodedSource:
    """An encoded input: a text.run.Decoder whose sequences share its keys and values.

    Attributes:
        positions: of the encoder's output.
        encoder_input_ids: token ids of the input; None: it was none.
        vocab_size, max_length, config, engine, lock: as of the model.
        generation_config: that of the model without the fields that transcription reads itself.
        scored: see text.run.Decoder.
    """

    def __init__(
        self,
        model: Seq2SeqModel,
        caches: dict[str, Buffer],
        positions: int,
        encoder_input_ids: list[int] | None,
    ) -> None:
        self.model, self.caches, self.positions = model, caches, positions
        self.encoder_input_ids = encoder_input_ids
        self.vocab_size, self.max_length = model.vocab_size, model.max_length
        self.config = model.config
        self.generation_config = {
            name: value
            for name, value in model.generation_config.items()
            if name not in SPEECH_FIELDS
        }
        self.scored: Callable[[int, int], None] | None = None
        self.engine: Any = model.engine
        self.lock, self.prefill_chunk = model.lock, None

    def check(self) -> None:
        """Raises InputError after `close`."""
        if not self.caches:
            raise InputError("it was closed", "source", "Encode the input again.")

    def open(self) -> int:
        """A new empty sequence."""
        return self.model.open_on(self)

    def close(self, sequence: int | None = None) -> None:
        """Frees a sequence, or the source itself, whose sequences must be closed."""
        if sequence is not None:
            self.model.close(sequence)
        elif self.caches:
            caches, self.caches = self.caches, {}
            self.model.closing.append(caches)

    def copy(self, source: int, target: int) -> None:
        """Copies a sequence's cache."""
        self.model.copy(source, target)

    def truncate(self, sequence: int, length: int) -> None:
        """Removes all but the first `length` tokens."""
        self.model.truncate(sequence, length)

    def forward(
        self,
        sequence: int,
        ids: Iterable[SupportsIndex],
        reason: Callable[[], Exception | None] | None = None,
    ) -> int:
        """As DecoderModel.forward."""
        return self.model.forward(sequence, ids, reason)

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass


def _bytes_of(values: Any, nbytes: int | None = None) -> Any:
    """Features as bytes of float32. nbytes: as many as there must be; None: any number."""
    if isinstance(values, Array):
        data, dtype = values.data, values.dtype
    elif hasattr(values, "tobytes"):
        data, dtype = values.tobytes(), str(getattr(values, "dtype", getattr(values, "format", "")))
    else:
        raise InputError(
            f"a {type(values).__name__} is no array of features",
            "encode",
            "Give a NumPy array, an edgewise Array or a memoryview of float32.",
        )
    if dtype not in ("float32", "f") or nbytes not in (None, memoryview(data).nbytes):
        raise InputError(
            f"it has {memoryview(data).nbytes} bytes of {dtype}; {nbytes} of float32 are expected",
            "encode",
            "Give the features of the model's own processor.",
        )
    return data
