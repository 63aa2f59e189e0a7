"""The files of the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository by their names; without git, those that are there."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        skip = {"node_modules", "dist", ".build", ".git"}
        found = [p for pattern in patterns for p in ROOT.rglob(pattern)]
        return [p for p in found if not skip & set(p.relative_to(ROOT).parts)]
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).exists()]
