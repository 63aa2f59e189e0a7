"""The choice of shaders and the search for the highest logits on a GPU, on both forms.
tests/gpu/test_programs.py compares whole programs, tests/gpu/test_choice_on_gpu.py the tokens.
"""

import pytest
from edgewise.compiler.gpu.gen.shaders import COMMON, SUBGROUPS
from edgewise.logic.generation.shortlist import HIGHEST
from edgewise.logic.gpu.variants import Place

from .forms import both, module

WGSL = """
var<private> subgroup: u32;
const EIGHT = 8u;
struct Pair { a: u32, b: u32 }
fn run(row: u32, lane: u32) {
  let sum = sum_of_lanes(lane, f32(row));
  var i = lane; while (i < GROUP) { i += GROUP; }
}
fn element(i: u32) -> u32 { return i; }
"""


@both
def test_declarations_of_a_text(form):
    parts = module(form, "gpu.variants").parts_of(WGSL)
    assert list(parts) == ["subgroup", "EIGHT", "Pair", "run", "element"]
    assert parts["EIGHT"] == "const EIGHT = 8u;" and parts["run"].count("\n") == 3
    assert "\n".join(parts.values()) == WGSL.strip()
    assert module(form, "gpu.variants").parts_of("") == {}


@both
def test_a_shader_without_barriers(form):
    made = module(form, "gpu.variants").alone("a(x_of_lanes(lane, y), z_of_lanes(lane,GROUP))")
    assert made == "a((y), (1u))\nfn element(i: u32) { run(i, 0u); }"


@both
def test_workgroups_in_two_dimensions(form):
    folded = module(form, "gpu.variants").folded
    for count in (0, 1, 65535, 65536, 1 << 20, 10**9 + 7):
        across, down = folded(count)
        assert 0 <= across * down - count < max(across, 1)
        assert max(across, down) <= 65535  # maxComputeWorkgroupsPerDimension


@both
def test_functions_that_names_stand_for(form):
    applied = module(form, "gpu.variants").applied
    rules = [("op", "{kind}_of_{type}"), ("other", "plain"), ("last", "{type}")]
    found = applied(rules, {"kind": "sum", "type": "f"}.get)
    assert found == {"op": "sum_of_f", "other": "plain", "last": "f"}


@both
def test_shaders_that_fit_a_step(form):
    variants = module(form, "gpu.variants")
    assert variants.is_fixed("a[0] + b[i] + my_c[i] + c_[i]", ["a", "c"])
    assert not variants.is_fixed("a[i]", ["a"]) and not variants.is_fixed("f(c[ 0])", ["c"])
    body = "x_word(1) + y(2)"
    assert variants.is_aligned(body, [Place("x", 4, 8), Place("y", 1, 1)])
    assert not variants.is_aligned(body, [Place("x", 2, 0)])
    assert not variants.is_aligned(body, [Place("x", 0, 2)])
    assert variants.staged(["a", "b", "c"], []) == [0]
    assert variants.staged(["a", "pre", "c"], ["pre"]) == [1, 0]
    assert variants.staged(["pre"], ["pre"]) == [] and variants.staged([], []) == []


@both
def test_how_much_a_gpu_is_given(form):
    variants = module(form, "gpu.variants")
    most = variants.most_of(False)
    assert variants.most_of(True) < most
    each = 1 << 28
    assert variants.excess([each, each], [1, 4], 1, False) == ""
    assert variants.excess([most // 2, most // 2 + 1], [1 << 20] * 2, 1, False).startswith(
        f"{most + 1} operations: at most {most}"
    )
    found = variants.excess([1, 2 * each + 2], [1, 2], 1, False)
    assert found.startswith(f"{each + 1} operations of")
    assert variants.excess([each + 1], [0], 0, False) != ""
    # one step is divided where its workgroups are small
    assert variants.excess([4 * most], [1 << 30], 1 << 20, False) == ""
    assert variants.excess([4 * most], [1 << 30], 100, False) != ""


@both
def test_the_pace_of_a_gpu(form):
    pace = module(form, "gpu.pace").Pace(False)
    first = pace.bound
    assert not pace.waits(10 * first)  # nothing runs
    assert pace.together([first // 2] * 5, 1, 5) == 3
    assert pace.together([3 * first, 1], 0, 2) == 1
    for ms, factor in ((10, 2), (50, 2), (150, 1), (150, 0.5), (50, 0.5)):
        pace.give(pace.bound, 1000)
        assert pace.waits(1)
        pace.done(1000 + ms, ms)
        assert (pace.bound, pace.given) == (factor * first, 0)
    pace.give(pace.bound // 4, 0)
    pace.done(1, 1)  # too little to tell
    assert pace.bound == first // 2
    for ms, bound in ((1, 1 << 40), (1000, first // 16)):
        for _ in range(20):
            pace.give(pace.bound, 0)
            pace.done(ms, ms)
        assert pace.bound == bound


@both
def test_a_pause_is_not_the_time_of_a_gpu(form):
    """Neither one between two submits nor one between the last submit and the wait."""
    pace = module(form, "gpu.pace").Pace(False)
    first = pace.bound
    for submits, end in (((0, 5000), 5030), ((0, 1), 10_000)):
        for now in submits:
            pace.give(first // 2, now)
        pace.done(end, 30)
        assert (pace.bound, pace.given) == (first, 0)


@both
def test_what_a_read_did_not_wait_for_is_still_given(form):
    pace = module(form, "gpu.pace").Pace(False)
    pace.give(5, 0)
    earlier = pace.submitted
    pace.give(3, 0)
    later = pace.submitted
    pace.read(earlier)
    assert pace.given == 3
    pace.give(4, 0)  # while the second read waits
    pace.read(later)
    assert pace.given == 4
    pace.read(earlier)  # an answer that comes late
    assert pace.given == 4
    pace.done(10, 10)
    pace.give(6, 0)
    pace.read(later)
    assert pace.given == 6


@both
@pytest.mark.parametrize("work", [0.3, 1, 5])
def test_few_long_workgroups_stay_together(form, work):
    """16 workgroups take as long as one, so pieces of fewer would only add their times; and the
    bound, which plans beside them share, does not fall to the least.
    """
    pace = module(form, "gpu.pace").Pace(False)
    first = pace.bound
    work = int(work * first)
    for _ in range(20):
        start, now, pieces = 0, 0.0, 0
        while start < 16:
            if pace.waits(pace.bound):
                now += 150
                pace.done(now, 150)
            size = pace.piece(16, start, work) if work > pace.bound else 16
            pace.give(work * size // 16, now)
            start, pieces = start + size, pieces + 1
        now += 150
        pace.done(now, 150)
    assert pieces == {0.3: 1, 1: 1, 5: 6}[work / first]
    assert pace.bound >= first // 4
    # where they are more work than is given at first, pieces have fewer
    assert pace.piece(16, 0, 16 * first) == 1
    assert pace.piece(6400, 0, 100 * first) == 64


@both
@pytest.mark.parametrize("count", [1, 7, 65535, 65536, 200_000, 3 * 65535])
@pytest.mark.parametrize("pieces", [0.5, 1, 3, 1.5, 1e9])
def test_pieces_of_a_dispatch(form, count, pieces):
    """Each workgroup runs once: only the last grid may have more, which are beyond the count."""
    gpu_pace, folded = module(form, "gpu.pace"), module(form, "gpu.variants").folded
    pace = gpu_pace.Pace(False)
    start, sizes = 0, []
    while start < count and len(sizes) < 9:
        sizes.append(pace.piece(count, start, int(pieces * pace.bound)))
        across, down = folded(sizes[-1])
        start += sizes[-1]
        assert 0 < sizes[-1] <= max(1, count / pieces)
        assert across * down == sizes[-1] or start == count
    assert start == count or pieces > 9 / 2


@both
def test_programs_with_subgroups(form):
    variants = module(form, "gpu.variants")
    common, forms = variants.parts_of(COMMON), variants.parts_of(SUBGROUPS)
    entry = "fn main(@builtin(local_invocation_index) lane: u32) { run(0u, lane); }"
    program = f"{common['sum_of_lanes']}\n@compute @workgroup_size(64) {entry}"
    made = variants.in_subgroups(program, common, forms)
    assert made.startswith("enable subgroups;\n") and forms["sum_of_lanes"] in made
    assert common["sum_of_lanes"] not in made and "@builtin(subgroup_id)" in made
    assert variants.in_subgroups(entry, common, forms) == entry


@both
@pytest.mark.parametrize("count", [1, 256, 1024, 1025, 4096, 4097, 151_936, 1 << 20])
def test_levels_of_a_search(form, count):
    """Each level reads all that the one before it leaves, and the last one is a workgroup."""
    choice = module(form, "gpu.choice")
    argmax = choice.levels_of_argmax(count)
    assert [x.words for x in argmax] == [count, 2 * argmax[0].groups] and argmax[1].groups == 1
    assert argmax[0].groups == len(range(0, count, 4096))
    top = choice.levels_of_top(count)
    assert top[0].words == count and top[-1].groups == 1
    for level, after in zip(top, top[1:]):
        assert after.words == 2 * HIGHEST * level.groups
    for i, level in enumerate(top):
        numbers = level.words if i == 0 else level.words // 2
        assert level.groups == len(range(0, numbers, 1024))
