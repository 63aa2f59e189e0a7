"""Public calls of pages with arguments of wrong types: each is refused with an error of Edgewise,
and ends. The test of Python's is tests/hostile/test_wrong_arguments.py.
"""

import json
import re
import shutil

import pytest

from ..conftest import WEB
from .session_scripts import CREATE

# The values; `attack(name, call, good)` gives the foreign errors of a call with each of them: of
# all arguments that it needs; with good arguments, in the place of each, and of each option of the
# last. A call that does not end within 20 s is one, too.
SETUP = """
    const WRONG = [undefined, null, 5, -1, 2.5, NaN, "no/where", "", new Uint8Array([255, 0]), [],
      {}, ["a", null], { a: 1 }, () => 1, 10n, true, new Date(0), Symbol("s"), [[1, "a"]],
      new Float32Array(3), new Blob(["x"])];
    const show = (value) => {
      if (Array.isArray(value)) return `[${value.map(show)}]`;
      if (typeof value === "function") return "function";
      return typeof value === "object" && value ? value.constructor?.name : String(value);
    };
    // Classes with private constructors.
    const MADE = ["InferenceSession", "LinearLRScheduler", "TextIndex", "Trainer",
      "TrainingSession", "VectorIndex"];
    const PUBLIC = new Set(NAMES);
    const isClass = (f) => /^class\\b/.test(Function.prototype.toString.call(f));
    async function foreign(call) {
      let timer;
      try {
        const end = new Promise((_, reject) => (timer = setTimeout(() => reject("hung"), 20_000)));
        const result = await Promise.race([call(), end]);
        await result?.dispose?.();
        await result?.release?.();
      } catch (e) {
        if (e instanceof ew.EdgewiseError) return e.what ? "" : "an error without words";
        return String(e?.stack ?? e).slice(0, 240);
      } finally {
        clearTimeout(timer);
      }
      return "";
    }
    async function attack(name, call, good) {
      const errors = [];
      for (const wrong of WRONG) {
        const count = Math.max(call.length, 1);
        const tries = good
          ? good.map((_, i) => good.map((value, j) => (i === j ? wrong : value)))
          : [Array(count).fill(wrong)];
        const options = good?.at(-1);
        if (options?.constructor === Object && wrong !== undefined) {
          for (const key of Object.keys(options))
            tries.push([...good.slice(0, -1), { ...options, [key]: wrong }]);
        }
        for (const args of tries) {
          const error = await foreign(() => (isClass(call) ? new call(...args) : call(...args)));
          if (error) errors.push(`${name}(${args.map(show)}): ${error}`);
        }
      }
      return errors;
    }
    /** Names of the methods of an object, and of its class. */
    function methods(of) {
      const found = new Set();
      for (let at = of; at && at !== Object.prototype && at !== Function.prototype;
           at = Object.getPrototypeOf(at))
        for (const [key, { value }] of Object.entries(Object.getOwnPropertyDescriptors(at)))
          if (typeof value === "function" && !isClass(value) && PUBLIC.has(key)) found.add(key);
      for (const key of ["dispose", "release", "end"]) found.delete(key);
      return [...found];
    }
    async function attackMethods(name, of) {
      const errors = [];
      for (const key of methods(of))
        errors.push(...(await attack(`${name}.${key}`, of[key].bind(of))));
      return errors;
    }
"""


def run(visit, script: str, arg=None) -> None:
    """Runs a script with the functions above, which know the methods of the declarations."""
    declared = (WEB / "dist" / "edgewise.d.ts").read_text()
    method = r"^\s*(?:static |async |readonly )*(\w+)(?:<[^(]*>)?\??(?:\(|: \()"
    names = sorted(set(re.findall(method, declared, re.M)) - {"constructor", "evaluation"})
    assert {"run", "encode", "setParameter", "toBlob"} <= set(names)
    errors = visit.run(f"const NAMES = {json.dumps(names)};" + SETUP + script, arg)
    assert errors == [], show(errors)


def show(errors: list[str] | dict) -> str:
    """In lines; a dict: the script itself failed."""
    return str(errors) if isinstance(errors, dict) else "\n".join(errors)


def test_functions_and_classes(visit, server) -> None:
    run(
        visit(server),
        """
            const errors = [];
            for (const [name, call] of Object.entries(ew)) {
              const isError = call?.prototype instanceof Error;
              if (typeof call !== "function" || isError || name === "EdgewiseError") continue;
              if (!MADE.includes(name)) errors.push(...(await attack(name, call)));
              if (isClass(call)) errors.push(...(await attackMethods(name, call)));
            }
            return errors;
        """,
    )


def test_text_generation(visit, server) -> None:
    run(
        visit(server),
        """
            const write = await ew.pipeline("text-generation", "/files/model.edge");
            const errors = await attack("write", write, ["Once", { max_new_tokens: 1 }]);
            const options = { max_new_tokens: 1, do_sample: true, temperature: 1, top_k: 3,
              top_p: 0.5, seed: 1, stop_strings: "x", streamer: () => 0, num_beams: 1,
              return_full_text: true, repetition_penalty: 1, bad_words_ids: [[1]] };
            errors.push(...(await attack("write", write, ["Once", options])));
            errors.push(...(await attackMethods("write", write)));
            errors.push(...(await attackMethods("tokenizer", write.tokenizer)));
            errors.push(...(await attackMethods("streamer", new ew.TextStreamer(write.tokenizer))));
            await write.dispose();
            return errors;
        """,
    )


def test_training(visit, server, trainable) -> None:
    run(
        visit(server),
        """
            const write = await ew.pipeline("text-generation", "/files/trainable.edge");
            const options = { epochs: 1, steps: 1, learningRate: 1e-3, onStep: () => 0, seed: 1 };
            const text = "One two three. ".repeat(9);
            const errors = await attack("fineTune", ew.fineTune, [write, text, options]);
            const trainer = await ew.Trainer.create(write, text);
            errors.push(...(await attackMethods("trainer", trainer)));
            await write.dispose();
            return errors;
        """,
    )


def test_values(visit, server) -> None:
    run(
        visit(server),
        """
            const x = new ew.Tensor("float32", new Float32Array(6), [2, 3]);
            const errors = await attackMethods("tensor", x);
            const six = ["float32", new Float32Array(6), [2, 3]];
            errors.push(...(await attack("Tensor", ew.Tensor, six)));
            const image = new ew.RawImage(new Uint8Array(12), 2, 2, 3);
            errors.push(...(await attackMethods("image", image)));
            errors.push(...(await attack("RawImage", ew.RawImage, [new Uint8Array(12), 2, 2, 3])));
            const index = await ew.VectorIndex.create([[1, 0], [0, 1]]);
            errors.push(...(await attackMethods("index", index)));
            errors.push(...(await attack("index.search", index.search.bind(index), [[1, 0], 1])));
            return errors;
        """,
    )


def test_inference_sessions(visit, server, artifacts) -> None:
    run(
        visit(server),
        """
            const url = "/files/artifacts/eval_model.onnx";
            const errors = await attack("InferenceSession.create", ew.InferenceSession.create,
              [url, { flavour: "simd128", threads: 1, freeDimensionOverrides: {}, proxy: false }]);
            const s = await ew.InferenceSession.create(url);
            errors.push(...(await attackMethods("session", s)));
            await s.release();
            return errors;
        """,
    )


def test_training_sessions(visit, server, artifacts) -> None:
    run(
        visit(server),
        CREATE + "const s = await open(); return attackMethods('session', s);",
        {"x": artifacts["x"], "y": artifacts["y"]},
    )


@pytest.mark.parametrize(
    "task, name, good",
    [
        ("image-classification", "see", "new ew.RawImage(new Uint8Array(3072), 32, 32, 3)"),
        ("automatic-speech-recognition", "morse", "new Float32Array(16000)"),
        ("speaker-verification", "voice", "new Float32Array(16000)"),
        ("text-to-image", "draw", "'x'"),
    ],
)
def test_pipelines(visit, server, files, task, name, good) -> None:
    package = WEB / "dist" / "demo" / f"{name}.edge"
    if not package.exists():
        pytest.skip("run `make .build/stamp/demo-model`")
    shutil.copy(package, files / f"wrong-{name}.edge")
    run(
        visit(server),
        f"const good = {good};"
        + """
            const pipe = await ew.pipeline(arg.task, arg.url);
            const errors = await attack(arg.task, pipe, [good, {}]);
            errors.push(...(await attackMethods(arg.task, pipe)));
            await pipe.dispose();
            return errors;
        """,
        {"task": task, "url": f"/files/wrong-{name}.edge"},
    )
