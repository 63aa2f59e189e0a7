"""onnxruntime-common's Tensor beside ours."""

ARRAYS = {
    "float32": "Float32Array.of(1, -2, 0.5, 3)",
    "float64": "Float64Array.of(1, -2, 0.5, 3)",
    "float16": "Float16Array.of(1, -2, 0.5, 3)",
    "int8": "Int8Array.of(1, -2, 3, 4)",
    "uint8": "Uint8Array.of(1, 2, 3, 255)",
    "int16": "Int16Array.of(1, -2, 3, 4)",
    "uint16": "Uint16Array.of(0x3c00, 0x4000, 3, 4)",
    "int32": "Int32Array.of(1, -2, 3, 4)",
    "uint32": "Uint32Array.of(1, 2, 3, 4)",
    "int64": "BigInt64Array.of(1n, -2n, 3n, 4n)",
    "uint64": "BigUint64Array.of(1n, 2n, 3n, 4n)",
    "bool": "Uint8Array.of(1, 0, 1, 1)",
    "clamped": "Uint8ClampedArray.of(1, 2, 3, 255)",
}
LISTS = ["[1, 2, 3, 4]", "[1n, 2n, 3n, 4n]", "[true, false, true, true]", "[]"]
OTHERS = ["{}", "new ArrayBuffer(4)", "null", "7"]
DIMS = ["[4]", "[2, 2]", "[5]", "[2, -2]", "[2, 1.5]", "[2, '2']", "{}", "4", "undefined"]

PICTURE = """
    const image = new ImageData(3, 2);
    image.data.set(Array.from({ length: 24 }, (_, i) => (i % 4 === 3 ? 255 : (i * 37) % 256)));
"""
NORM = "{ mean: [64, 128, 32], bias: [-1, 2, 0] }"
PIXELS = (
    "const t = new lib.Tensor('float32', Float32Array.from({ length: SIZE }, (_, i) => i / 32),"
    " DIMS); const { data, width, height } = t.toImageData(OPTIONS);"
    " return { data: Array.from(data), width, height };"
)
PICTURES = [
    f"{PICTURE} return lib.Tensor.fromImage(image)",
    f"{PICTURE} return lib.Tensor.fromImage(image, {{ tensorFormat: 'BGR' }})",
    f"{PICTURE} return lib.Tensor.fromImage(image, {{ tensorFormat: 'RGBA' }})",
    f"{PICTURE} return lib.Tensor.fromImage(image, {{ norm: {NORM} }})",
    f"{PICTURE} return lib.Tensor.fromImage(await createImageBitmap(image), {{}})",
    "return lib.Tensor.fromImage(7)",
    PIXELS.replace("SIZE", "18").replace("DIMS", "[1, 3, 2, 3]").replace("OPTIONS", ""),
    PIXELS.replace("SIZE", "18")
    .replace("DIMS", "[1, 3, 2, 3]")
    .replace("OPTIONS", "{ format: 'RGB', norm: { mean: [64, 128, 32], bias: [0, 0.125, 0] } }"),
    PIXELS.replace("SIZE", "24")
    .replace("DIMS", "[1, 4, 2, 3]")
    .replace("OPTIONS", "{ format: 'RGBA' }"),
]


def test_pictures(compared):
    compared("pictures", "onnxruntime-common/dist/esm/index.js", PICTURES, "/edgewise.js")


def test_tensors(compared):
    """Every type with every array and list: the same tensor, or an error of the same class. Only
    lists of strings and numbers, which become tensors of strings there, are refused here.
    """
    types = [name for name in ARRAYS if name != "clamped"]
    given = [*ARRAYS.values(), *LISTS, *OTHERS]
    snippets = [f"return new lib.Tensor({t!r}, {g})" for t in types for g in given]
    snippets += [f"return new lib.Tensor({g})" for g in [*given[:-3], "['a', 'b']"]]
    snippets += [f"return new lib.Tensor('float32', [1, 2, 3, 4], {d})" for d in DIMS]
    snippets += [f"return new lib.Tensor(Float16Array.of(1, 2, 3, 4), {d})" for d in DIMS]
    snippets += ["return new lib.Tensor('string', ['a', 'b'], [2, 1])"]
    snippets += ["return new lib.Tensor('string', 7)", "return new lib.Tensor('none', [1])"]
    compared("onnxruntime", "onnxruntime-common/dist/esm/index.js", snippets, "/edgewise.js")
