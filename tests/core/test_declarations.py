"""Kernels access their operands as their contracts declare (tests/core/check_contracts.c)."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".build" / "sanitize" / "check_contracts"
RUNS, FEW = 10_000, 2500
# Kernels of which random parameters and data do not reach all operands in so many runs: most have
# operands that only some combinations of parameters use. The two runs with other previous contents
# are compared for them, too.
PARTLY = {
    "attention",
    "batch_norm_grad",
    "cross_entropy_grad",
    "expert_gemm",
    "expert_nbits",
    "expert_outer",
    "grid_sample",
    "integer_binary",
    "integer_depthwise",
    "integer_product",
    "matmul_nbits",
    "optimizer",
    "recurrent",
    "recurrent_bytes",
    "recurrent_grad",
}
# Operands of which data determine which elements are accessed, or windows that rarely end at the
# last one.
FAR = {
    "byte_lookup.table",
    "gather_quantized.scales",
    "gather_quantized.x",
    "nms.boxes",
    "pool.x",
    "pool_grad.x",
    "roi_pool.region",
    "roi_pool.x",
    "scatter_elements.y",
    "scatter_nd.y",
}


def check(*options):
    """(exit status, text) of check_contracts."""
    if not PROGRAM.exists():
        pytest.skip("not built: make sanitize")
    done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def unused(runs, seed):
    status, text = check("--runs", str(runs), "--seed", str(seed))
    assert status == 0, text
    found = set(re.findall(r"^(?:unused|too long|never ran): (\w+(?:\.\w+)?)$", text, re.M))
    return {name for name in found if name.partition(".")[0] not in PARTLY} - FAR


def test_declared_accesses():
    """No result depends on previous contents that a kernel does not declare to read, no access is
    outside of the declared reach, and few declared operands are left that no run used, up to their
    last elements.
    """
    assert len(unused(FEW, 1)) < 20


@pytest.mark.slow("test_declared_accesses")
def test_declared_operands_are_used():
    """In more runs, the same of every declared operand."""
    missing = unused(RUNS, 1)
    for seed in (2, 3):  # a change of the table changes which parameters a seed draws
        missing = missing and missing & unused(RUNS, seed)
    assert not missing


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("softmax.x=write", r"depends on previous contents .*\(softmax\.y\)"),
        ("softmax.x=scratch", r"depends on previous contents .*\(softmax\.y\)"),
        ("softmax.y=read", r"only read was written \(softmax\.y\)"),
        ("gemm.scratch=read", r"only read was written \(gemm\.scratch\)"),
        ("conv.x=shorter", "heap-buffer-overflow"),
        ("gemm.y=shorter", "heap-buffer-overflow"),
        ("softmax.y=longer", r"too long: softmax\.y"),
        ("gemm.a=longer", r"too long: gemm\.a"),
        ("binary.b=longer", r"too long: binary\.b"),
    ],
)
def test_wrong_declarations_are_found(wrong, message):
    """The same kernels against contracts that are wrong on purpose."""
    kernel = wrong.split(".")[0]
    seed = "2" if kernel == "gemm" else "1"  # whose few runs reach the last elements of gemm's a
    right = check("--kernel", kernel, "--runs", "200", "--seed", seed)
    assert right[0] == 0 and not re.search(message, right[1]), right[1]
    _, text = check("--kernel", kernel, "--suppose", wrong, "--runs", "200", "--seed", seed)
    assert re.search(message, text), text
