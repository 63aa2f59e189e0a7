"""Writes tests/conformance/ocr.json: the boxes that RapidOCR (with OpenCV, pyclipper and shapely)
finds in maps of a detector, and sizes of its pictures. Run where rapidocr-onnxruntime 1.4.4 is:

    python -m tests.processors.make_ocr
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "conformance" / "ocr.json"
SIZES = [(500, 900), (736, 736), (20, 400), (31, 31), (120, 90), (60, 481), (1, 1), (2100, 1300)]
MAPS = [3, 4, 5, 6]


def text_map(seed: int) -> np.ndarray:
    """A map [96, 128] with slanted bars of several strengths, and dots."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:96, 0:128]
    made = np.zeros((96, 128))
    for i in range(6):
        at_x, at_y = rng.uniform(15, 113), 12 + 14 * i
        angle = rng.uniform(-0.12, 0.12) if i % 2 else 0.0
        along = (x - at_x) * np.cos(angle) + (y - at_y) * np.sin(angle)
        across = (y - at_y) * np.cos(angle) - (x - at_x) * np.sin(angle)
        inside = (np.abs(along) < rng.uniform(8, 40)) & (np.abs(across) < rng.uniform(1.2, 4.5))
        made[inside] = rng.uniform(0.35, 1)
    made[rng.integers(0, 96, 5), rng.integers(0, 128, 5)] = 0.9
    return made.round(3).astype(np.float32)


def main() -> None:
    from rapidocr_onnxruntime import RapidOCR
    from rapidocr_onnxruntime.ch_ppocr_det.utils import DetPreProcess

    whole = RapidOCR()
    detector, cases = whole.text_det, []
    for seed in MAPS:
        for ratio, least, size in ((1.6, 0.5, (300, 512)), (2.0, 0.3, (96, 128))):
            detector.postprocess_op.unclip_ratio = ratio
            detector.postprocess_op.box_thresh = least
            boxes, _ = detector.postprocess_op(text_map(seed)[None, None], size)
            boxes = detector.filter_tag_det_res(boxes, size)
            found = [np.asarray(b).tolist() for b in whole.sorted_boxes(boxes)]
            cases.append(
                {"map": seed, "ratio": ratio, "least": least, "size": size, "boxes": found}
            )
    sizes = []
    for height, width in SIZES:
        padded, record = whole.maybe_add_letterbox(np.zeros((height, width, 3), np.uint8), {})
        made = DetPreProcess(736, "min").resize(padded)
        sizes.append([[height, width], record["padding_1"]["top"], list(made.shape[:2])])
    about = {"rapidocr-onnxruntime": "1.4.4"}
    FILE.write_text(json.dumps({"about": about, "cases": cases, "sizes": sizes}) + "\n")


if __name__ == "__main__":
    main()
