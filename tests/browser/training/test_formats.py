"""What a page learned, in llama.cpp: the npm package @wllama/wllama runs the files that the page
exports, and writes the same text.
"""

import json
import shutil

from edgewise import merge_adapter
from huggingface_hub import ModelCard

from ..conftest import MODEL, ROOT
from .harness import train

WLLAMA = ROOT / ".build" / "bundlers" / "node_modules" / "@wllama" / "wllama" / "esm"

EXPORTS = """
    const { losses } = await ew.fineTune(p, arg.text, { max_steps: 8, learning_rate: 5e-3, r: 3 });
    const text = (await p(arg.prompt, { max_new_tokens: 20, do_sample: false,
      return_full_text: false }))[0].generated_text;
    const onnx = "/demo/model/onnx/model_q4.onnx";
    const [merged] = await p.exportModel("adapter",
      { format: "gguf", quantization: "f32", files: onnx });
    const config = new File([await (await fetch("/demo/model/config.json")).blob()], "config.json");
    const [alone] = await p.exportAdapter("adapter", { format: "gguf", files: config });
    const peft = await p.exportAdapter("adapter",
      { format: "peft", files: config, base_model: "small/storyteller", license: "mit" });
    const card = await peft.find((f) => f.name === "README.md").text();
    const errors = [];
    const fails = [
      () => p.exportModel("adapter", { format: "gguf" }),
      () => p.exportModel("nobody", { format: "gguf", files: onnx }),
      () => p.exportModel("adapter", { format: "gguf", files: onnx, quantization: "q9" }),
      () => p.exportAdapter("adapter", { format: "pickle", files: config }),
    ];
    for (const fail of fails) errors.push(await fail().then(() => "", (e) => [e.name, e.message]));
    await p.dispose();

    // llama.cpp: the adapter is a second file, which wllama takes for a part of the model
    const { Wllama } = await import("/files/wllama/index.js");
    const quiet = { debug() {}, log() {}, warn() {}, error() {} };
    const run = async (blobs) => {
      const wllama = new Wllama({ default: "/files/wllama/wasm/wllama.wasm" },
        { logger: quiet, suppressNativeLog: true });
      let proxy = null;
      Object.defineProperty(wllama, "proxy", {
        get: () => proxy,
        set(made) {
          if (made) {
            const act = made.wllamaAction.bind(made);
            made.wllamaAction = (verb, message, ...more) => {
              if (message?.model_paths) message.model_paths = message.model_paths.slice(0, 1);
              return act(verb, message, ...more);
            };
          }
          proxy = made;
        },
      });
      const options = { n_ctx: 128, n_threads: 1, n_gpu_layers: 0, warmup: false, jinja: false,
        n_parallel: 1, cache_type_k: "f32", cache_type_v: "f32", flash_attn: false };
      if (blobs.length > 1)
        options.lora_adapters = [{ path: "/models/model-00002-of-00002.gguf" }];
      await wllama.loadModel(blobs, options);
      const made = await wllama.createCompletion({ prompt: arg.prompt, max_tokens: 20,
        temperature: 0, top_k: 1, stream: false });
      await wllama.exit();
      return made.choices[0].text;
    };
    const base = await (await fetch("/files/base.gguf")).blob();
    return {
      text,
      card,
      losses,
      errors,
      merged: await run([merged]),
      base: await run([base]),
      beside: await run([base, alone]),
      names: [merged.name, alone.name],
    };
"""


def test_llama_cpp_writes_the_same(visit, server, trainable, files):
    shutil.copytree(WLLAMA, files / "wllama", dirs_exist_ok=True)
    merge_adapter(MODEL, None, files / "base.gguf", quantization="f32")
    got = train(visit(server), EXPORTS, prompt="Once upon a time")
    assert "error" not in got, json.dumps(got)[:900]
    assert got["merged"] == got["text"] == got["beside"] != got["base"]
    assert got["names"] == ["model.gguf", "adapter.gguf"]
    card = ModelCard(got["card"])
    assert (card.data.base_model, card.data.license) == ("small/storyteller", "mit")
    first, last = got["losses"][0], got["losses"][-1]
    assert f"| losses | {first:.4f} at first, {last:.4f} at last |" in card.text
    assert "| updates | 8 |" in card.text and "| r | `3` |" in card.text
    kinds, words = zip(*got["errors"], strict=True)
    assert kinds == ("InputError",) * 4
    assert "built from" in words[0] and "nobody" in words[1]
    assert "q9" in words[2] and "pickle" in words[3]
