"""Loading of pipelines in pages, and the errors that scripts return."""

LOAD = (
    "const p = await ew.pipeline('text-generation', arg.model, arg.options ?? {}); const i ="
    " p.info; await p.dispose(); return {info: i};"
)
COMPILED = {"model": "/demo/model/", "options": {"dtype": "q4", "cache": False}}


def load(visit, model, **options):
    return visit.run(LOAD, {"model": model, "options": options})


def error(got, name, *words):
    assert "error" in got, got
    e = got["error"]
    assert e["name"] == name and e["ours"] and e["own"], e
    for word in words:
        assert word in e["message"], (word, e["message"])
    return e
