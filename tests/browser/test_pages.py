"""A model in a page, end to end: from a package, compiled in the page, and from stored plans; with
and without threads.
"""

import shutil

import pytest

from .conftest import MODEL, greedy
from .loading import WATCH, error


def no_python(visit):
    return not visit.asked("pyodide") and not visit.asked(".whl")


def test_package_needs_no_python(visit, server):
    v = visit(server)
    got = greedy(v, "/files/model.edge")
    assert "error" not in got, got
    assert (
        got["info"]["origin"] == "package"
        and len(got["ids"]) > 12
        and len(got["text"]) > len("Once upon a time")
    )
    assert no_python(v)
    assert got["info"]["memory"]["engine"] >= got["info"]["memory"]["weights"] > 1e6


DAMAGE = """
    const dir = await (
      await (await navigator.storage.getDirectory()).getDirectoryHandle("edgewise")
    ).getDirectoryHandle("plans");
    for await (const [name, file] of dir.entries()) {
      const bytes = new Uint8Array(await (await file.getFile()).arrayBuffer());
      bytes[bytes.length - 5000] ^= 1;
      const out = await file.createWritable();
      await out.write(bytes);
      await out.close();
    }
"""


def test_compiled_in_the_page_then_from_the_cache(visit, server):
    """Without blocking the page's own thread; a damaged cache is made again."""
    first = visit(server)
    first.run(WATCH)
    fresh = greedy(first, "/demo/model/", {"dtype": "q4", "threads": 1})
    assert "error" not in fresh, fresh
    assert fresh["info"]["origin"] == "compiled" and first.asked("pyodide")
    assert first.run("return blocking") == []
    first.close()
    second = visit(server)
    again = greedy(second, "/demo/model/", {"dtype": "q4"})
    assert again["info"]["origin"] == "cache" and no_python(second)
    assert again["ids"] == fresh["ids"]
    assert greedy(second, "/files/model.edge")["ids"] == fresh["ids"], (
        "the package and the model compiled here differ"
    )
    second.run(DAMAGE)
    again = greedy(second, "/demo/model/", {"dtype": "q4"})
    assert "error" not in again and again["info"]["origin"] == "compiled"


DROP = """
    const names = [
      "onnx/model_q4.onnx",
      "config.json",
      "generation_config.json",
      "tokenizer.json",
      "tokenizer_config.json",
    ];
    const files = await Promise.all(
      names.map(
        async (n) =>
          new File([await (await fetch("/demo/model/" + n)).blob()], n.split("/").pop()),
      ),
    );
    const p = await ew.pipeline("text-generation", files);
    const [{ generated_text }] = await p("Once upon a time", {
      max_new_tokens: 8,
      do_sample: false,
    });
    await p.dispose();
    return { text: generated_text, info: p.info };
"""


def test_dropped_files_and_their_cache(visit, server):
    v = visit(server)
    fresh = v.run(DROP)
    assert "error" not in fresh, fresh
    assert fresh["info"]["origin"] == "compiled"
    w = visit(server)
    again = w.run(DROP)
    assert again["info"]["origin"] == "cache" and no_python(w) and again["text"] == fresh["text"]


def test_external_data(visit, server, files):
    """Weights in external files are fetched when the compiler requests them, and from the network
    again on the second visit.
    """
    import onnx

    folder = files / "external"
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.onnx"), dirs_exist_ok=True)
    (folder / "onnx").mkdir(exist_ok=True)
    onnx.save_model(
        onnx.load(MODEL / "onnx" / "model_q4.onnx"),
        folder / "onnx" / "model.onnx",
        save_as_external_data=True,
        location="model.onnx_data",
        size_threshold=1000,
    )
    v = visit(server)
    fresh = greedy(v, "/files/external", {"dtype": "fp32"})
    assert "error" not in fresh, fresh
    assert fresh["info"]["origin"] == "compiled"
    w = visit(server)
    again = greedy(w, "/files/external", {"dtype": "fp32"})
    assert again["info"]["origin"] == "cache" and no_python(w) and again["ids"] == fresh["ids"]
    (folder / "onnx" / "model.onnx_data").unlink()
    gone = greedy(w, "/files/external", {"dtype": "fp32"})["error"]
    assert gone["ours"] and "model.onnx_data" in gone["message"]


def test_without_isolation_one_thread_and_the_reason(visit, plain_server, server):
    v = visit(plain_server)
    plain = greedy(v, "/files/model.edge")
    assert (
        plain["info"]["threads"] == 1
        and "Cross-Origin-Opener-Policy" in plain["info"]["whyNotThreads"]
    )
    assert v.run("return {isolated: ew.info.isolated, why: ew.info.whyNotThreads}") == {
        "isolated": False,
        "why": plain["info"]["whyNotThreads"],
    }
    w = visit(server)
    threaded = greedy(w, "/files/model.edge", {"threads": 2})
    assert (
        threaded["info"]["threads"] == 2
        and threaded["info"]["whyNotThreads"] == ""
        and threaded["info"]["flavour"] == "relaxed-threads"
    )
    assert w.run("return ew.info.threads") == 2


def test_flavours_generate_the_same_text(visit, server):
    v = visit(server)
    texts = {
        greedy(v, "/files/model.edge", o)["text"]
        for o in (
            {"flavour": "simd128"},
            {"flavour": "simd128-threads", "threads": 1},
            {"flavour": "simd128-threads", "threads": 2},
            {"flavour": "relaxed-threads", "threads": 1},
            {"threads": 2},
            {"threads": 3},
        )
    }
    assert len(texts) == 1, texts


def test_package_from_memory(visit, server, plain_server):
    """A package in memory is read without a copy, piece by piece, also from a part of a larger
    buffer and without shared memory; transferring the buffer during the load, or bytes that end too
    early, cause an error.
    """
    for where in (server, plain_server):
        v = visit(where)
        got = v.run("""
            const bytes = new Uint8Array(await (await fetch("/files/model.edge")).arrayBuffer());
            const wide = new Uint8Array(bytes.length + 77);
            wide.set(bytes, 77);
            const write = async (model) => {
              const p = await ew.pipeline("text-generation", model);
              const [{ generated_token_ids }] = await p("Once upon a time", {
                max_new_tokens: 12,
                do_sample: false,
                return_tensors: true,
              });
              await p.dispose();
              return generated_token_ids;
            };
            const words = (e) => [e.name, e.message];
            const out = {
              pieces: bytes.length / (1 << 20),
              file: await write(new Blob([bytes])),
              array: await write(bytes),
              part: await write(wide.subarray(77)),
              buffer: await write(bytes.buffer),
            };
            out.short = await write(bytes.subarray(0, bytes.length - 3000)).catch(words);
            out.session = await ew.InferenceSession.create(bytes.buffer).catch(words);
            const giving = write(bytes).catch(words);
            structuredClone(0, { transfer: [bytes.buffer] });
            out.given = await giving;
            return out;
        """)
        assert "error" not in got, got
        assert (
            got["pieces"] > 2
            and got["file"] == got["array"] == got["part"] == got["buffer"]
            and len(got["file"]) > 12
        )
        assert got["short"][0] == "PackageError" and "truncated" in got["short"][1]
        assert got["session"][0] == "PackageError" and "text-generation" in got["session"][1]
        assert got["given"][0] == "ModelError" and "transferred" in got["given"][1]


@pytest.mark.parametrize("model", ["/files/model.edge", "/demo/model/"])
def test_strict_content_security_policy(visit, strict_server, model):
    v = visit(strict_server, start=False)
    got = v.page.evaluate(
        """async (model) => {
        const ew = await import('/edgewise.js');
        try {
          const p = await ew.pipeline('text-generation', model, {dtype: "q4", threads: 2});
          const out = await p('Once', {max_new_tokens: 4, do_sample: false});
          await p.dispose();
          return out[0].generated_text;
        } catch (e) { return e.message; }
    }""",
        model,
    )
    assert got.startswith("Once"), got


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if"
    " add_generation_prompt %}assistant:{% endif %}"
)


def test_long_chats(visit, server, files):
    """Refused with their numbers, or shortened by their earliest turns; long answers end."""
    shutil.copytree(MODEL, files / "chats", dirs_exist_ok=True)
    (files / "chats" / "chat_template.jinja").write_text(TEMPLATE)
    v = visit(server)
    long = v.run("""
        const options = { dtype: "q4", max_length: 96 };
        const p = await ew.pipeline("text-generation", "/files/chats/", options);
        const fields = { do_sample: false, max_new_tokens: 16, return_full_text: false };
        const turn = (i) => ({ role: i % 2 ? "assistant" : "user", content: `It was day ${i}.` });
        const turns = Array.from({ length: 41 }, (_, i) => turn(i));
        const chat = [{ role: "system", content: "Be kind" }, ...turns];
        const refused = await p(chat, fields).catch((e) => e.message);
        const [{ generated_text: got }] = await p(chat, { ...fields, truncation: true });
        const wrong = await p(chat, { truncation: 3 }).catch((e) => e.message);
        let last;
        for (let i = 1; i < 42 && !last; i += 2) {
          const rest = [chat[0], ...chat.slice(i)];
          const text = await p.tokenizer.apply_chat_template(rest);
          const ids = await p.tokenizer.encode(text, { add_special_tokens: false });
          if (ids.length <= 80) last = rest;
        }
        const [{ generated_text: same }] = await p(last, fields);
        const [{ finish_reasons: end, generated_token_ids: all }] = await p("One day", {
          ...fields, max_new_tokens: 500, return_tensors: true, return_dict_in_generate: true,
          min_new_tokens: 200 });
        const { capacity } = p.info;
        await p.dispose();
        return { refused, got, same, wrong, end, all: all.length, capacity, turns: last.length };
    """)
    assert "error" not in long, long
    assert "a sequence of the model at most 96" in long["refused"]
    assert "truncation: true" in long["refused"] and "truncation" in long["wrong"]
    assert long["got"] == long["same"] and 1 < long["turns"] < 42
    assert (long["end"], long["all"], long["capacity"]) == ("length", 96, 96)


def test_chat_messages(visit, server, files):
    """Messages are formatted with the model's chat template, also if it is in a separate file."""
    folder = files / "chat"
    shutil.copytree(MODEL, folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    v = visit(server)
    got = v.run("""
        const p = await ew.pipeline("text-generation", "/files/chat/", { dtype: "q4" });
        const chat = [{ role: "user", content: "Tell me a story" }];
        const text = await p.tokenizer.apply_chat_template(chat);
        const [{ generated_text }] = await p(chat, { max_new_tokens: 4, do_sample: false });
        const [{ generated_text: plain }] = await p(text, {
          max_new_tokens: 4,
          do_sample: false,
          add_special_tokens: false,
          return_full_text: false,
        });
        const [[a], [b]] = await p(["One", "Two"], {
          max_new_tokens: 2,
          num_return_sequences: 1,
        });
        await p.dispose();
        return { text, generated_text, plain, has: p.info.hasChatTemplate, a, b };
    """)
    assert "error" not in got, got
    assert got["has"] and got["text"] == "<|startoftext|>user: Tell me a story\nassistant:"
    assert got["generated_text"] == [
        {"role": "user", "content": "Tell me a story"},
        {"role": "assistant", "content": got["plain"]},
    ]
    assert got["a"]["generated_text"].startswith("One") and got["b"]["generated_text"].startswith(
        "Two"
    )


def test_model_ids_of_a_hub(visit, server):
    v = visit(server)
    v.run("ew.env.remoteHost = location.origin + '/files/hub/'")
    got = greedy(v, "someone/tiny")
    assert "error" not in got, got
    assert got["info"]["dtype"] == "q4"
    missing = greedy(v, "someone/nothing")["error"]
    assert missing["name"] == "ModelError" and missing["own"] and "404" not in missing["remedy"]


def test_the_demo_generates_at_once(visit, server):
    v = visit(server, "/", start=False)
    v.page.wait_for_function("document.body.dataset.written === '1'")
    assert len(v.page.inner_text("#story-text")) > 40
    assert no_python(v)
    assert (
        "relaxed-threads" in v.page.inner_text("#status") and v.page.locator("#error").is_hidden()
    )
    first = int(v.page.evaluate("document.body.dataset.firstToken"))
    print(f"demo page to first token: {first} ms")
    # Compile in the page, generate, stop.
    v.page.check("#sources [value=onnx]")
    v.page.wait_for_function(
        "document.querySelector('#status').dataset.origin === 'compiled' &&"
        " document.body.dataset.written === '2'"
    )
    v.page.wait_for_function("!document.querySelector('#generate').disabled")
    # The story may be short and the machine fast, so the page itself presses Stop at the first
    # text.
    v.page.fill("#prompt", "The little robot")
    stopped = v.page.evaluate("""
        () =>
          new Promise((resolve) => {
            const at = (id) => document.getElementById(id);
            new MutationObserver((_, watch) => {
              if (
                at("story-prompt").textContent !== "The little robot" ||
                !at("story-text").textContent
              )
                return;
              watch.disconnect();
              const could = !at("stop").disabled;
              at("stop").click();
              resolve(could);
            }).observe(at("story"), { childList: true, subtree: true, characterData: true });
            at("generate").click();
          })
    """)
    assert stopped
    v.page.wait_for_function("!document.querySelector('#generate').disabled")
    assert v.page.locator("#error").is_hidden()


@pytest.mark.slow("test_the_demo_generates_at_once")
def test_the_demo_offers_a_larger_model(visit, server, files):
    """From the hub, compiled for learning; the storyteller stays if it cannot be loaded."""
    v = visit(server, f"/?write=0&host={server}/files/larger/", start=False)
    v.page.wait_for_function("!document.querySelector('#generate').disabled")
    v.page.check("#sources [value=larger]")
    v.page.wait_for_selector("#error:visible")
    assert "SmolLM2" in v.page.inner_text("#error")
    v.page.wait_for_function("!document.querySelector('#generate').disabled")
    folder = files / "larger/HuggingFaceTB/SmolLM2-135M-Instruct/resolve/main"
    shutil.copytree(MODEL, folder)
    v.page.check("#sources [value=package]")
    v.page.wait_for_function("document.querySelector('#status').dataset.origin === 'package'")
    v.page.check("#sources [value=larger]")
    v.page.wait_for_function("document.querySelector('#status').dataset.origin === 'compiled'")
    assert v.page.locator("#error").is_hidden() and v.page.locator("#untrainable").is_hidden()


def test_the_demo_shows_errors(visit, server):
    v = visit(server, "/?write=0", start=False)
    for name in ("lesson-file", "files", "folder"):  # can be reached without a mouse
        v.page.focus(f"#{name}")
        assert v.page.evaluate("document.activeElement.id") == name
    v.page.wait_for_function("!document.querySelector('#generate').disabled")
    v.page.set_input_files(
        "#files",
        [
            {
                "name": "letter.edge",
                "mimeType": "text/plain",
                "buffer": b"Dear page, I am not a model.",
            }
        ],
    )
    v.page.wait_for_selector("#error:visible")
    assert "not an Edgewise package" in v.page.inner_text("#error")
    v.page.click("#generate")  # the previous model still generates
    v.page.wait_for_function("document.body.dataset.written === '1'")


def test_the_pages_thread_is_never_blocked(visit, server):
    v = visit(server)
    v.run(WATCH)
    got = greedy(v, "/files/model.edge", {"threads": 1}, max_new_tokens=100)
    assert "error" not in got, got
    assert v.run("return blocking") == []
    empty = "new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])"
    assert v.run(f"await WebAssembly.compile({empty}); return blocking") == ["compile"]


# long: the script of a page and the checks of what it returns
def test_float16_cache(visit, server, files):
    """A float16 cache, for a package and for a model compiled in the page: half the memory, and the
    same tokens as Python with the same cache, also when beams copy it. A dtype other than the
    package's is refused.
    """
    import edgewise
    from edgewise.host.session.decoder import open_package
    from edgewise.text import Tokenizer, generate

    with open(files / "halves.edge", "wb") as f:
        open_package(MODEL, cache_dtype="float16").write(f)
    lm = edgewise.CausalLM(str(files / "halves.edge"))
    tokenizer = Tokenizer.from_pretrained(MODEL)
    beams = tokenizer.decode(
        generate(
            lm,
            tokenizer.encode("Once upon a time"),
            max_new_tokens=12,
            num_beams=3,
            do_sample=False,
        )[0],
        skip_special_tokens=True,
    )
    v = visit(server)
    whole, halves = greedy(v, "/files/model.edge"), greedy(v, "/files/halves.edge")
    assert (whole["info"]["cacheDtype"], halves["info"]["cacheDtype"]) == ("float32", "float16")
    assert (
        whole["info"]["memory"]["cachePerSequence"]
        == 2 * halves["info"]["memory"]["cachePerSequence"]
        > 0
    )
    memory = whole["info"]["memory"]
    room = min(256, whole["info"]["capacity"])
    assert memory["cachePerSequence"] == room * memory["cachePerToken"]
    assert (
        halves["ids"]
        == list(
            generate(lm, tokenizer.encode("Once upon a time"), max_new_tokens=12, do_sample=False)[
                0
            ]
        )[-len(halves["ids"]) :]
    )
    for flavour in ("simd128", "relaxed-threads"):
        assert (
            v.run(
                """
                    const p = await ew.pipeline("text-generation", "/files/halves.edge", {
                      flavour: arg,
                    });
                    const [{ generated_text }] = await p("Once upon a time", {
                      max_new_tokens: 12,
                      num_beams: 3,
                      do_sample: false,
                    });
                    await p.dispose();
                    return generated_text;
                """,
                flavour,
            )
            == beams
        )
    error(
        greedy(v, "/files/halves.edge", {"cache_dtype": "float32"}),
        "InputError",
        "float16",
        "--cache-dtype",
    )
    compiled = greedy(v, "/demo/model/", {"dtype": "q4", "cache_dtype": "float16"})
    assert (
        compiled["info"]["origin"] == "compiled"
        and compiled["info"]["cacheDtype"] == "float16"
        and compiled["ids"] == halves["ids"]
    )


def test_same_tokens_as_python(visit, server, package):
    edgewise = pytest.importorskip("edgewise")
    from edgewise.onnx import BytesSource
    from edgewise.package import Package

    try:
        lm = edgewise.CausalLM(Package.read(BytesSource(package, "model.edge")))
    except OSError as e:
        pytest.fail(f"the native engine is not built ({e})")
    from edgewise.text import Tokenizer, generate

    ids = Tokenizer.from_pretrained(MODEL).encode("Once upon a time")
    v = visit(server)
    for fields in (
        {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "seed": 7},
        {"do_sample": False, "repetition_penalty": 1.2},
        {"num_beams": 3, "do_sample": False},
    ):
        here = generate(lm, ids, max_new_tokens=40, **fields)[0]
        there = v.run(
            """
                const p = await ew.pipeline("text-generation", "/files/model.edge", {
                  flavour: "simd128",
                });
                const ids = [];
                const streamer = arg.num_beams
                  ? undefined
                  : { put: (x) => ids.push(...x), end() {} };
                const [{ generated_text }] = await p("Once upon a time", {
                  max_new_tokens: 40,
                  ...arg,
                  streamer,
                });
                await p.dispose();
                return { ids, text: generated_text };
            """,
            fields,
        )
        assert "error" not in there, there
        if there["ids"]:
            assert there["ids"] == list(here)
        else:
            assert (
                there["text"]
                == "Once upon a time"
                + Tokenizer.from_pretrained(MODEL).decode(here, skip_special_tokens=True)[
                    len("Once upon a time") :
                ]
            )
