"""The table of all kernels: ids, the hash that plans and engines agree on, and variants."""

from __future__ import annotations

import binascii
from dataclasses import dataclass

from ..declare.kernel import ENUMS, KERNELS, Kernel


def canonical_text() -> str:
    """All declarations as one text, the same on every machine: what a plan and an engine must agree
    on.
    """
    lines = [f"enum {e.name} {' '.join(e.items)}" for _, e in sorted(ENUMS.items())]
    for _, k in sorted(KERNELS.items()):
        lines.append(f"kernel {k.name} " + " ".join(f"{t}:{n}" for n, t in k.params.items()))
        lines += [
            f"  {o.access} {o.name} {o.size} [{o.lo}, {o.hi})"
            f" {'optional ' if o.optional else ''}{' '.join(o.inplace)}"
            for o in k.operands
        ]
        lines += [f"  require {r}" for r in k.require] + [f"  empty {' '.join(k.empty)}"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class KernelTable:
    """All kernels in the order of their ids, and the hash of their contracts."""

    kernels: tuple[Kernel, ...]  # in the order of their ids
    hash: int  # stands in every plan's header and in the engine


_table: KernelTable | None = None


def variants() -> list[tuple[Kernel, str, str]]:
    """[(kernel, parameter, name)] of all kernels, in the order in which the engine lists them."""
    return [
        (k, parameter, name)
        for k in kernel_table().kernels
        for parameter, name in k.c.variants.items()
    ]


def variant_names() -> list[str]:
    """Names of all variants, sorted."""
    return sorted({name for _, _, name in variants()})


def word_of(kernel: Kernel, parameter: str) -> int:
    """Offset of a parameter in its struct, in words of 4 bytes."""
    at = 0
    for name, kind in kernel.params.items():
        if name == parameter:
            return at
        at += int(kind[4:-1]) if "[" in kind else 1
    raise KeyError(parameter)


def kernel_table() -> KernelTable:
    """All kernels of the package with their ids (alphabetical) and the table's hash, from the
    declarations alone.
    """
    global _table
    if _table is None:
        kernels = tuple(k for _, k in sorted(KERNELS.items()))
        for i, k in enumerate(kernels):
            k.id = i
        _table = KernelTable(kernels, binascii.crc32(canonical_text().encode()))
    return _table
