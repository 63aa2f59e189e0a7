"""text-to-image, image-to-image and inpainting. Mirrors diffusers' StableDiffusionPipeline,
StableDiffusionXLPipeline, their forms for image-to-image and inpainting, and
LatentConsistencyModelPipeline, on the folders of optimum.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Mapping
from typing import Any

from ...compiler.arrays import as_output
from ...compiler.declare.dtypes import FLOAT
from ...compiler.processors.diffusion.facts import PARTS, check_text_outputs, read_facts
from ...compiler.tokenizers.clip import clip_files
from ...errors import InputError
from ...logic.diffusion.encoders import joined, text_outputs
from ...logic.diffusion.guidance import preview_pixels
from ...logic.diffusion.options import DrawOptions, Prompts, padded
from ..media.pictures import Picture, to_pillow
from ..session import InferenceSession
from ..text.tokenizer import Tokenizer
from .base import Pipeline
from .diffusion.denoising import Denoising, Vectors
from .diffusion.noise import Noise
from .diffusion.options import CALL, check_own
from .diffusion.parts import Part, floats
from .diffusion.pictures import Pictures
from .files import Dtype

__all__ = ["TextToImagePipeline", "TextToImageResult"]


class TextToImageResult(dict[str, Any]):
    """The result of a call: `result.images`, `result["images"]`.

    Attributes:
        images: PIL.Images (without Pillow arrays of uint8 [height, width, 3]); with
            output_type="np" an array of float32 [images, height, width, 3] from 0 to 1; with
            "latent" one of [images, 4, height / 8, width / 8].
        nsfw_content_detected: for each image, whether the safety checker has replaced it by a black
            one; None if there is no checker.
        seeds: for each image, the seed that gives it alone; None with a generator.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class TextToImagePipeline(Pipeline):
    """Makes pictures of texts: pipe("a cat").images[0].

    The model is a folder with model_index.json, text_encoder/, unet/, vae_decoder/, tokenizer/,
    scheduler/ and, where they exist, vae_encoder/ (for image-to-image) and safety_checker/. One
    part is in memory at a time: it is opened, run and freed.

    Args:
        model: the folder, the id of a model of the hub, or {part: InferenceSession}, which stay
            open.
        scheduler: name of a scheduler of diffusers, or a dict with `_class_name` and fields; it
            gets the fields of the model's scheduler that it has, too. Default: the model's.
        safety_checker: False: none is used. Default: the model's; if there is none, a warning.
        offload: False: parts stay in memory between calls, which saves reading and compiling.
        dtype: a dtype, or {part: dtype}.
        others: see Pipeline.

    Options of a call are those of diffusers, and
        image, strength: a picture to begin with, and how much of it is replaced.
        mask_image: a picture that is white where `image` is made anew: inpainting.
        seed: 0 to 2^63 - 1, or a list of one for each image: the same seed gives the same numbers
            in a page. Image i of a call has the seed plus i. Default: unpredictable.
        scheduler: as above, for this call.
        callback_on_step_end: function(pipe, step, timestep, tensors) that returns a dict of tensors
            that replace the present ones, or None. `tensors["denoised"]` is what `preview` takes.
    Options that are not supported raise InputError.

    Attributes:
        interrupted: if a callback sets it, the steps that are left are skipped.
    """

    task = "text-to-image"
    STEMS = tuple(f"{part}/model" for part in PARTS[:3])
    OPTIONAL = tuple(f"{part}/model" for part in PARTS[3:])
    CALL = CALL

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        scheduler: Any = None,
        safety_checker: bool | None = None,
        offload: bool = True,
        dtype: Dtype = None,
        **options: Any,
    ) -> None:
        self.interrupted = self._busy = False
        self.offload = offload
        self.kind = "XL"  # until the files are read, options of any model are possible
        super().__init__(model, None, dtype=_dtypes(dtype), **options)
        files = self.files
        if files is None:
            self.sessions = {_stem(name): s for name, s in self.sessions.items()}
        self.facts = read_facts(files.read if files is not None else lambda name: None)
        self.kind = self.facts.kind
        self.scheduler = scheduler
        self.tokenizer = self._clip(tokenizer, "tokenizer")
        self.tokenizer_2 = self._clip(None, "tokenizer_2") if self.facts.xl else None
        self._small: dict[str, InferenceSession] = {}
        self.pictures = Pictures(self, safety_checker)

    def check(self, options: Mapping[str, Any]) -> None:
        check_own(options)
        DrawOptions(options, self.kind)

    def __call__(self, prompt: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Makes pictures.

        Args:
            prompt: a text, or a list of them.
            options: see the class.

        Returns:
            TextToImageResult; with return_dict=False (images, nsfw_content_detected)

        Raises:
            InputError: an option is not valid, or the model cannot do it.
        """
        if prompt is not None:
            options["prompt"] = prompt
        options = self.options(options)
        self.check(options)
        if self.closed:
            raise InputError(
                "the pipeline is closed", self.task, "Create it again with `pipeline`."
            )
        with self.lock:
            self._check_idle("a call")
            self._busy = True
            try:
                result = self._make(options)
            finally:
                self._busy = False
        if options["return_dict"]:
            return result
        return result["images"], result["nsfw_content_detected"]

    def preview(self, denoised: Any) -> list[Any]:
        """Estimates of the pictures with a pixel for each latent, without the decoder. Colors are
        those of Stable Diffusion 1 and 2.

        Args:
            denoised: [images, 4, height, width], of callback_on_step_end.
        """
        shape, numbers = floats(denoised, "denoised")
        if len(shape) != 4 or shape[1] != 4:
            raise InputError(f"it has the shape {shape}", "denoised", "Give [images, 4, h, w].")
        size = shape[2] * shape[3]
        return [
            to_pillow(Picture(preview_pixels(numbers[at : at + 4 * size], size), *shape[2:]))
            for at in range(0, len(numbers), 4 * size)
        ]

    def close(self) -> None:
        """Frees the memory of the graphs. Raises InputError in a callback of a call."""
        with self.lock:
            self._check_idle("close()")
            for session in self._small.values():
                session.free()
            super().close()

    def _check_idle(self, what: str) -> None:
        """Raises InputError in a callback, whose call needs the parts."""
        if self._busy:
            raise InputError(
                f"{what} is not possible within a callback of a call",
                self.task,
                "Set `interrupted` in the callback, and do it after the call.",
            )

    # Parts

    def part(self, name: str) -> Part:
        """Opens a part, which is freed by its `close` if parts do not stay in memory.

        Raises:
            InputError: the model has no such part. UnsupportedOp: it has inputs of another kind.
        """
        stem = _stem(name)
        if not self.has(name):
            raise InputError(
                f"the model has no {name}", self.task, f"Put {name}/model.onnx into its folder."
            )
        session = self.session(stem)

        def done() -> None:
            if self.offload and self.files is not None:
                self.sessions.pop(stem).free()

        return Part(name, session, done)

    def has(self, name: str) -> bool:
        """Whether the model has a part."""
        return _stem(name) in (self.sessions if self.files is None else self.files.graphs)

    def small(self, name: str, graph: Any) -> InferenceSession:
        """A session of a small graph, which is kept.

        Args:
            name: of the graph.
            graph: function that makes it.
        """
        if name not in self._small:
            self._small[name] = InferenceSession(graph(), engine=self.engine)
        return self._small[name]

    # A call

    def _make(self, options: dict[str, Any]) -> TextToImageResult:
        self.interrupted = False
        masked = options["mask_image"] is not None
        asked = DrawOptions(options, self.facts.kind, options["image"] is not None, "", masked)
        asked.check_inputs(self.facts)
        guided = asked.guided(self.facts)
        prompts = asked.prompts(guided, self.facts.zeros)
        schedule = asked.schedule(self.facts.scheduler, self.scheduler)
        vectors, without = self._embeddings(prompts, guided, asked, options)
        count, each = len(vectors), asked.each
        images = count * each
        noise = Noise(self, asked, images, options["generator"])
        latents: list[array[float]] | None = None
        encoded: list[array[float]] | None = None
        inpainted = None
        if masked:
            latents, height, width = self._start(asked, options, images)
            size = (height, width)
            pair = options["image"], options["mask_image"]
            inpainted = self.pictures.inpainted(*pair, asked, images, size)
        elif options["image"] is not None:
            encoded, height, width = self.pictures.encoded(options["image"], asked, images)
        else:
            latents, height, width = self._start(asked, options, images)
        rows = [vectors[i // each] for i in range(images)]
        others = [without[i // each % len(without)] for i in range(images)] if without else []
        denoising = Denoising(self, schedule, asked, options, noise, rows, others, (height, width))
        made = denoising.run(latents, encoded, inpainted)
        seeds = noise.seeds
        if options["output_type"] == "latent":
            shape = [images, len(made[0]) // (height * width), height, width]
            flat = array("f", [x for row in made for x in row])
            output: Any = as_output(FLOAT, shape, flat.tobytes())
            return TextToImageResult(images=output, nsfw_content_detected=None, seeds=seeds)
        pictures, found = self.pictures.decoded(made, height, width, options["output_type"])
        return TextToImageResult(images=pictures, nsfw_content_detected=found, seeds=seeds)

    def _embeddings(
        self, prompts: Prompts, guided: bool, asked: DrawOptions, options: dict[str, Any]
    ) -> tuple[list[Vectors], list[Vectors]]:
        """The vectors of prompts and of negative prompts; the second list is empty without
        guidance.
        """
        given = [self._given(options, name) for name in ("", "negative_")]
        made = self._all_encoded("text_encoder", self.tokenizer, prompts.texts)
        other = self._all_encoded("text_encoder_2", self.tokenizer_2, prompts.other_texts)

        def of(texts: list[str] | None, seconds: list[str] | None) -> list[Vectors]:
            if seconds is None:
                return [made[t] for t in texts or []]
            return [_both(made[t], other[s]) for t, s in zip(texts or [], seconds)]

        vectors = given[0] or of(prompts.prompts, prompts.seconds)
        if not guided:
            return vectors, []
        others = given[1] or of(prompts.negatives, prompts.other_negatives)
        if prompts.zero:
            others = [_zeros(vectors[0])]
        asked.check_negatives(len(others), len(vectors))
        if others[0][0] != vectors[0][0]:
            raise InputError(
                "they have another shape than those of the prompt",
                "negative_prompt_embeds",
                f"Give {[len(vectors), *vectors[0][0]]}.",
            )
        return vectors, others

    def _given(self, options: dict[str, Any], prefix: str) -> list[Vectors] | None:
        """The vectors among the options."""
        name = f"{prefix}prompt_embeds"
        if options[name] is None:
            return None
        rows = _rows_of(options[name], name)
        if not self.facts.xl:
            return rows
        pooled = f"{prefix}pooled_prompt_embeds"
        shape, numbers = floats(options[pooled], pooled)
        if len(shape) != 2 or shape[0] != len(rows):
            raise InputError(f"the shape is {shape}", pooled, "Give [prompts, size].")
        one = shape[1]
        return [
            Vectors(row.shape, row.numbers, numbers[i * one : (i + 1) * one])
            for i, row in enumerate(rows)
        ]

    def _all_encoded(self, name: str, tokenizer: Any, texts: list[str]) -> dict[str, Vectors]:
        """{text: what a text encoder makes of it}."""
        if not texts:
            return {}
        with self.part(name) as part:
            return {text: self._encoded(part, text, tokenizer) for text in texts}

    def _encoded(self, part: Part, text: str, tokenizer: Any = None) -> Vectors:
        """What a text encoder makes of a text."""
        tokenizer = tokenizer or self.tokenizer
        ids = tokenizer.encode(text)
        length = part.size("input_ids", 1) or int(getattr(tokenizer, "longest", None) or 77)
        tokens = padded(ids, length, getattr(tokenizer, "pad_token_id", None))
        if tokens.cut:
            warnings.warn(
                f"the prompt has {tokens.cut} tokens, the model takes {length}: its end is cut off",
                stacklevel=2,
            )
        row: dict[str, Any] = {"input_ids": ([length], tokens.ids)}
        if part.has("attention_mask"):
            row["attention_mask"] = ([length], tokens.mask)
        names = text_outputs(list(part.session.outputs), self.facts.xl)
        check_text_outputs(names, self.facts.xl, part.name)
        made = part.one(row, names)
        pooled = made[1] if len(made) > 1 else None
        return Vectors([length, len(made[0]) // length], made[0], pooled)

    def _start(
        self, asked: DrawOptions, options: dict[str, Any], images: int
    ) -> tuple[list[array[float]] | None, int, int]:
        """(latents to begin with, or None: noise; their height and width)."""
        scale, size = self.facts.scale, []
        for name, given, own in zip(
            ("height", "width"), (asked.height, asked.width), self.facts.size
        ):
            pixels = given if given is not None else own * scale
            if pixels % scale:
                raise InputError(f"{pixels} is no multiple of {scale}", name, "Round it.")
            size.append(pixels // scale)
        latents = None
        if options["latents"] is not None:
            shape, numbers = floats(options["latents"], "latents")
            asked.check_latents(shape, [images, self.facts.channels, *size])
            one = len(numbers) // images
            latents = [numbers[i * one : (i + 1) * one] for i in range(images)]
        return latents, size[0], size[1]

    # Loading

    def _clip(self, given: Any, folder: str) -> Any:
        """The tokenizer of a folder."""
        if given is not None or self.files is None:
            return self._tokenizer(given)
        files, where = self.files, f"{self.files.where}/{folder}"
        return Tokenizer.from_files(
            clip_files(lambda name: files.read(f"{folder}/{name}"), where), where
        )


def _both(first: Vectors, second: Vectors) -> Vectors:
    """What both text encoders make of a text."""
    tokens = first.shape[0]
    numbers = joined(first.numbers, second.numbers, tokens)
    return Vectors([tokens, len(numbers) // tokens], numbers, second.pooled)


def _zeros(like: Vectors) -> Vectors:
    shape, numbers, pooled = like
    zeros = array("f", bytes(4 * len(numbers)))
    return Vectors(shape, zeros, None if pooled is None else array("f", bytes(4 * len(pooled))))


def _rows_of(value: Any, name: str) -> list[Vectors]:
    """The rows of an array [rows, tokens, size]."""
    shape, numbers = floats(value, name)
    if len(shape) != 3 or not all(shape):
        raise InputError(f"the shape is {shape}", name, "Give [prompts, tokens, size].")
    size = shape[1] * shape[2]
    return [Vectors(shape[1:], numbers[i * size : (i + 1) * size]) for i in range(shape[0])]


def _stem(part: str) -> str:
    return f"{part}/model"


def _dtypes(dtype: Dtype) -> Dtype:
    """{stem: dtype} of {part: dtype}. Raises InputError."""
    if not isinstance(dtype, Mapping):
        return dtype
    dtype = {part.removesuffix("/model"): name for part, name in dtype.items()}
    for part in dtype:
        if part not in PARTS:
            raise InputError(
                f"the model has no part {part!r}", "dtype", f"It has: {', '.join(PARTS)}."
            )
    return {_stem(part): name for part, name in dtype.items()}
