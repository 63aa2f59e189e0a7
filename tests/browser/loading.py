"""Loading of pipelines in pages, and the errors that scripts return."""

LOAD = (
    "const p = await ew.pipeline('text-generation', arg.model, arg.options ?? {}); const i ="
    " p.info; await p.dispose(); return {info: i};"
)
# Notes what of the engine and of Python runs on the page's own thread: both are WebAssembly. Unlike
# the length of tasks, this does not depend on the machine.
WATCH = """
    window.blocking = [];
    for (const name of ["compile", "compileStreaming", "instantiate", "instantiateStreaming"]) {
      const real = WebAssembly[name];
      WebAssembly[name] = (...all) => (blocking.push(name), real.apply(WebAssembly, all));
    }
    for (const name of ["Module", "Instance"]) {
      const construct = (real, all) => (blocking.push(name), Reflect.construct(real, all));
      WebAssembly[name] = new Proxy(WebAssembly[name], { construct });
    }
"""
# `files`: those of the demo's model, with the chat template arg.template.
TEMPLATED = """
    const files = [];
    for (const name of ["config.json", "generation_config.json", "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "onnx/model_q4.onnx"]) {
      let data = await (await fetch("/demo/model/" + name)).arrayBuffer();
      if (name === "tokenizer_config.json") {
        const config = JSON.parse(new TextDecoder().decode(data));
        data = JSON.stringify({ ...config, chat_template: arg.template });
      }
      const file = new File([data], name.split("/").at(-1));
      Object.defineProperty(file, "webkitRelativePath", { value: "model/" + name });
      files.push(file);
    }
"""
COMPILED = {"model": "/demo/model/", "options": {"dtype": "q4", "cache": False}}


STALLS = (0.3, 1, 5, 25)  # seconds


def stalling(visit, attempt, first=STALLS[0]):
    """Calls attempt(seconds) while env.stallTimeout is that long; on failure again with a longer
    one, since on a busy machine parts that do respond may take longer than a short one. Returns the
    result. first: the shortest; 1 for what starts Python.
    """
    for seconds in (s for s in STALLS if s >= first):
        visit.run("ew.env.stallTimeout = arg;", 1000 * seconds)
        try:
            result = attempt(seconds)
        except AssertionError:
            if seconds == STALLS[-1]:
                raise
        else:
            visit.run("ew.env.stallTimeout = 30_000;")
            return result


def load(visit, model, **options):
    return visit.run(LOAD, {"model": model, "options": options})


def error(got, name, *words):
    assert "error" in got, got
    e = got["error"]
    assert e["name"] == name and e["ours"] and e["own"], e
    for word in words:
        assert word in e["message"], (word, e["message"])
    return e
