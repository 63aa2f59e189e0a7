"""The browser's Prompt API on a pipeline of the page. The cases are those of the Web Platform Tests
(ai/language-model) that need no particular model; answers are the pipeline's in Python, and tokens
are counted by the package tokenizers.
"""

import json

import pytest
from edgewise import pipeline
from tokenizers import Tokenizer

from .conftest import MODEL
from .loading import TEMPLATED

TEMPLATE = (
    "{% for t in tools or [] %}<tool_call>{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
PROMPT = "Please write a sentence in English."

START = (
    TEMPLATED
    + """
    const { createLanguageModel, polyfill } = await import("/prompt-api.js");
    const pipe = await ew.pipeline("text-generation", files, { dtype: "q4", capacity: 256 });
    const own = globalThis.LanguageModel;
    delete globalThis.LanguageModel;
    const defaults = { do_sample: false, max_new_tokens: 12 };
    const LanguageModel = polyfill(pipe, defaults);
    const kept = polyfill(pipe) === LanguageModel && globalThis.LanguageModel === LanguageModel;
    const failure = async (work) => {
      try { await work(); } catch (e) {
        return { name: e.name, dom: e instanceof DOMException, message: e.message,
          requested: e.requested, quota: e.quota };
      }
      return { name: "nothing failed" };
    };
    const named = async (work) => (await failure(work)).name;
    const create = (options) => LanguageModel.create(options);
    const user = (content) => ({ role: "user", content });
    const system = (content) => ({ role: "system", content });
    const assistant = (content, prefix) => ({ role: "assistant", content, prefix });
"""
)


@pytest.fixture(scope="module")
def tokens():
    """Number of tokens of a text."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def run(visit, server, script, **given):
    got = visit(server).run(START + script, {"template": TEMPLATE, "prompt": PROMPT, **given})
    assert "error" not in got, got
    return got


CREATE = """
    const session = await create();
    const events = [];
    const told = await create({ monitor: (m) => m.addEventListener("downloadprogress",
      ({ loaded, total, lengthComputable }) => events.push([loaded, total, lengthComputable])) });
    const modes = [];
    for (const samplingMode of arg.modes) {
      const one = await create({ samplingMode });
      modes.push([one.samplingMode, (await one.clone()).samplingMode]);
    }
    const unused = () => "";
    const tool = { name: "a", description: "b", inputSchema: { type: "object" }, execute: unused };
    const circular = { type: "object" };
    circular.self = circular;
    const loop = new Error("it throws");
    const wrong = [
      { initialPrompts: [user("a"), assistant("b"), system("c")] },
      { initialPrompts: [system("a"), system("b")] },
      { initialPrompts: [{ role: "robot", content: "a" }] },
      { expectedInputs: [{ type: "smell" }] },
      { samplingMode: "wild" },
      { tools: [{ ...tool, inputSchema: null }] },
      { tools: [{ ...tool, inputSchema: {} }] },
      { tools: [{ ...tool, inputSchema: { type: "object", required: "a" } }] },
      { tools: [{ ...tool, inputSchema: { type: "object", properties: "a" } }] },
      { tools: [{ ...tool, name: "" }] },
      { tools: [{ ...tool, description: "" }] },
      { tools: [{ ...tool, execute: undefined }] },
      { tools: [tool, tool] },
      { tools: [{ ...tool, inputSchema: circular }] },
    ];
    const failures = [];
    for (const options of wrong) failures.push(await named(() => create(options)));
    const tags = { expectedInputs: [{ type: "text", languages: ["en-abc-invalid"] }] };
    const image = { expectedInputs: [{ type: "image" }] };
    const long = { initialPrompts: [system("long ".repeat(400))] };
    const plain = await ew.pipeline("text-generation", "/demo/model/");
    const Plain = createLanguageModel(plain);
    return {
      kept, failures, events, modes,
      is: session instanceof LanguageModel && LanguageModel.name === "LanguageModel",
      usage: [session.contextUsage, session.inputUsage],
      window: [session.contextWindow, session.inputQuota],
      types: [typeof session.topK, typeof session.temperature, typeof session.onquotaoverflow,
        typeof session.oncontextoverflow],
      illegal: await named(() => new LanguageModel()),
      available: [await LanguageModel.availability(), await LanguageModel.availability(image),
        await LanguageModel.availability({ expectedInputs: [{ type: "text", languages: ["EN"] }] }),
        await Plain.availability()],
      tags: [await named(() => create(tags)), await named(() => LanguageModel.availability(tags))],
      image: await named(() => create(image)),
      plain: await named(() => Plain.create()),
      long: await failure(() => create(long)),
      throwing: await failure(() => create({ monitor: () => { throw loop; } })),
      empty: (await create({ initialPrompts: [] })).contextUsage,
      ranges: [await named(() => create({ temperature: -1 })),
        await named(() => create({ topK: 0 })),
        await named(() => create({ temperature: 0.5, topK: 1.5 }))],
    };
"""


def test_create(visit, server, tokens):
    modes = ["most-predictable", "predictable", "slightly-predictable", "balanced"]
    modes += ["slightly-creative", "creative", "most-creative"]
    got = run(visit, server, CREATE, modes=modes)
    assert got["kept"] and got["is"]
    assert got["failures"] == ["TypeError"] * 14
    assert got["events"] == [[0, 1, True], [1, 1, True]]
    assert got["modes"] == [[mode, mode] for mode in modes]
    assert got["usage"] == [0, 0] and got["window"] == [256, 256] and got["empty"] == 0
    assert got["types"] == ["undefined", "undefined", "object", "object"]
    assert got["illegal"] == "TypeError"
    assert got["available"] == ["available", "unavailable", "available", "unavailable"]
    assert got["tags"] == ["RangeError"] * 2
    assert got["image"] == got["plain"] == "NotSupportedError"
    assert got["long"]["name"] == "QuotaExceededError" and got["long"]["dom"]
    assert got["long"]["requested"] == tokens("system: " + "long " * 400 + "\n")
    assert got["long"]["quota"] == 256
    assert got["throwing"]["message"] == "it throws"
    assert got["ranges"] == ["RangeError", "RangeError", "nothing failed"]


PROMPTS = """
    const session = await create();
    const measured = await session.measureContextUsage(arg.prompt);
    const answer = await session.prompt(arg.prompt);
    const usage = session.contextUsage;
    const again = await session.prompt([user("And"), user("more")]);
    const pieces = [];
    const stream = (await create()).promptStreaming(arg.prompt);
    const kind = Object.prototype.toString.call(stream);
    for await (const piece of stream) pieces.push(piece);
    const coerced = [];
    const texts = [null, undefined, {}, "", [], [user([])], [user([{ type: "text", value: "" }])]];
    for (const input of texts) coerced.push(typeof (await (await create()).prompt(input)));
    const asObject = await (await create()).measureContextUsage({});
    const parts = [user([{ type: "text", value: "foo" }, { type: "text", value: "bar" }])];
    const joined = await (await create()).measureContextUsage(parts);
    const appended = await create();
    const nothing = await appended.append([system("Be short."), user("Once upon")]);
    const added = appended.contextUsage;
    const initialPrompts = [system("The word is regurgitation.")];
    const begun = await create({ initialPrompts });
    const both = [begun.contextUsage, await begun.measureContextUsage(initialPrompts)];
    const copy = await session.clone();
    const same = copy.contextUsage === session.contextUsage;
    const next = [await session.prompt("So"), await copy.prompt("So")];
    const prefixed = await (await create()).prompt([user("Tell"), assistant("Once upon", true)]);
    const two = await create();
    const concurrent = await Promise.all([two.prompt("One"), two.prompt("Two")]);
    return { measured, answer, usage, again, pieces, kind, coerced, asObject, joined, nothing,
      added, both, same, next, prefixed, concurrent, end: two.contextUsage };
"""


def test_prompts(visit, server, tokens):
    pipe = pipeline("text-generation", MODEL)

    def answer(text):
        fields = {"do_sample": False, "return_full_text": False, "max_new_tokens": 12}
        return pipe(text, add_special_tokens=False, **fields)[0]["generated_text"]

    got = run(visit, server, PROMPTS)
    first = f"user: {PROMPT}\n"
    assert got["measured"] == tokens(first)
    assert got["answer"] == answer(first + "assistant: ")
    turn = f"{first}assistant: {got['answer']}\n"
    assert got["usage"] == tokens(turn) > got["measured"]
    assert got["again"] == answer(turn + "user: And\nuser: more\nassistant: ")
    assert "".join(got["pieces"]) == got["answer"] and len(got["pieces"]) > 2
    assert got["kind"] == "[object ReadableStream]"
    assert got["coerced"] == ["string"] * 7
    assert got["asObject"] == tokens("user: [object Object]\n")
    assert got["joined"] == tokens("user: foobar\n")
    assert got.get("nothing") is None
    assert got["added"] == tokens("system: Be short.\nuser: Once upon\n")
    assert got["both"] == [tokens("system: The word is regurgitation.\n")] * 2
    assert got["same"] and got["next"][0] == got["next"][1]
    assert got["prefixed"] == answer("user: Tell\nassistant: Once upon")
    one, two = got["concurrent"]
    assert one == answer("user: One\nassistant: ")
    chat = f"user: One\nassistant: {one}\nuser: Two\nassistant: "
    assert two == answer(chat) and got["end"] == tokens(f"{chat}{two}\n")


REFUSED = """
    const session = await create();
    const wrong = [
      () => session.prompt([user("foo"), system("bar")]),
      () => session.prompt([system("foo"), system("bar")]),
      () => session.append([user("foo"), system("bar")]),
      () => session.prompt([{ role: "robot", content: "a" }]),
      () => session.prompt([{ role: "user" }]),
      () => session.prompt([user([{ type: "text", value: new ArrayBuffer(1) }])]),
      () => session.prompt("a", { responseConstraint: "a" }),
      () => session.prompt("a", { omitResponseConstraintInput: true }),
      () => session.measureContextUsage("a", { omitResponseConstraintInput: true }),
    ];
    const types = [];
    for (const work of wrong) types.push(await named(work));
    const circular = {};
    circular.self = circular;
    const tool = { name: "a", description: "b", inputSchema: { type: "object" },
      execute: () => "" };
    const unsupported = [
      () => session.prompt([user([{ type: "image", value: new Blob() }])]),
      () => session.prompt("a", { responseConstraint: circular }),
      () => session.prompt("a", { responseConstraint: { not: {} } }),
      () => session.prompt("a", { responseConstraint: /a/i }),
      async () => (await create({ tools: [tool] })).prompt([assistant("{", true)]),
    ];
    const names = [];
    for (const work of unsupported) names.push(await failure(work));
    const syntax = [await failure(() => session.prompt([{ ...user("a"), prefix: true }])),
      await failure(() => session.prompt([assistant("a", true), user("b")]))];
    const long = { responseConstraint: { type: "string", minLength: 200 } };
    syntax.push(await failure(() => session.prompt("a", long)));
    const used = session.contextUsage;
    await session.prompt("a");
    const late = await named(() => session.prompt([system("bar")]));
    const begun = await create({ initialPrompts: [user("a")] });
    const second = await named(() => begun.append([system("bar")]));
    const schema = { type: "object", required: ["Rating"], additionalProperties: false,
      properties: { Rating: { type: "integer", minimum: 0, maximum: 5 } } };
    const fresh = await create();
    const sizes = [
      await fresh.measureContextUsage("hello", { responseConstraint: schema }),
      await fresh.measureContextUsage("hello", { responseConstraint: schema,
        omitResponseConstraintInput: true })];
    const rated = [await fresh.prompt("hello", { responseConstraint: schema }),
      await fresh.prompt("hello", { responseConstraint: schema,
        omitResponseConstraintInput: true })];
    const color = { responseConstraint: /^(red|blue)$/ };
    const regex = await fresh.prompt("hello", color);
    const begins = await create();
    const asked = [user("hello"), assistant("It is ", true)];
    const prefixed = await begins.prompt(asked, { ...color, omitResponseConstraintInput: true });
    const joined = begins.contextUsage;
    return { types, names, syntax, used, late, second, sizes, rated, regex, prefixed, joined };
"""


def test_refusals_and_constraints(visit, server, tokens):
    got = run(visit, server, REFUSED)
    assert got["types"] == ["TypeError"] * 9
    assert {(f["name"], f["dom"]) for f in got["names"]} == {("NotSupportedError", True)}
    assert {(f["name"], f["dom"]) for f in got["syntax"]} == {("SyntaxError", True)}
    assert (got["used"], got["late"], got["second"]) == (0, "TypeError", "TypeError")
    with_schema, without = got["sizes"]
    assert with_schema > without + 20 and without == tokens("user: hello\n")
    for text in got["rated"]:
        rated = json.loads(text)
        assert list(rated) == ["Rating"] and 0 <= rated["Rating"] <= 5
    assert got["regex"] in {"red", "blue"} and got["prefixed"] in {"red", "blue"}
    assert got["joined"] == tokens(f"user: hello\nassistant: It is {got['prefixed']}\n")


ABORTS = """
    const reasons = [undefined, new Error("mine"), new DOMException("mine", "VersionError")];
    const session = await create({ initialPrompts: [system("Be short.")] });
    const methods = [
      (signal) => create({ signal }),
      (signal) => session.clone({ signal }),
      (signal) => session.prompt(arg.prompt, { signal }),
      (signal) => session.append(arg.prompt, { signal }),
      (signal) => session.measureContextUsage(arg.prompt, { signal }),
      (signal) => session.promptStreaming(arg.prompt, { signal }).pipeTo(new WritableStream()),
    ];
    const before = session.contextUsage;
    const found = [];
    for (const method of methods)
      for (const reason of reasons) {
        const controller = new AbortController();
        const work = failure(() => method(controller.signal));
        controller.abort(reason);
        found.push((await work).name, await named(() => method(controller.signal)));
      }
    let progress = 0;
    const stop = new AbortController();
    const stopped = await failure(() => create({ signal: stop.signal, monitor: (m) =>
      m.addEventListener("downloadprogress", () => { progress++; stop.abort(); }) }));
    const unchanged = session.contextUsage === before;
    const queued = new AbortController();
    const first = session.prompt("One");
    const second = failure(() => session.prompt("Two", { signal: queued.signal }));
    queued.abort();
    const order = [(await second).name, typeof (await first)];
    const during = new AbortController();
    const usage = session.contextUsage;
    const read = [];
    const cut = await failure(async () => {
      for await (const piece of session.promptStreaming("Three", { signal: during.signal })) {
        read.push(piece);
        during.abort();
      }
    });
    for await (const piece of session.promptStreaming("Four")) break;
    const after = [session.contextUsage === usage, typeof (await session.prompt("Five"))];
    const copy = await session.clone();
    const open = failure(() => session.prompt("Six"));
    session.destroy();
    const destroyed = [await open, await failure(() => session.prompt("a")),
      await failure(() => session.clone()),
      await failure(async () => session.promptStreaming("a"))];
    const owner = new AbortController();
    const owned = await create({ signal: owner.signal });
    owner.abort();
    return { found, progress, stopped, unchanged, order, read: read.length, cut, after, destroyed,
      types: [typeof session.contextUsage, typeof session.contextWindow],
      copy: typeof (await copy.prompt("Seven")), owned: await failure(() => owned.prompt("a")) };
"""


def test_aborts(visit, server):
    got = run(visit, server, ABORTS)
    each = ["AbortError"] * 2 + ["Error"] * 2 + ["VersionError"] * 2
    assert got["found"] == each * 6
    assert (got["progress"], got["stopped"]["name"]) == (1, "AbortError")
    assert got["unchanged"] and got["order"] == ["AbortError", "string"]
    assert got["read"] == 1 and got["cut"]["name"] == "AbortError" and got["cut"]["dom"]
    assert got["after"] == [True, "string"]
    assert {(f["name"], f["dom"]) for f in got["destroyed"]} == {("InvalidStateError", True)}
    assert got["types"] == ["number", "number"] and got["copy"] == "string"
    assert got["owned"]["name"] == "AbortError"


OVERFLOW = """
    const events = [];
    const session = await create({ initialPrompts: [system("Be short.")] });
    session.addEventListener("contextoverflow", () => events.push("event"));
    session.oncontextoverflow = () => events.push("handler");
    session.onquotaoverflow = () => events.push("older");
    const empty = session.contextUsage;
    await session.append("one ".repeat(130));
    const once = session.contextUsage;
    const text = "two ".repeat(110);
    const fits = events.length === 0;
    const answer = await session.prompt(text);
    const usage = session.contextUsage;
    const long = "three ".repeat(400);
    const needed = usage + await session.measureContextUsage(long);
    const failed = await failure(() => session.prompt(long));
    const stays = session.contextUsage === usage;
    const schema = { type: "object", properties: { city: { enum: ["Paris", "Rome"] } },
      required: ["city"], additionalProperties: false };
    const seen = [];
    const tool = { name: "weather", description: "The weather.", inputSchema: schema,
      execute: ({ city }) => (seen.push(city), "clear") };
    const tool_choice = { type: "function", function: { name: "weather" } };
    const forced = createLanguageModel(pipe, { ...defaults, max_new_tokens: 90, tool_choice,
      max_rounds: 2 });
    const caller = await forced.create({ tools: [tool] });
    const endless = await failure(() => caller.prompt("Where is it sunny?"));
    return { events, empty, once, fits, answer, usage, needed, failed, stays, seen, endless,
      left: caller.contextUsage };
"""


def test_overflow_and_tools(visit, server, tokens):
    got = run(visit, server, OVERFLOW)
    assert sorted(got["events"]) == ["event", "handler", "older"] and got["fits"]
    start = "system: Be short.\n"
    assert got["empty"] == tokens(start)
    assert got["once"] == tokens(f"{start}user: {'one ' * 130}\n")
    assert got["usage"] == tokens(f"{start}user: {'two ' * 110}\nassistant: {got['answer']}\n")
    assert got["failed"]["name"] == "QuotaExceededError" and got["stays"]
    assert (got["failed"]["requested"], got["failed"]["quota"]) == (got["needed"], 256)
    assert len(got["seen"]) == 2 and set(got["seen"]) <= {"Paris", "Rome"}
    assert got["endless"]["name"] == "OperationError" and got["left"] == 0
