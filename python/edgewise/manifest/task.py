"""Checks of the programs of a task: the graphs of a pipeline, and what is known of its inputs."""

from __future__ import annotations

from ..manifest_limits import LIMITS
from .checker import Checker, JsonObject
from .files import Contents
from .inference import check_inference


def check_programs(c: Checker, manifest: JsonObject, contents: Contents) -> None:
    """Checks `programs` and `processor`, the parts of a package for a pipeline other than
    "text-generation". `processor` is only checked to be an object: a pipeline checks its fields
    when it reads them.
    """
    programs = c.read_object(manifest.get("programs"), "programs")
    if not 1 <= len(programs) <= LIMITS["MAX_PROGRAMS"]:
        c.fail("programs", f"has {len(programs)} entries")
    for name, program in programs.items():
        c.read_text(name, "the name of a program")
        check_inference(c, program, contents, f"programs['{name}']")
    if manifest.get("processor") is not None:
        c.read_object(manifest["processor"], "processor")
