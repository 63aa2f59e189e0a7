"""Language models with adapters, which can be switched and scaled while they run."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...compiler.declare.dtypes import FLOAT, FLOAT16, pack, unpack
from ...compiler.declare.symbolic import product
from ...compiler.ir import Tensor
from ...compiler.package import Package
from ...compiler.passes.lora import SCALE
from ...compiler.targets import CPU, target_of
from ...compiler.training.peft import Adapter, LoraConfig, load_adapter
from ...errors import InputError, PackageError, memory_in_words
from ...logic.generation.prefix import PREFIX
from ...logic.options import check_known
from ...logic.training.adapters import check_fit, half_of, name_of_magnitude, rank_axis
from ..arguments import Described, options_in_words, options_of
from ..engine import Buffer, Engine
from ..session import decoder
from ..session.seq2seq import Seq2SeqModel

Stored = tuple[int, Sequence[int], bytes]  # dtype code, shape, bytes


def floats(tensor: Tensor | Stored) -> array[float]:
    """Flat float32 of a Tensor, or of (dtype code, shape, bytes)."""
    dtype, shape, data = (
        tensor if isinstance(tensor, tuple) else (tensor.dtype, tensor.shape, tensor.bytes())
    )
    if dtype == FLOAT:
        return array("f", bytes(data))
    return array("f", unpack(dtype, bytes(data), product(shape)))


def fitted(
    adapter: Adapter, shapes: Mapping[str, Sequence[int]], config: LoraConfig, exact: bool = False
) -> dict[str, bytes]:
    """An adapter as the states of plans that were compiled for another rank or scaling.

    Args:
        adapter: to be loaded.
        shapes: {state: shape} of the plans' adapters.
        config: of the plans.
        exact: ranks must be equal. Otherwise smaller ones are padded with zeros, which have no
            effect.

    Returns:
        {state: bytes of float32}, scaled so that the plans' scaling gives the adapter's.

    Raises:
        InputError: it has layers that the plans do not adapt, larger ranks, or other widths.
    """
    tensors = adapter.tensors()
    halves = {n: half for n in tensors if (half := half_of(n)) is not None}
    magnitudes = {name_of_magnitude(module): x for module, x in adapter.magnitudes.items()}
    given = {n: list(_shape_of(tensors[n])) for n in (*halves, *magnitudes)}
    check_fit(given, {n: list(shape) for n, shape in shapes.items()}, exact, "adapter")
    out = {name: floats(x).tobytes() for name, x in magnitudes.items()}
    for name, half in halves.items():
        values, module = floats(tensors[name]), half.module
        if half.is_a:
            out[name] = values.tobytes() + bytes(4 * (product(shapes[name]) - len(values)))
            continue
        factor = adapter.config.scaling_of(module) / config.scaling_of(module)
        if factor != 1.0:
            values = array("f", [x * factor for x in values])
        data, own = values.tobytes(), given[name][1]
        padding = bytes(4 * (shapes[name][1] - own))
        rows = (data[i : i + 4 * own] + padding for i in range(0, len(data), 4 * own))
        out[name] = b"".join(rows) if padding else data
    return out


def room_for(adapters: Iterable[Adapter]) -> LoraConfig:
    """A configuration of plans that have room for adapters: for all of their layers, of the largest
    of their ranks.
    """
    modules, ranks, use_dora = set[str](), {1}, False
    for adapter in adapters:
        use_dora = use_dora or adapter.config.use_dora
        for name, tensor in adapter.tensors().items():
            half, axis = half_of(name), rank_axis(name)
            if half is not None and axis is not None:
                modules.add(half.module)
                ranks.add(_shape_of(tensor)[axis])
    r, targets = max(ranks), sorted(modules)
    return LoraConfig(r=r, lora_alpha=r, target_modules=targets, use_dora=use_dora)


def _shape_of(tensor: Tensor | Stored) -> Sequence[int]:
    return tensor[1] if isinstance(tensor, tuple) else tensor.shape


def transposed(data: bytes, rows: int, columns: int) -> bytes:
    """The transpose of float32 [rows, columns]."""
    x = array("f", data)
    out = array("f", bytes(len(data)))
    for i in range(rows):
        out[i::rows] = x[i * columns : (i + 1) * columns]
    return out.tobytes()


def as_weight(values: array[float], saved: Mapping[str, Any], nbytes: int) -> bytes:
    """The bytes of a weight slot.

    Args:
        values: a saved parameter, float32 in PyTorch's layout.
        saved: {"transposed": whether the slot has the transpose, "shape": of the slot}.
        nbytes: of the slot, float32 or float16.

    Raises:
        InputError: the parameter has another size.
    """
    rows, columns = (saved["shape"] + [1, 1])[:2] if saved["transposed"] else (1, len(values))
    data = transposed(values.tobytes(), columns, rows) if saved["transposed"] else values.tobytes()
    if len(data) == 2 * nbytes:
        data = pack(FLOAT16, unpack(FLOAT, data, len(data) // 4))
    if len(data) != nbytes:
        raise InputError(
            f"{len(data)} bytes for a weight of {nbytes}",
            "adapter",
            "Give an adapter of this model.",
        )
    return data


class Adapted(decoder.DecoderModel):
    """A model with adapters, which can be switched and scaled while it runs.

    Attributes:
        lora: LoraConfig that its plans were compiled with, or None.
        adapters: {name: Adapter} of those that were loaded.
        adapter: name of the one that is set, or None.
        scale: factor of its effect.
    """

    def _begin(self, mine: bool) -> None:
        """Reads what the package's plans have of adapters. mine: whether the adapters' memory is
        this model's own.
        """
        self._mine = mine
        self._swapped: dict[str, Buffer] = {}  # of weights that the adapter replaces
        self.adapters: dict[str, Adapter] = {}
        self.adapter: str | None = None
        self._loads: dict[str, int] = {}  # how often an adapter of a name was loaded
        self.scale = 1.0
        self._placed: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {}
        manifest = self.package.manifest
        described = manifest["decoder"]
        training = next((p["lora"] for p in manifest.get("training", ()) if p.get("lora")), None)
        config = described.get("lora") or training
        self.lora = LoraConfig.from_dict(config, "package") if config else None
        self._saved = {s["name"]: s for s in described.get("saved") or ()}
        encoder = manifest.get("encoder")
        encoders = [p for e in encoder["plans"] for p in e["plans"]] if encoder else []
        self._shapes = {
            s["name"]: s["shape"]
            for p in (*described["plans"], *encoders)
            for s in p["slots"]
            if s["kind"] == "state"
        }

    @memory_in_words
    def load_adapter(
        self, source: Adapter | str | os.PathLike[str] | dict[str, Any], name: str = "default"
    ) -> None:
        """Reads an adapter and keeps it under a name. `set_adapter` switches to it.

        Args:
            source: a folder in PEFT's layout, {file name: bytes}, or a peft.Adapter.
            name: replaces an adapter of that name.

        Raises:
            InputError: it has layers that the model was not compiled to adapt, or a larger rank.
            ModelError, UnsupportedField: as peft.load_adapter.
        """
        if self.lora is None:
            raise InputError(
                "the model was compiled without adapters",
                "load_adapter",
                f"Pass lora=LoraConfig(...) or lora=the adapter's path to {type(self).__name__}.",
            )
        if not isinstance(name, str) or not name:
            raise InputError(f"{name!r} is not a valid name", "load_adapter", "Give a text.")
        if not self._mine:
            raise InputError(
                "its adapters are those of a training session",
                "load_adapter",
                "Use Trainer.load_adapter.",
            )
        adapter = source if isinstance(source, Adapter) else load_adapter(source)
        states, weights = fitted(adapter, self._shapes, self.lora), {}
        for key, x in adapter.saved.items():
            saved = self._saved.get(key)
            slot = next(
                (
                    s
                    for p in self.plans
                    for s in p.slots
                    if saved is not None and s.kind == "weight" and s.name == saved["parameter"]
                ),
                None,
            )
            if saved is None or slot is None:
                raise InputError(
                    f"it contains '{key}', which the model was not compiled to load from adapters",
                    "adapter",
                    "Pass lora=LoraConfig(modules_to_save=...) that names"
                    f" it{'; now it takes ' + ', '.join(self._saved) if self._saved else ''}.",
                )
            weights[slot.name] = as_weight(floats(x), saved, slot.nbytes)
        self.adapters[name] = adapter
        self._placed[name] = states, weights
        self._loads[name] = self._loads.get(name, 0) + 1
        if self.adapter == name:
            self.set_adapter(name)

    @memory_in_words
    def set_adapter(self, name: str | None, scale: float = 1.0) -> None:
        """Switches to an adapter. Open sequences keep their caches: open new ones.

        Args:
            name: of a loaded adapter; None: the base.
            scale: factor of the adapter's effect; 1 is the adapter as it was trained.

        Raises:
            InputError: there is no such adapter, or it replaces whole modules and `scale` is not 1.
        """
        if name is not None and (not isinstance(name, str) or name not in self.adapters):
            raise InputError(
                f"there is no adapter {name!r}",
                "set_adapter",
                f"Loaded: {', '.join(self.adapters) or 'none'}.",
            )
        if type(scale) not in (int, float) or scale != scale or abs(scale) == float("inf"):
            raise InputError(
                f"{scale!r} is not a number",
                "scale",
                "1 is the adapter as it was trained, 0 the base.",
            )
        states, weights = self._placed[name] if name is not None else ({}, {})
        if weights and scale != 1.0:
            raise InputError(
                f"the adapter brings whole modules ({', '.join(list(weights)[:3])}), which cannot"
                " be scaled",
                "scale",
                "Leave it at 1.",
            )
        with self.lock:
            self._place(name, scale, states, weights)

    def _place(
        self, name: str | None, scale: float, states: dict[str, bytes], weights: dict[str, bytes]
    ) -> None:
        """Writes an adapter into the memory that the plans read. The lock must be held."""
        fresh = {n: self.device.allocate(len(data)) for n, data in weights.items()}
        for n, data in weights.items():
            self._write(fresh[n], data)
        if name is not None:
            for n, shape in self._shapes.items():
                if ".lora_" in n:
                    self._write(self.states[n], states.get(n) or bytes(4 * product(shape)))
        if SCALE in self._shapes:
            self._write(self.states[SCALE], struct.pack("<f", scale if name is not None else 0.0))
        if fresh or self._swapped:
            self.store.instead = {
                **{n: a for n, a in self.store.instead.items() if n not in self._swapped},
                **fresh,
            }
            self.refresh({*fresh, *self._swapped})
            for buffer in self._swapped.values():
                self.device.release(buffer)
            self._swapped = fresh
            self.changes -= 1  # the key names the adapter
        if self.lora is not None and self.lora.use_dora:
            self.refresh(())  # the norms of rows follow from adapters
            self.changes -= 1
        self.adapter, self.scale = name, scale

    def kept_key(self) -> str | None:
        """Names the weights and the adapter that states come from."""
        base = super().kept_key()
        adapter = getattr(self, "adapter", None)
        if base is None or adapter is None:
            return base
        return f"{base}/{self._loads[adapter]}/{self.scale}/{adapter}"

    def state_values(self) -> dict[str, Buffer]:
        """{name: Buffer} of what states of sequences depend on besides the package."""
        if self.adapter is None:
            return super().state_values()
        return {n: self.states[n] for n in self._shapes} | self._swapped

    def _write(self, buffer: Buffer, data: bytes) -> None:
        if len(data) > buffer.nbytes:
            raise PackageError(
                f"{len(data)} bytes for a buffer of {buffer.nbytes}",
                "the package's adapters",
                "The package is damaged: build it again.",
            )
        self.device.write(buffer, data)

    def _free(self) -> None:
        super()._free()
        for buffer in getattr(self, "_swapped", {}).values():
            self.device.release(buffer)
        self._swapped = {}


class CausalLM(Described, Adapted):
    """A decoder-only language model, with or without adapters.

        config = LoraConfig(r=16, target_modules="all-linear")
        lm = CausalLM("smollm2/", lora=config)  # room for adapters up to rank 16
        lm.load_adapter("pirate/", "pirate")
        lm.load_adapter("poet/", "poet")
        lm.set_adapter("pirate")
        lm.set_adapter("poet", 0.5)
        lm.set_adapter(None)  # the base; nothing is compiled again

    Args:
        model, dtype, capacity, engine, states, cache_dtype, verify, revision, cache_bytes: as
            session.decoder.DecoderModel's.
        lora: LoraConfig or a dict of its fields: the layers that adapters may change, and the
            maximum rank; or the path of an adapter, which is loaded under the name "default" and
            set. None: no adapters, unless the package was compiled with them.
        max_length: the same as `capacity`.

    Attributes:
        adapters: {name: Adapter} of those that were loaded.
        adapter: name of the one that is set, or None.

    Raises:
        InputError: `lora` was given with a package, which is compiled already.
    """

    @options_in_words
    @memory_in_words
    def __init__(
        self,
        model: str | os.PathLike[str] | Package,
        dtype: str | None = None,
        capacity: int | None = None,
        engine: Engine | None = None,
        states: Mapping[str, Buffer] | None = None,
        lora: LoraConfig | Adapter | dict[str, Any] | str | os.PathLike[str] | None = None,
        cache_dtype: str | None = None,
        verify: bool = True,
        revision: str | None = None,
        cache_bytes: int | None = None,
        max_length: int | None = None,
    ):
        first = None
        capacity = max_length if capacity is None else capacity
        if lora is not None and not isinstance(lora, (LoraConfig, dict)):
            first = lora if isinstance(lora, Adapter) else load_adapter(lora)
            lora = first.config
        if lora is not None:
            if isinstance(lora, dict):
                check_known(list(lora), options_of(LoraConfig), "lora")
                lora = LoraConfig(**lora)
            if isinstance(model, decoder.Package):
                raise InputError(
                    "a package is compiled already",
                    "lora",
                    "Compile it with programs that have LoRA, or pass the model's folder.",
                )
            target = CPU if engine is None else target_of(engine.device)
            model = decoder.open_package(
                model, dtype, capacity, lora, cache_dtype, target, revision
            )
            revision = None
        super().__init__(
            model, dtype, capacity, engine, states, cache_dtype, verify, revision, cache_bytes
        )
        self._begin(not states)
        if first is not None:
            self.load_adapter(first, "default")
            self.set_adapter("default")
            return
        prefix = self.package.file(PREFIX)
        if prefix is not None and self.kept is not None and self.kept_key() is not None:
            self.load_prefix(prefix)

    def _described(self) -> Sequence[tuple[str, object]]:
        fields = [
            ("max_length", self.max_length),
            ("vocab_size", self.vocab_size),
            ("adapters", list(self.adapters) or None),
            ("adapter", self.adapter),
        ]
        return fields


class Seq2SeqLM(Adapted, Seq2SeqModel):
    """An encoder-decoder model, whose decoder has adapters.

    Args:
        package: of compile_seq2seq, with `lora`.
        engine: default: the process's.
    """

    def __init__(self, package: Package, engine: Engine | None = None) -> None:
        super().__init__(package, engine=engine)
        self._begin(True)


__all__ = ["Adapted", "CausalLM", "Seq2SeqLM", "fitted", "room_for"]
