"""image-segmentation and background-removal. Mirrors transformers' pipeline of the first name, and
transformers.js' of the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import FLOAT, INT32, INT64, pack
from ....logic.images.geometry import Layout, Split, layout, split_of
from ....logic.post.classification import label_of
from ....logic.post.segmentation import (
    Segment,
    choose_instances,
    choose_queries,
    instance,
    instance_score,
    segments,
)
from ....logic.tasks.masks import mask_taps
from ....logic.tasks.pictures import (
    Segmenting,
    check_one_plane,
    in_windows,
    masks_of,
    part_shown,
    segmenting,
    size_compared,
    wrong_shape,
)
from ...media.pictures import Picture, to_pillow
from .base import ImagePipeline, Plane
from .image_graphs import GROUP
from .weights import matrix

__all__ = ["BackgroundRemovalPipeline", "ImageSegmentationPipeline"]

Size = tuple[int, int]


class ImageSegmentationPipeline(ImagePipeline):
    """Finds the parts of pictures: of each class (SegFormer, BEiT, DPT, MobileViT), or of each
    object (DETR, MaskFormer, Mask2Former).

    Options:
        subtask: "semantic", "instance" or "panoptic". Default: "panoptic" for models with queries,
            else "semantic".
        threshold: scores of queries above it are kept. Default: 0.9.
        mask_threshold: a mask has the pixels with at least this probability. Default: 0.5.
        overlap_mask_area_threshold: a query whose mask is covered by others to a greater part is
            left out. Default: 0.5.
        label_ids_to_fuse: classes whose segments become one, for "panoptic". Default: none.

    Instances of MaskFormer, Mask2Former and EoMT are painted one over the other, as transformers
    does: their scores are those of class and mask together, with `threshold` alone. With a
    processor that splits pictures (`do_split_image`) the model sees windows of them, and there are
    classes alone.

    Returns:
        [{"score", "label", "mask"}] for each picture; the mask is a PIL.Image of mode L with 255 in
        the segment (without Pillow an array of uint8), the score of classes None
    """

    task = "image-segmentation"
    CALL = {
        "subtask": None,
        "threshold": 0.9,
        "mask_threshold": 0.5,
        "overlap_mask_area_threshold": 0.5,
        "label_ids_to_fuse": None,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        segmenting(options)

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        picture, how = self.picture(given), segmenting(options)
        size = (picture.height, picture.width)
        outputs = list(self.session(self.STEM).outputs)
        split = split_of(self.processor.description.steps, *size)
        if split is not None:
            return self._split(picture, in_windows(how), outputs, split)
        made_of = masks_of(how, outputs, self.task, self.config)
        if not made_of.masks:
            (values,) = self.forward(picture, made_of.logits)
            return self._classes([self.planes(values, picture)], size)
        values, drawn = self.forward(picture, made_of.logits, made_of.masks)
        logits, masks = Plane(values), self.planes(drawn, picture)
        done = layout(self.processor.description.steps, *size)
        if made_of.form == "planes":
            return self._classes([self._planes(logits, masks, done)], size)
        enlarged = made_of.form.startswith("enlarged")
        if made_of.form.endswith("instances"):
            masks = masks if enlarged else self._scaled(masks, done)
            return self._instances(logits, masks, size, how, done if enlarged else None)
        return self._segments(logits, masks, size, how, done, enlarged)

    def _split(
        self, picture: Picture, how: Segmenting, outputs: Sequence[str], split: Split
    ) -> list[dict[str, Any]]:
        """The result for a picture that the model sees in windows."""
        size = (picture.height, picture.width)
        made_of = masks_of(how, outputs, self.task, self.config)
        steps, names = self.processor.description.steps, [made_of.logits, made_of.masks]
        planes = []
        for box in split.boxes:
            values, *drawn = self.forward(picture, *filter(None, names), box=box)
            done = layout(steps, *size, box)
            logits = Plane(values)
            planes.append(self._planes(logits, Plane(drawn[0]), done) if drawn else logits)
        return self._classes(planes, size, split)

    def _planes(self, logits: Plane, masks: Plane, done: Layout) -> Plane:
        """Planes of classes from queries with masks."""
        feeds = {"logits": logits.array(), "masks": self._scaled(masks, done).array()}
        return Plane(self.graphs.run("class_planes", feeds)[0])

    def _scaled(self, masks: Plane, done: Layout) -> Plane:
        """The masks that are compared."""
        size = size_compared(self.config, (done.height, done.width))
        if size is None or tuple(masks.shape[2:]) == size:
            return masks
        feeds = {"x": masks.array(), "size": list(size)}
        return Plane(self.graphs.run("enlarge", feeds)[0])

    def _classes(
        self, parts: Sequence[Plane], size: Size, split: Split | None = None
    ) -> list[dict[str, Any]]:
        """The result for planes of classes: of the picture, or of each of its windows."""
        shape = parts[0].shape
        if len(shape) != 4:
            raise wrong_shape(shape, self.task)
        _, classes, height, width = shape
        pixels, area = size[0] * size[1], height * width
        best: Any = Array((1, *size), "float32", pack(FLOAT, [float("-inf")]) * pixels)
        labels: Any = Array((1, *size), "int64", bytes(8 * pixels))
        for first in range(0, classes, GROUP):
            count = min(GROUP, classes - first)
            planes = []
            for one in parts:
                part = one.numbers[first * area : (first + count) * area]
                data = part.tobytes() if isinstance(part, memoryview) else pack(FLOAT, part)
                planes.append(Array((1, count, height, width), "float32", data))
            feeds = {
                "x": planes[0] if split is None else self._joined(planes, split),
                "size": list(size),
                "first": Array((1,), "int64", pack(INT64, [first])),
                "best": best,
                "map": labels,
            }
            best, labels = self.graphs.run("strongest", feeds)
        owners = memoryview(as_input(labels, "map")[2]).cast("B").cast("q").tolist()
        names, found = self.labels, sorted(set(owners))
        return [
            {"score": None, "label": label_of(names, label), "mask": mask}
            for label, mask in zip(found, _masks(owners, found, size))
        ]

    def _joined(self, planes: Sequence[Array], split: Split) -> Any:
        """Planes of a picture from those of its windows: the mean where they overlap."""
        height, width = split.height, split.width
        count = planes[0].shape[1]
        total: Any = Array((1, count, height, width), "float32", bytes(4 * count * height * width))
        for plane, (left, top, wide, high) in zip(planes, split.boxes):
            ends = [height - int(top) - int(high), width - int(left) - int(wide)]
            pads = [0, 0, int(top), int(left), 0, 0, *ends]
            (total,) = self.graphs.run("window", {"x": plane, "pads": pads, "total": total})
        counts = (
            [n for n in split.counts for _ in range(width)]
            if height > width
            else split.counts * height
        )
        divisors = Array((1, 1, height, width), "float32", pack(FLOAT, counts))
        return self.graphs.run("mean", {"x": total, "counts": divisors})[0]

    def _segments(
        self, logits: Plane, masks: Plane, size: Size, how: Segmenting, done: Layout, enlarged: bool
    ) -> list[dict[str, Any]]:
        """The result for queries with masks."""
        classes = logits.shape[-1]
        queries, scores, labels = choose_queries(logits.numbers, classes, how.threshold)
        if not queries:
            return []
        masks = masks if enlarged else self._scaled(masks, done)
        height, width = masks.shape[-2:]
        area = height * width
        kept = [x for q in queries for x in masks.numbers[q * area : (q + 1) * area]]
        count = len(queries)
        feeds = {
            "x": Array((1, count, height, width), "float32", pack(FLOAT, kept)),
            "size": list(size),
            "scores": Array((1, count, 1, 1), "float32", pack(FLOAT, scores)),
            "threshold": Array((1,), "float32", pack(FLOAT, [how.mask_threshold])),
        }
        if enlarged:
            owners_map, strongest, areas = self._enlarged(feeds, (height, width), size, done)
        else:
            owners_map, areas = self.graphs.run("owners", feeds)
            strongest = owners_map
        owners, all_owners = (
            memoryview(as_input(x, "map")[2]).cast("B").cast("i").tolist()
            for x in (owners_map, strongest)
        )
        shown, counts = Counter(owners), Counter(all_owners)
        numbers, found = segments(
            scores,
            labels,
            [counts[k] if shown[k] else 0 for k in range(count)],
            [int(a) for a in Plane(areas).numbers],
            how.overlap,
            how.fused,
        )
        return self._named(found, [numbers[k] if k >= 0 else 0 for k in owners], size)

    def _named(
        self, found: Sequence[Segment], ids: Sequence[int], size: Size
    ) -> list[dict[str, Any]]:
        """The result for segments. ids: of the segment of each pixel."""
        names = self.labels
        return [
            {"score": s["score"], "label": label_of(names, s["label_id"]), "mask": mask}
            for s, mask in zip(found, _masks(ids, [s["id"] for s in found], size))
        ]

    def _instances(
        self, logits: Plane, masks: Plane, size: Size, how: Segmenting, done: Layout | None
    ) -> list[dict[str, Any]]:
        """The result for queries with masks, of which later ones are painted over earlier ones.

        Args:
            logits, masks: of the queries.
            size: of the picture.
            how: they are found.
            done: to the picture, where masks are enlarged before they are measured.
        """
        height, width = masks.shape[-2:]
        area, classes = height * width, logits.shape[-1]
        given: dict[str, Any] = {"size": list(size)}
        if done is not None:
            rows, columns = self._taps((height, width), size, done)
            given = {
                "rows": matrix(rows, height, size[0]),
                "columns": matrix(columns, width, size[1], True),
            }
        found: list[Segment] = []
        owners: Any = Array((1, 1, *size), "int32", bytes(4 * size[0] * size[1]))
        for query, of_class, label in zip(
            *choose_instances(logits.numbers, classes, done is not None, how.threshold)
        ):
            numbers = masks.numbers[query * area : (query + 1) * area]
            feeds = {
                **given,
                "x" if done is None else "plane": Array(
                    (1, 1, height, width), "float32", pack(FLOAT, numbers)
                ),
                "number": Array((), "int32", pack(INT32, [len(found) + 1])),
                "map": owners,
            }
            graph = "instance" if done is None else "enlarged_instance"
            *measured, painted = self.graphs.run(graph, feeds)
            inside, pixels, shown = (float(Plane(x).numbers[0]) for x in measured)
            score = instance_score(of_class, inside, pixels)
            if shown and score >= how.threshold:
                owners = painted
                found.append(instance(len(found) + 1, label, score))
        named = memoryview(as_input(owners, "map")[2]).cast("B").cast("i").tolist()
        return self._named(found, named, size)

    def _taps(self, small: Size, size: Size, done: Layout) -> tuple[Any, Any]:
        """Rows and columns of the picture by those of masks, by way of what the model takes, of
        which a part shows the picture.
        """
        shown = part_shown(done, size)
        return (
            mask_taps(small[0], done.height, shown[0], size[0]),
            mask_taps(small[1], done.width, shown[1], size[1]),
        )

    def _enlarged(self, feeds: dict[str, Any], small: Size, size: Size, done: Layout) -> list[Any]:
        """Owners of pixels, of masks that are enlarged first: to what the model takes, of which the
        part that shows the picture is enlarged to the picture.
        """
        rows, columns = self._taps(small, size, done)
        x, scores = feeds["x"], feeds["scores"]
        given = {
            "x": Array(tuple(x.shape[1:]), "float32", x.data),
            "scores": Array(tuple(scores.shape[1:]), "float32", scores.data),
            "threshold": feeds["threshold"],
            "rows": matrix(rows, small[0], size[0]),
            "columns": matrix(columns, small[1], size[1], True),
        }
        return self.graphs.run("enlarged_owners", given)


def _masks(owners: Sequence[int], values: Sequence[int], size: Size) -> list[Any]:
    """For each value a mask of the pixels that have it."""
    index = {value: i for i, value in enumerate(values)}
    if len(values) > 255:
        return [
            to_pillow(Picture(bytes(255 * (o == value) for o in owners), *size, 1))
            for value in values
        ]
    small = bytes(map(index.get, owners, [255] * len(owners)))
    masks = []
    for i in range(len(values)):
        table = bytes(255 * (k == i) for k in range(256))
        masks.append(to_pillow(Picture(small.translate(table), *size, 1)))
    return masks


class BackgroundRemovalPipeline(ImagePipeline):
    """Makes the background of pictures transparent: MODNet, RMBG, BiRefNet, U2Net, ISNet, with one
    output plane of logits or probabilities.

    Returns:
        a PIL.Image of mode RGBA for each picture, without Pillow an array of uint8
        [height, width, 4]
    """

    task = "background-removal"

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        picture = self.picture(given)
        output = next(iter(self.session(self.STEM).outputs))
        plane = self.planes(self.forward(picture, output)[0], picture)
        check_one_plane(plane.shape, self.task)
        size = (picture.height, picture.width)
        feeds = {"x": plane.array(1, 1, *plane.shape[-2:]), "size": list(size)}
        alpha = bytes(as_input(self.graphs.run("foreground", feeds)[0], "mask")[2])
        pixels = bytearray(4 * len(alpha))
        for c in range(3):
            pixels[c::4] = picture.pixels[c::3]
        pixels[3::4] = alpha
        return to_pillow(Picture(bytes(pixels), *size, 4))
