"""What a process of pytest-xdist sends of a test."""

from processes import Places, _only_news


def sent(*reports):
    """The reports that are sent of (when, outcome, titles of what was written)."""
    found = []
    send = _only_news(lambda name, **what: found.append((name, what["data"]["when"])))
    send("logstart", nodeid="x", location=())
    for when, outcome, *titles in reports:
        sections = [(title, "text") for title in titles]
        send("testreport", data={"when": when, "outcome": outcome, "sections": sections})
    send("logfinish", nodeid="x", location=())
    assert {name for name, _ in found} <= {"testreport"}
    return [when for _, when in found]


def test_one_report_of_a_test_that_passed():
    """Whatever failed, was skipped, or was written in a teardown is sent."""
    out = "Captured stdout "
    passed = [("setup", "passed", out + "setup"), ("call", "passed", out + "setup")]
    assert sent(*passed, ("teardown", "passed", out + "setup", out + "call")) == ["call"]
    assert sent(*passed, ("teardown", "failed")) == ["call", "teardown"]
    assert sent(*passed, ("teardown", "passed", out + "teardown")) == ["call", "teardown"]
    for outcome in ("failed", "skipped"):  # an expected failure is a skipped one
        assert sent(("setup", outcome), ("teardown", "passed")) == ["setup"]
        assert sent(passed[0], ("call", outcome), ("teardown", "passed")) == ["call"]


def test_places():
    names = ["b", "a", "c"]
    assert [Places(names).index(name) for name in names] == [0, 1, 2]
    assert Places(names) == names
