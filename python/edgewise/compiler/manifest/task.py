"""Checks of the programs of a task: the graphs of a pipeline, and what is known of its inputs."""

from __future__ import annotations

from ..manifest_limits import LIMITS
from .checker import Checker, JsonObject
from .files import Contents
from .inference import check_inference
from .processor import check_processor
from .seq2seq import check_seq2seq


def check_programs(c: Checker, manifest: JsonObject, contents: Contents) -> None:
    """Checks `programs` and `processor`, the parts of a package for a pipeline other than
    "text-generation", and `encoder` and `decoder` where it has them.
    """
    programs = c.read_object(manifest.get("programs"), "programs")
    if "decoder" in manifest:
        check_seq2seq(c, manifest, contents)
    elif not programs:
        c.fail("programs", "has 0 entries")
    if not 0 <= len(programs) <= LIMITS["MAX_PROGRAMS"]:
        c.fail("programs", f"has {len(programs)} entries")
    for name, program in programs.items():
        c.read_text(name, "the name of a program")
        at = f"programs['{name}']"
        check_inference(c, program, contents, at)
        if not program["outputs"]:
            c.fail(f"{at}.outputs", "has 0 entries")
    if manifest.get("processor") is not None:
        check_processor(c, manifest["processor"])
