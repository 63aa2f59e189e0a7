"""The memory that is free for training: of the system, and of the control groups of a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SHARE = 0.75  # of the memory that is free, for training

# Of control groups, version 2 and 1: the folder, the files of the limit and of the bytes in use,
# and the field of memory.stat with the cached bytes of files that the system can take back.
GROUPS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def free_memory(root: str = "/") -> float:
    """Bytes that training may take where no limit was given: a share of the memory that Linux can
    give without swapping, within the limits of the process's control groups. Other systems do not
    tell it this way: there is no limit.

    Args:
        root: the folder with proc and sys.
    """
    at = Path(root)
    found = [_fields(at / "proc/meminfo").get("MemAvailable", float("inf")) * 1024]
    found += _in_groups(at)
    return SHARE * max(0.0, min(found))


def _in_groups(root: Path) -> Iterator[float]:
    """The bytes that each control group of the process leaves."""
    for folder, limit, used, cached in GROUPS:
        for group in _groups(root, folder.endswith("memory")):
            at = root / folder / group
            most, now = _number(at / limit), _number(at / used)
            if most is not None and now is not None:
                yield most - now + _fields(at / "memory.stat").get(cached, 0)


def _groups(root: Path, is_first: bool) -> list[str]:
    """The paths of the process's control group and of those around it, relative to the folder of
    all. In a container they may not exist there: then the folder itself is the group.

    Args:
        is_first: whether they are of version 1.
    """
    paths = {""}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if ("memory" in controllers.split(",")) if is_first else not controllers:
            own = PurePosixPath(path.lstrip("/"))
            paths |= {str(p) for p in (own, *own.parents)} - {"."}
    return sorted(p for p in paths if ".." not in p)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):
        return []


def _number(path: Path) -> float | None:
    """The number in a file; None: there is none, such as "max"."""
    text = "".join(_lines(path))
    return float(text) if text.isdecimal() else None


def _fields(path: Path) -> dict[str, float]:
    """The numbers of lines such as "MemAvailable: 1 kB"."""
    parts = [line.replace(":", " ").split() for line in _lines(path)]
    return {p[0]: float(p[1]) for p in parts if len(p) > 1 and p[1].isdecimal()}
