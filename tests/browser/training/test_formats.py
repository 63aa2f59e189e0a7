"""What a page learned, in llama.cpp: the npm package @wllama/wllama runs the files that the page
exports, and writes the same text.
"""

import json
import shutil

import pytest
from edgewise import LoraConfig, Trainer, convert_adapter, merge_adapter
from generation.family_folders import hub_folder, text_of
from generation.test_families import EXPECTED, PROMPTS
from huggingface_hub import ModelCard
from tiers import slow_unless

from ..conftest import MODEL, ROOT
from .harness import train

WLLAMA = ROOT / ".build" / "bundlers" / "node_modules" / "@wllama" / "wllama" / "esm"

RUN = """
    // llama.cpp: the adapter is a second file, which wllama takes for a part of the model
    const { Wllama } = await import("/files/wllama/index.js");
    const quiet = { debug() {}, log() {}, warn() {}, error() {} };
    const run = async (blobs, prompt, tokens) => {
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
      const made = await wllama.createCompletion({ prompt, max_tokens: tokens,
        temperature: 0, top_k: 1, stream: false });
      await wllama.exit();
      return made.choices[0].text;
    };
"""
EXPORTS = (
    RUN
    + """
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

    const base = await (await fetch("/files/base.gguf")).blob();
    return {
      text,
      card,
      losses,
      errors,
      merged: await run([merged], arg.prompt, 20),
      base: await run([base], arg.prompt, 20),
      beside: await run([base, alone], arg.prompt, 20),
      names: [merged.name, alone.name],
    };
"""
)
FAMILIES = (
    RUN
    + """
    const made = {};
    for (const [name, names, prompt, tokens] of arg.models) {
      const blobs = [];
      for (const file of names) blobs.push(await (await fetch(`/files/${file}.gguf`)).blob());
      made[name] = await run(blobs, prompt, tokens);
    }
    return made;
"""
)
MODELS = [
    ["optimum_gemma3_six", "optimum_mixtral"],
    ["optimum_gemma2", "optimum_phi4", "GenAI_phi4_long", "optimum_glm4"],
    ["optimum_cohere", "transformers_cohere2_tied", "optimum_exaone4_full"],
    ["optimum_qwen3_moe_real"],
]


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


def said(greedy):
    """The tokens before the first one that has no letter."""
    return next((greedy[:i] for i, token in enumerate(greedy) if token < 3), greedy)


@pytest.mark.parametrize("names", slow_unless(lambda names: "optimum_mixtral" in names, MODELS))
def test_llama_cpp_writes_what_transformers_does(visit, server, files, tmp_path, names):
    """Further families; and an adapter of experts beside a model as merged into it."""
    shutil.copytree(WLLAMA, files / "wllama", dirs_exist_ok=True)
    runs, want = [], {}
    for name in names:
        (folder := tmp_path / name).mkdir()
        hub_folder(name, folder)
        merge_adapter(folder, None, files / f"{name}.gguf", quantization="f32")
        texts = zip(PROMPTS, map(said, EXPECTED[name]["greedy"]), strict=True)
        if "long" in name:  # transformers changes tables in mid-text of the short one
            texts = list(texts)[1:]
        prompt, tokens = max(texts, key=lambda both: len(both[1]))
        assert len(tokens) >= 10, name
        runs.append([name, [name], text_of(prompt), len(tokens)])
        want[name] = text_of(tokens)
    if "optimum_mixtral" in names:
        experts(tmp_path / "optimum_mixtral", files, tmp_path)
        for name, both in (("merged", ["merged"]), ("beside", ["optimum_mixtral", "experts"])):
            runs.append([name, both, text_of(PROMPTS[0]), 10])
    got = visit(server).run(FAMILIES, {"models": runs})
    if "optimum_mixtral" in names:
        merged = got.pop("merged")
        assert merged == got.pop("beside") and len(merged) > 5, merged
    assert got == want


def experts(folder, files, tmp_path):
    """Writes a model with an adapter of its experts, and that adapter alone."""
    trainer = Trainer(
        folder,
        adapters=LoraConfig(r=4, lora_alpha=8, target_modules=["w1", "w2", "v_proj"]),
        learning_rate=5e-2,
        batch_size=1,
        sequence_length=12,
    )
    for _ in range(3):
        trainer.step({"input_ids": [list(range(5, 17))], "labels": [list(range(5, 17))]})
    trainer.save_adapter(tmp_path / "adapter")
    trainer.free()
    merge_adapter(folder, tmp_path / "adapter", files / "merged.gguf", quantization="f32")
    convert_adapter(tmp_path / "adapter", folder, files / "experts.gguf", quantization="f32")
