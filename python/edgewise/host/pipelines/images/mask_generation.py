"""mask-generation: masks of what points and boxes show, or of everything. Mirrors transformers'
pipeline of this name, and its SamProcessor and SamModel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import BOOL, CODE, FLOAT, pack
from ....compiler.task_package.prompts import DECODER, ENCODER, check_embedding
from ....errors import InputError
from ....logic.images.geometry import Layout, layout
from ....logic.tasks.masks import (
    GENERATING,
    Crop,
    Decode,
    Encode,
    Found,
    Keep,
    Measure,
    Measured,
    Request,
    generate,
    generating,
    mask_taps,
    run_lengths,
)
from ....logic.tasks.prompts import (
    CHOICES,
    PROMPTS,
    Prompts,
    batches,
    choosing,
    chosen_masks,
    embedding_names,
    is_prompted,
    prompt_inputs,
    read_prompts,
    scaled,
)
from ...drive import drive
from ...media.pictures import Picture
from ..post.plane import Plane
from .base import ImagePipeline
from .weights import matrix

__all__ = ["MaskGenerationPipeline", "OpenPicture"]

TOGETHER = 8  # masks that are enlarged at a time, which bounds memory


class OpenPicture:
    """A picture that the model has seen: masks of prompts take milliseconds.

        picture = pipe.open("cat.png")
        found = picture.masks(input_points=[[450, 600]])
        found["masks"]  # bool [objects, masks, height, width]

    Attributes:
        height, width: of the picture, in pixels.
    """

    def __init__(self, pipe: MaskGenerationPipeline, picture: Picture) -> None:
        self.pipe = pipe
        self.height, self.width = picture.height, picture.width
        with pipe.lock:
            self._seen = _Seen(pipe, picture)

    def masks(self, **options: Any) -> dict[str, Any]:
        """The masks of prompts.

        Args:
            **options: `input_points`, `input_labels`, `input_boxes`, `multimask_output` and
                `mask_threshold`, as of MaskGenerationPipeline.

        Returns:
            as of a call of the pipeline with prompts

        Raises:
            InputError: an option is not valid, or the pipeline is closed.
        """
        pipe = self.pipe
        for name in options:
            if name not in (*PROMPTS, *CHOICES):
                raise InputError(
                    f"there is no option {name!r}",
                    "masks",
                    f"There are: {', '.join((*PROMPTS, *CHOICES))}.",
                )
        with pipe.lock:
            return pipe.prompted(self._seen, options)


class _Seen:
    """What the encoder has made of a picture, or of a part of it."""

    def __init__(self, pipe: MaskGenerationPipeline, picture: Picture) -> None:
        self.size = (picture.height, picture.width)
        description = pipe.processor.description
        self.done: Layout = layout(description.steps, *self.size)
        self.padded: bool = description.frame
        encoder, decoder = pipe.session(ENCODER), pipe.session(DECODER)
        names = embedding_names(list(decoder.inputs), list(encoder.outputs))
        found = pipe.forward(picture, *names.values())
        self.embeddings = dict(zip(names, found))
        for name, value in self.embeddings.items():
            check_embedding(name, decoder.inputs[name].shape, list(value.shape))

    def matrices(self, height: int, width: int) -> tuple[Array, Array]:
        """Weights that make the picture's rows, and columns, of those of a mask."""
        done = self.done
        wholes = (done.height, done.width) if self.padded else (0, 0)
        keeps = (done.valid[2] - done.valid[0], done.valid[3] - done.valid[1])
        rows = mask_taps(height, wholes[0], keeps[0], self.size[0])
        columns = mask_taps(width, wholes[1], keeps[1], self.size[1])
        return matrix(rows, height, self.size[0]), matrix(columns, width, self.size[1], True)


class MaskGenerationPipeline(ImagePipeline):
    """Masks of what points and boxes show, or of everything in a picture: SAM (SlimSAM), SAM 2,
    EdgeTAM and SAM 3's tracker, as vision_encoder.onnx and prompt_encoder_mask_decoder.onnx.

    With prompts a call gives their masks; `open` keeps a picture for more prompts. Without prompts
    it gives the masks of a grid of points, as transformers' pipeline.

    Options:
        input_points: [x, y] of points in pixels of the picture; [points, 2] of one object, or
            [objects, points, 2].
        input_labels: of the points: 1: of the object (default), 0: not of it.
        input_boxes: [left, top, right, bottom] of each object.
        multimask_output: False: only the mask of each object with the highest score. Default: True.
        mask_threshold: logit above which a pixel is in a mask. Default: 0.
        points_per_batch, points_per_crop, crops_n_layers, crop_overlap_ratio,
            crop_n_points_downscale_factor, pred_iou_thresh, stability_score_thresh,
            stability_score_offset, crops_nms_thresh, output_rle_mask, output_bboxes_mask: without
            prompts, as of transformers' pipeline. Defaults: 64, 32, 0, 512 / 1500, 1, 0.88, 0.95,
            1, 0.7, False, False.

    Returns:
        with prompts {"masks": bool [objects, masks, height, width], "iou_scores": float32 [objects,
        masks]} and, if the model has them, "object_score_logits"; without prompts {"masks": bool
        [height, width] each, "scores": a list}, "rle_mask" and "bounding_boxes"
    """

    task = "mask-generation"
    STEM = ENCODER
    STEMS = (ENCODER, DECODER)
    CALL = dict.fromkeys((*PROMPTS, *CHOICES, *GENERATING))

    def check(self, options: Mapping[str, Any]) -> None:
        choosing(options)
        generating(options)

    def open(self, image: Any) -> OpenPicture:
        """Shows the model a picture, for several calls with prompts. Raises InputError."""
        if self.closed:
            raise InputError(
                "the pipeline is closed", self.task, "Create it again with `pipeline`."
            )
        return OpenPicture(self, self.picture(image))

    def one(self, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        picture = self.picture(given)
        if is_prompted(options):
            read_prompts(options, (picture.height, picture.width))  # before the encoder runs
            return self.prompted(_Seen(self, picture), options)
        return _Everything(self, picture, options).result()

    def prompted(self, seen: _Seen, options: Mapping[str, Any]) -> dict[str, Any]:
        """The masks of prompts in a picture."""
        prompts = scaled(read_prompts(options, seen.size), seen.done, seen.size)
        how = choosing(options)
        masks: list[bytes] = []
        scores: list[float] = []
        further: list[float] = []
        for batch in batches(prompts):
            made = self.decode(seen, batch, how.multimask)
            own = made["iou_scores"].numbers
            count = made["iou_scores"].shape[-1]
            chosen = chosen_masks(own, count, how.multimask)
            scores += [own[i] for i in chosen]
            for mask, _ in self.enlarged(seen, made["pred_masks"], chosen, how.threshold):
                masks.append(mask)
            if "object_score_logits" in made:
                further += list(made["object_score_logits"].numbers)
        objects = max(len(prompts.points), len(prompts.boxes))
        each = len(scores) // objects
        shape = [objects, each, *seen.size]
        result = {
            "masks": as_output(BOOL, shape, b"".join(masks)),
            "iou_scores": as_output(FLOAT, [objects, each], pack(FLOAT, scores)),
        }
        if further:
            result["object_score_logits"] = as_output(FLOAT, [objects, 1], pack(FLOAT, further))
        return result

    def decode(self, seen: _Seen, prompts: Prompts, multimask: bool) -> dict[str, Plane]:
        """The outputs of the decoder for a batch of prompts."""
        decoder = self.session(DECODER)
        cornered = self.processor.description.type != "SamImageProcessor"
        given = prompt_inputs(list(decoder.inputs), prompts, multimask, cornered)
        feeds = dict(seen.embeddings)
        for name, value in given.items():
            info = decoder.inputs[name]
            data = pack(info.dtype, [int(x) if info.dtype != FLOAT else x for x in value.data])
            dtype = next(n for n, code in CODE.items() if code == info.dtype)
            feeds[name] = Array(tuple(value.dims), dtype, data)
        names = [self.need_output(DECODER, name) for name in ("iou_scores", "pred_masks")]
        names += [name for name in ("object_score_logits",) if name in decoder.outputs]
        return {n: Plane(x) for n, x in zip(names, decoder.run(names, feeds))}

    def enlarged(
        self, seen: _Seen, logits: Plane, chosen: Sequence[int], threshold: float, offset: float = 0
    ) -> list[tuple[bytes, Measured]]:
        """Masks at the size of the picture, of bytes of 0 and 1, and what is measured of them."""
        height, width = logits.shape[-2:]
        area = height * width
        rows, columns = seen.matrices(height, width)
        made = []
        for at in range(0, len(chosen), TOGETHER):
            some = chosen[at : at + TOGETHER]
            parts = [logits.numbers[i * area : (i + 1) * area] for i in some]
            data = b"".join(bytes(pack(FLOAT, part)) for part in parts)
            feeds = {
                "x": Array((len(some), height, width), "float32", data),
                "rows": rows,
                "columns": columns,
                "threshold": Array((1,), "float32", pack(FLOAT, [threshold])),
                "offset": Array((1,), "float32", pack(FLOAT, [offset])),
            }
            masks, inner, outer, high, wide = self.graphs.run("masks", feeds)
            pixels = bytes(as_input(masks, "masks")[2])
            size = len(pixels) // len(some)
            inners, outers, highs, wides = (Plane(x) for x in (inner, outer, high, wide))
            for k in range(len(some)):
                left, right = _ends(wides.row(k))
                top, bottom = _ends(highs.row(k))
                measured = Measured(
                    int(inners.numbers[k]), int(outers.numbers[k]), (left, top, right, bottom)
                )
                made.append((pixels[k * size : (k + 1) * size], measured))
        return made


def _ends(present: Sequence[float]) -> tuple[int, int]:
    """The first and the last position that is not 0; 0 if there is none."""
    at = [i for i, x in enumerate(present) if x]
    return (at[0], at[-1]) if at else (0, 0)


class _Everything:
    """The masks of everything in a picture: answers what `generate` asks."""

    def __init__(
        self, pipe: MaskGenerationPipeline, picture: Picture, options: Mapping[str, Any]
    ) -> None:
        self.pipe, self.picture, self.how = pipe, picture, generating(options)
        self.seen: _Seen | None = None
        self.logits: Plane | None = None
        self.kept: list[tuple[_Seen, Plane]] = []

    def result(self) -> dict[str, Any]:
        """As the pipeline returns it."""
        how, size = self.how, (self.picture.height, self.picture.width)
        found = drive(generate(how, size, self._longest()), self._answer)
        masks = [self._mask(one, size) for one in found]
        made: dict[str, Any] = {
            "masks": [as_output(BOOL, list(size), mask) for mask in masks],
            "scores": [one.score for one in found],
        }
        if how.rle:
            made["rle_mask"] = [
                {"size": list(size), "counts": run_lengths(mask, *size)} for mask in masks
            ]
        if how.boxes:
            made["bounding_boxes"] = [[int(x) for x in one.box] for one in found]
        return made

    def _longest(self) -> int:
        """Size of the model's pictures, as the processor's `size` has it."""
        size = self.pipe.processor.description.size
        return max(size) if size else max(self.picture.height, self.picture.width)

    def _answer(self, request: Request) -> Any:
        pipe = self.pipe
        if isinstance(request, Encode):
            self.seen = _Seen(pipe, _cropped(self.picture, request.crop))
            return None
        assert self.seen is not None
        if isinstance(request, Decode):
            made = pipe.decode(self.seen, request.prompts, True)
            self.logits = made["pred_masks"]
            return list(made["iou_scores"].numbers)
        assert self.logits is not None
        if isinstance(request, Measure):
            how = self.how
            found = pipe.enlarged(self.seen, self.logits, request.masks, how.threshold, how.offset)
            return [measured for _, measured in found]
        assert isinstance(request, Keep)
        height, width = self.logits.shape[-2:]
        area = height * width
        for i in request.masks:
            part = self.logits.numbers[i * area : (i + 1) * area]
            data = bytes(pack(FLOAT, part))
            self.kept.append((self.seen, Plane(Array((1, height, width), "float32", data))))
        return None

    def _mask(self, one: Found, size: tuple[int, int]) -> bytes:
        """A mask at the size of the picture."""
        seen, logits = self.kept[one.number]
        ((mask, _),) = self.pipe.enlarged(seen, logits, [0], self.how.threshold)
        crop = one.crop
        if seen.size == size:
            return mask
        wide = seen.size[1]
        before, after = bytes(crop.left), bytes(size[1] - crop.right)
        lines = [bytes(size[1])] * crop.top
        lines += [before + mask[y * wide : (y + 1) * wide] + after for y in range(seen.size[0])]
        lines += [bytes(size[1])] * (size[0] - crop.bottom)
        return b"".join(lines)


def _cropped(picture: Picture, crop: Crop) -> Picture:
    """A part of a picture."""
    height, width = crop.bottom - crop.top, crop.right - crop.left
    if (height, width) == (picture.height, picture.width):
        return picture
    starts = [3 * (y * picture.width + crop.left) for y in range(crop.top, crop.bottom)]
    pixels = b"".join(picture.pixels[at : at + 3 * width] for at in starts)
    return Picture(pixels, height, width)
