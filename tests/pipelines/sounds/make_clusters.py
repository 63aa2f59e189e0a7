"""Writes tests/conformance/audio/clusters.json: partitions of scipy's centroid linkage.

    python tests/pipelines/sounds/make_clusters.py

Made with scipy 1.17 and NumPy 2.4.
"""

import json
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

FILE = Path(__file__).parents[2] / "conformance" / "audio" / "clusters.json"


def main() -> None:
    cases = []
    for seed, (count, groups, spread) in enumerate([(12, 3, 0.2), (25, 4, 0.5), (40, 2, 1.5)]):
        rng = np.random.default_rng(seed)
        centers = rng.standard_normal((groups, 5))
        made = centers[rng.integers(groups, size=count)]
        vectors = made + spread * rng.standard_normal((count, 5))
        vectors = np.round(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 5)
        tree = linkage(vectors, "centroid")
        flat = {str(t): fcluster(tree, t, "distance").tolist() for t in (0.2, 0.7, 1.1)}
        cases.append({
            "vectors": vectors.tolist(), "merges": np.round(tree, 9).tolist(), "flat": flat,
        })  # fmt: skip
    FILE.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
