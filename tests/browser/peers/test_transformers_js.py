"""transformers.js beside `edgewise/transformers`: snippets that differ in the import alone."""

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from ..conftest import MODEL as DEMO

THEIRS = "@huggingface/transformers/dist/transformers.min.js"
OURS = "/transformers.js"

X = "const x = new lib.Tensor('float32', Float32Array.from({ length: 24 }, (_, i) => i / 4), "
X3 = X + "[2, 3, 4]);"
I = "const i = new lib.Tensor('int64', BigInt64Array.of(3n, -1n, 2n, 4n), [2, 2]);"
TENSORS = [
    X3 + "return x.tolist()",
    I + "return i.tolist()",
    "return new lib.Tensor('float32', [7], []).tolist()",
    "return new lib.Tensor('bool', [true, false], [2]).tolist()",
    X3 + "return x.slice(1)",
    X3 + "return x.slice(null, [1, 3])",
    X3 + "return x.slice([0, 1], null, [1, -1])",
    X3 + "return x.slice(-1, [null, 2], [-2, null])",
    X3 + "return x.slice(null, -1, -1)",
    X3 + "return x.slice(5)",
    X3 + "return x.view(6, 4)",
    X3 + "return x.view(-1, 2)",
    X3 + "return [x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(1)].map((t) => t.dims)",
    X + "[1, 24, 1]); return [x.squeeze(), x.squeeze(0), x.squeeze([0, 2])].map((t) => t.dims)",
    X3 + "return [x.permute(2, 0, 1), x.transpose(1, 0, 2)]",
    X3 + "return [x.flatten(), x.flatten(1), x.flatten(0, 1)].map((t) => t.dims)",
    X3 + "return [x.sum(), x.sum(1), x.sum(-1, true)]",
    X3 + "return [x.mean(), x.mean(1), x.mean(-1, true)]",
    X3 + "return [x.norm(), x.norm(2, 1), x.norm(1, -1, true)]",
    X3 + "return x.sub(3).normalize(2, -1).mul(1024).round()",
    X3 + "return [x.max(), x.max(1), x.min(-1, true)]",
    X3 + "return [x.mul(2), x.div(2), x.add(1), x.sub(1), x.neg(), x.clamp(1, 2)]",
    X3 + "return x.sub(2).sigmoid().mul(4096).round()",
    X3 + "x.mul_(2); x.add_(1); return x",
    X3 + "return x.to('int32')",
    X3 + "return x.to('int64')",
    I + "return i.to('float32')",
    X3 + "return x.map((v) => v * 2)",
    X3 + "return x.stride()",
    X3 + "return Array.from(x, (row) => row.dims)",
    "return [...new lib.Tensor('float32', [1, 2], [2])]",
    "return new lib.Tensor('float32', [5], [1]).item()",
    X3 + "return x.item()",
    X3 + "const y = x.clone(); y.data[0] = 9; return [x.data[0], y.data[0]]",
]
FUNCTIONS = [
    "return lib.softmax([1, 2, 3]).map((v) => Math.round(v * 4096))",
    "return lib.log_softmax([1, 2, 3]).map((v) => Math.round(v * 4096))",
    "return lib.softmax(Float32Array.of(1, 2)) instanceof Float32Array",
    "return [lib.dot([1, 2], [3, 4]), lib.cos_sim([1, 2], [2, 4])]",
    X3 + "return [lib.cat([x, x]), lib.cat([x, x], 1), lib.cat([x, x], -1)]",
    X3 + "return [lib.stack([x, x]), lib.stack([x, x], 1)]",
    "return [lib.full([2, 2], 3), lib.full([2], 3n), lib.full([2], true)]",
    "return [lib.ones([2]), lib.zeros([2, 1])]",
    X3 + "return [lib.ones_like(x), lib.zeros_like(x), lib.full_like(x, 0.5)].map((t) => t.type)",
    X3 + "return lib.mean(x, 1)",
    X3 + "return lib.permute(x, [1, 0, 2])",
    X3 + "const mask = new lib.Tensor('int64', [1n, 1n, 0n, 1n, 0n, 0n], [2, 3]);"
    "return lib.mean_pooling(x, mask)",
    X + "[6, 4]); return lib.layer_norm(x, [4]).mul(1024).round()",
]
IMAGE = """
    const image = new lib.RawImage(
      Uint8ClampedArray.from({ length: 6 * 4 * CHANNELS }, (_, i) => (i * 37) % 256), 6, 4, CHANNELS
    );
    const seen = ({ data, width, height, channels }) =>
      ({ data: Array.from(data), width, height, channels });
"""
CALLS = [
    "image",
    "image.clone()",
    "image.grayscale()",
    "image.rgb()",
    "image.rgba()",
    "image.convert(3)",
    "await image.resize(3, 2)",
    "await image.resize(3, null)",
    "await image.crop([1, 1, 3, 2])",
    "await image.center_crop(2, 2)",
    "await image.pad([1, 0, 2, 0])",
    "image.split()[0]",
    "lib.RawImage.fromTensor(image.toTensor())",
    "lib.RawImage.fromTensor(image.toTensor('HWC'), 'HWC')",
    "lib.RawImage.fromCanvas(image.toCanvas())",
    "await lib.RawImage.fromBlob(await image.toBlob())",
    "await lib.RawImage.read(URL.createObjectURL(await image.toBlob()))",
    "await lib.load_image(URL.createObjectURL(await image.toBlob()))",
    "await lib.RawImage.read(image)",
]
# The demo's model, as a page has its files beside it.
LOCAL = """
    lib.env.allowLocalModels = true;
    lib.env.allowRemoteModels = false;
    lib.env.localModelPath = "/files/local/";
    lib.env.backends.onnx.wasm.numThreads = 1;
    lib.env.backends.onnx.wasm.wasmPaths = "/files/peers/onnxruntime-web/dist/";
    const tokenizer = await lib.AutoTokenizer.from_pretrained("model");
"""
TEXTS = ["Once upon a time", "The cat said: don't!  \\n12 a\u00e9\U0001f642", ""]
TOKENS = [
    *[f"return tokenizer({text!r})" for text in TEXTS[:2]],
    f"return tokenizer({TEXTS!r}, {{ padding: true }})",
    f"return tokenizer({TEXTS!r}, {{ padding: true, truncation: true, max_length: 4 }})",
    f"return tokenizer({TEXTS!r})",
    f"return tokenizer({TEXTS[0]!r}, {{ return_tensor: false }})",
    f"return tokenizer({TEXTS!r}, {{ return_tensor: false }})",
    f"return tokenizer.encode({TEXTS[1]!r})",
    f"return tokenizer.tokenize({TEXTS[0]!r})",
    f"return tokenizer.decode(tokenizer.encode({TEXTS[1]!r}), {{ skip_special_tokens: true }})",
    f"const x = tokenizer({TEXTS!r}, {{ padding: true }});"
    "return tokenizer.batch_decode(x.input_ids)",
    "return tokenizer.batch_decode([[1, 2], [3n, 4n]])",
    "return [tokenizer.eos_token, tokenizer.eos_token_id ?? null]",
    "return [tokenizer.all_special_ids, tokenizer.all_special_tokens]",
]
MODEL = """
    const model = await lib.AutoModelForCausalLM.from_pretrained("model", { dtype: "q4" });
    const inputs = tokenizer("Once upon a time");
"""
GENERATE = [
    """
    const tokens = await model.generate({ ...inputs, max_new_tokens: 12, do_sample: false });
    const text = tokenizer.batch_decode(tokens, { skip_special_tokens: true });
    await model.dispose();
    return { text, tokens };
    """,
    """
    let streamed = "";
    const streamer = new lib.TextStreamer(tokenizer, {
      skip_prompt: true,
      skip_special_tokens: true,
      callback_function: (text) => void (streamed += text),
    });
    const stopping_criteria = new lib.StoppingCriteriaList();
    stopping_criteria.extend([new lib.InterruptableStoppingCriteria()]);
    const { sequences } = await model.generate({
      ...inputs,
      max_new_tokens: 12,
      do_sample: false,
      streamer,
      stopping_criteria,
      return_dict_in_generate: true,
    });
    await model.dispose();
    return { streamed, text: tokenizer.decode(sequences[0] ?? sequences.data) };
    """,
]
ALPHA = "image.putAlpha(new lib.RawImage(new Uint8Array(24).fill(7), 6, 4, 1))"


def test_tensors(compared):
    compared("tensors", THEIRS, TENSORS + FUNCTIONS, OURS)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images(compared, channels):
    """Pictures of all numbers of channels, opaque: canvases store colors times opacity."""
    image = IMAGE.replace("CHANNELS", str(channels))
    if channels == 4:
        image += "for (let i = 3; i < image.data.length; i += 4) image.data[i] = 255;"
    calls = CALLS + [ALPHA] * (channels > 1)
    snippets = [f"{image} return seen({call})" for call in calls]
    snippets.append(f"{image} return image.toTensor()")
    compared(f"images-{channels}", THEIRS, snippets, OURS)


# A WAV file of 16-bit samples at 16 kHz.
SOUND = """
    const values = Int16Array.from({ length: 64 }, (_, i) => 512 * ((i * 37) % 64) - 16384);
    const head = new DataView(new ArrayBuffer(44));
    const text = (at, word) => [...word].forEach((c, i) => head.setUint8(at + i, c.charCodeAt(0)));
    text(0, "RIFF"), text(8, "WAVEfmt "), text(36, "data");
    head.setUint32(4, 36 + values.byteLength, true), head.setUint32(16, 16, true);
    head.setUint16(20, 1, true), head.setUint16(22, CHANNELS, true);
    head.setUint32(24, 16000, true), head.setUint32(28, 32000 * CHANNELS, true);
    head.setUint16(32, 2 * CHANNELS, true), head.setUint16(34, 16, true);
    head.setUint32(40, values.byteLength, true);
    const url = URL.createObjectURL(new Blob([head, values]));
"""


def test_sounds(compared):
    sounds = [SOUND.replace("CHANNELS", n) + "return lib.read_audio(url, 16000)" for n in "12"]
    compared("sounds", THEIRS, sounds, OURS)


def test_models_of_one_file(visit, server, files):
    """AutoModel: inputs that the model lacks are left out, masks that nobody gives are ones."""
    folder = files / "one" / "onnx"
    folder.mkdir(parents=True)
    (files / "one" / "config.json").write_text('{"model_type": "sums"}')
    ids, mask, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["texts", "tokens"])
        for name in ("input_ids", "attention_mask", "y")
    )
    node = helper.make_node("Mul", ["input_ids", "attention_mask"], ["y"])
    graph = helper.make_graph([node], "g", [ids, mask], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8),
        folder / "model_fp16.onnx",
    )
    got = visit(server, alone=True).run("""
        const lib = await import("/transformers.js");
        const model = await lib.AutoModel.from_pretrained("/files/one", { dtype: "fp16" });
        const input_ids = new lib.Tensor("int64", [3n, 4n], [1, 2]);
        const attention_mask = new lib.Tensor("int32", [1, 0], [1, 2]);
        const all = [await model({ input_ids, other: 1 })];
        all.push(await model({ input_ids, attention_mask }));
        await model.dispose();
        const missing = lib.AutoModel.from_pretrained("/files/one", { dtype: "q4" });
        return [
          ...all.map(({ y }) => y.to("int32").tolist()),
          model.config.model_type,
          await missing.catch((e) => e.message),
        ];
    """)
    assert got[:3] == [[[3, 4]], [[3, 0]], "sums"], got
    assert "dtype" in got[3]


@pytest.fixture(scope="module")
def local(files, peers):
    """The demo's model with its 4-bit table as floats: ONNX Runtime Web has no such operator."""
    peers("onnxruntime-web/dist")
    folder = files / "local" / "model"
    shutil.copytree(DEMO, folder, dirs_exist_ok=True)
    model = onnx.load(folder / "onnx" / "model_q4.onnx")
    [node] = [n for n in model.graph.node if n.op_type == "GatherBlockQuantized"]
    weights = {t.name: t for t in model.graph.initializer}
    table, ids, scales = node.input
    rows = weights[table].dims[0]
    alone = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(ids, onnx.TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None)],
        [weights[table], weights[scales]],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    session = onnxruntime.InferenceSession(
        helper.make_model(alone, opset_imports=opsets, ir_version=10).SerializeToString()
    )
    [floats] = session.run(None, {ids: np.arange(rows)})
    model.graph.initializer.append(numpy_helper.from_array(floats, "table"))
    node.CopyFrom(helper.make_node("Gather", ["table", ids], list(node.output)))
    onnx.save(model, folder / "onnx" / "model_q4.onnx")


def test_tokenizers(compared, local):
    compared("tokenizers", THEIRS, [LOCAL + snippet for snippet in TOKENS], OURS)


def test_language_models(compared, local):
    compared("models", THEIRS, [LOCAL + MODEL + snippet for snippet in GENERATE], OURS)


def test_numbers_of_bits(visit, server):
    """bfloat16 has no array of JavaScript's: its bits become numbers, and nothing computes with
    them as if they were numbers. The same of float16 in browsers without Float16Array.
    """
    got = visit(server, alone=True).run("""
        const lib = await import("/transformers.js");
        const brain = new lib.Tensor("bfloat16", Uint16Array.of(0x3fc0, 0xc000), [2]);
        const all = { brain };
        delete globalThis.Float16Array;
        all.half = new lib.Tensor("float16", Uint16Array.of(0x3e00, 0xc000), [2]);
        const results = [];
        for (const t of Object.values(all)) {
          results.push([t.tolist(), t.to("float32").tolist(), t.to("int32").tolist(), [...t]]);
          for (const compute of ["mul", "sum", "mean", "sigmoid", "normalize", "max", "neg"])
            try {
              results.push(t[compute](2));
            } catch (e) {
              if (!(e instanceof lib.InputError)) throw e;
            }
          results.push(lib.cat([t.slice([1, 2]), t]).to("float32").tolist());
        }
        const packed = new lib.Tensor("int4", Uint8Array.of(0x21), [2]);
        for (const call of ["tolist", "to"])
          try {
            results.push(packed[call]("float32"));
          } catch (e) {
            if (!(e instanceof lib.InputError)) throw e;
          }
        return results;
    """)
    values = [1.5, -2.0]
    assert got == 2 * [[values, values, [1, -2], values], [-2.0, *values]]


@pytest.fixture
def language_model(visit, server):
    """Runs a snippet with `lib`, the demo's `model` and its `tokenizer`."""

    def run(snippet):
        return visit(server, alone=True).run(f"""
            const lib = await import("/transformers.js");
            const folder = "/files/hub/someone/tiny/resolve/main/";
            const tokenizer = await lib.AutoTokenizer.from_pretrained(folder);
            const model = await lib.AutoModelForCausalLM.from_pretrained(folder);
            const greedy = {{ max_new_tokens: 5, do_sample: false }};
            {snippet}
        """)

    return run


def test_prompts_of_other_lengths(language_model):
    """New tokens begin after input_ids, where scripts cut; they are those of the prompt alone."""
    got = language_model("""
        const texts = ["Once upon a time", "The cat"];
        const inputs = tokenizer(texts, { padding: true });
        const length = inputs.input_ids.dims.at(-1);
        const tokens = await model.generate({ ...inputs, ...greedy });
        const fresh = tokens.slice(null, [length, null]);
        const alone = [];
        for (const text of texts) {
          const one = tokenizer(text);
          const made = await model.generate({ ...one, ...greedy });
          alone.push(made.slice(null, [one.input_ids.dims.at(-1), null]).to("int32").tolist()[0]);
        }
        const numbers = (t) => t.to("int32").tolist();
        return [
          numbers(tokens.slice(null, [0, length])), numbers(inputs.input_ids),
          numbers(fresh), alone, numbers(inputs.attention_mask),
        ];
    """)
    prompts, given, fresh, alone, mask = got
    assert mask[1][0] == 0, "no padding"
    assert prompts == given
    assert fresh == alone


def test_interrupted_before(language_model):
    """Criteria that have been interrupted already end a generation, and do not fail it."""
    got = language_model("""
        const stopping_criteria = new lib.InterruptableStoppingCriteria();
        stopping_criteria.interrupt();
        const inputs = tokenizer("Once upon a time");
        const call = { ...inputs, ...greedy, stopping_criteria };
        const tokens = await model.generate(call);
        stopping_criteria.reset();
        const all = await model.generate(call);
        return [tokens, all, inputs.input_ids].map((t) => t.dims[1]);
    """)
    ended, whole, prompt = got
    assert prompt <= ended < whole == prompt + 5


def test_padding_side(language_model):
    """Scripts set it."""
    got = language_model("""
        return ["left", "right"].map((side) => {
          tokenizer.padding_side = side;
          const { attention_mask } = tokenizer(["Once upon a time", "The cat"], { padding: true });
          return attention_mask.to("int32").tolist()[1];
        });
    """)
    assert got == [[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]]
