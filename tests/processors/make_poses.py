"""Writes tests/conformance/poses.json: what transformers' image processor for ViTPose makes of
pictures and heatmaps. Run with transformers 5.24, SciPy 1.17 and PyTorch 2.13:

    python -m tests.processors.make_poses
"""

import base64
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.vitpose.image_processing_pil_vitpose import VitPoseImageProcessorPil
from transformers.models.vitpose.modeling_vitpose import VitPoseEstimatorOutput

FILE = Path(__file__).parents[1] / "conformance" / "poses.json"
SIZE = {"height": 32, "width": 24}
BOXES = [[10.0, 5.0, 20.0, 30.0], [-6.0, -9.0, 30.5, 20.25], [30.0, 20.0, 60.0, 50.0]]


def picture() -> np.ndarray:
    """A picture of 48 x 64 pixels: waves and an edge."""
    y, x = np.mgrid[0:48, 0:64]
    planes = [127 + 120 * np.sin(x / (3 + c) + y / (5 + c)) for c in range(3)]
    made = np.stack(planes, -1)
    made[20:, 30:] = 255 - made[20:, 30:]
    return made.astype(np.uint8)


def heatmaps(people: int) -> np.ndarray:
    """Hills on noise: [people, 5, 16, 12]; one map has no positive number."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:16, 0:12]
    made = np.zeros((people, 5, 16, 12))
    for p in range(people):
        for k in range(5):
            at_y, at_x = rng.uniform(0, 15), rng.uniform(0, 11)
            hill = np.exp(-((y - at_y) ** 2 + (x - at_x) ** 2) / 6)
            made[p, k] = rng.uniform(0.3, 1) * hill + rng.normal(0, 0.01, (16, 12))
    made[0, 2] = -np.abs(made[0, 2]) - 0.01
    return made.round(4).astype(np.float32)


def main() -> None:
    cases = []
    for factor in (200.0, 150.0):
        plain = {"do_rescale": False, "do_normalize": False, "normalize_factor": factor}
        processor = VitPoseImageProcessorPil(size=SIZE, **plain)
        values = processor(picture(), boxes=[BOXES], return_tensors="pt")["pixel_values"]
        pixels = np.asarray(values).transpose(0, 2, 3, 1).astype(np.uint8)
        coded = [base64.b64encode(p.tobytes()).decode() for p in pixels]
        cases.append({"factor": factor, "pixels": coded})
    poses = []
    for box in BOXES:  # one at a time: maps of several people are not read beyond each other
        maps = heatmaps(1)
        for kernel, threshold in ((11, None), (5, 0.5)):
            (found,) = processor.post_process_pose_estimation(
                VitPoseEstimatorOutput(heatmaps=torch.tensor(maps)),
                boxes=[[box]],
                kernel_size=kernel,
                threshold=threshold,
            )[0]
            result = {n: found[n].tolist() for n in ("keypoints", "scores", "labels")}
            poses.append({"box": box, "kernel": kernel, "threshold": threshold, **result})
    about = {"transformers": transformers.__version__, "torch": torch.__version__}
    flat = [round(float(x), 4) for x in heatmaps(1).flatten()]
    made = {"about": about, "size": SIZE, "boxes": BOXES, "warped": cases, "maps": flat}
    FILE.write_text(json.dumps({**made, "poses": poses}) + "\n")


if __name__ == "__main__":
    main()
