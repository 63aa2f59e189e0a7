"""build.py [PLATFORM ...]   Builds the sdist and, from its contents, the wheels that need no
machine of their platform: dist/wheels/.

zig compiles the C core for each platform (its package contains the headers and libraries of all of
them), and scikit-build-core makes the wheel, as it does for `pip install`. `make wheels` runs this
in an environment with both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".build/wheels"


@dataclass(frozen=True)
class Platform:
    """A platform that wheels are built for.

    Attributes:
        tag: platform tag of the wheel.
        system, processor: as CMake calls them.
        target: as zig calls it, with the oldest version of the system that the wheel runs on.
    """

    tag: str
    system: str
    processor: str
    target: str


PLATFORMS = [
    Platform("manylinux_2_17_x86_64", "Linux", "x86_64", "x86_64-linux-gnu.2.17"),
    Platform("manylinux_2_17_aarch64", "Linux", "aarch64", "aarch64-linux-gnu.2.17"),
    Platform("macosx_11_0_x86_64", "Darwin", "x86_64", "x86_64-macos.11.0"),
    Platform("macosx_11_0_arm64", "Darwin", "arm64", "aarch64-macos.11.0"),
    Platform("win_amd64", "Windows", "AMD64", "x86_64-windows-gnu"),
]

# Runs in the unpacked sdist: one build backend per process, since it reads the working directory.
BACKEND = """
import json, sys
from scikit_build_core import build
print(getattr(build, "build_" + sys.argv[1])(sys.argv[2], json.loads(sys.argv[3])))
"""


def run_backend(kind: str, folder: Path, settings: str, cwd: Path, **environment: str) -> Path:
    """Calls the build backend's `build_sdist` or `build_wheel`; returns the file."""
    done = subprocess.run(
        [sys.executable, "-c", BACKEND, kind, folder, settings],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{kind} of {cwd} with {settings} failed:\n{done.stdout}")
    return folder / done.stdout.strip().splitlines()[-1]


def build_sdist(folder: Path) -> Path:
    """The sdist of this checkout."""
    return run_backend("sdist", folder, "{}", ROOT)


def build_wheel(source: Path, platform: Platform, folder: Path, zig: str) -> Path:
    """The wheel of an unpacked sdist for a platform."""
    settings = {
        "wheel.tags": f"py3-none-{platform.tag}",
        "build-dir": str(WORK / platform.tag),
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(ROOT / "python/wheels/zig.cmake"),
        "cmake.define.EDGEWISE_SYSTEM": platform.system,
        "cmake.define.EDGEWISE_PROCESSOR": platform.processor,
        "cmake.define.EDGEWISE_TARGET": platform.target,
    }
    return run_backend(
        "wheel",
        folder,
        json.dumps(settings),
        source,
        EDGEWISE_ZIG=zig,
        ZIG_GLOBAL_CACHE_DIR=str(WORK / "zig-cache"),
    )


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help="platform tags")
    wanted = parser.parse_args().platforms
    unknown = set(wanted) - {p.tag for p in PLATFORMS}
    if unknown:
        sys.exit(f"{', '.join(unknown)}: the platforms are {', '.join(p.tag for p in PLATFORMS)}")

    import ziglang  # brings the program along

    zig = str(Path(ziglang.__file__).with_name("zig"))
    folder = ROOT / "dist/wheels"
    if not wanted:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist(folder)
    source = WORK / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(WORK, filter="data")
    print(sdist)
    for platform in PLATFORMS:
        if not wanted or platform.tag in wanted:
            print(build_wheel(source, platform, folder, zig), flush=True)


if __name__ == "__main__":
    main()
