"""Pipelines of pictures in a page: from the file on the same as transformers, whose processor
resizes with Pillow.
"""

import json
import struct
import zlib

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")  # transformers' image processors need it

import torch  # noqa: E402
import transformers  # noqa: E402
from edgewise.cli import main  # noqa: E402

from .test_text import close  # noqa: E402

MODEL = "/files/pictures/model.edge"


@pytest.fixture(scope="module")
def reference(files):
    """transformers' pipeline; writes a tiny ViT, its package and pictures."""
    folder = files / "pictures"
    (folder / "vit/onnx").mkdir(parents=True)
    torch.manual_seed(1)
    names = {i: f"class {i}" for i in range(7)}
    config = transformers.ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        id2label=names,
        label2id={v: k for k, v in names.items()},
    )
    model = transformers.ViTForImageClassification(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 40}, crop_size=32)
    processor.save_pretrained(folder / "vit")
    (folder / "vit/config.json").write_text(json.dumps(config.to_dict()))
    torch.onnx.export(
        model,
        torch.zeros(1, 3, 32, 32),
        str(folder / "vit/onnx/model.onnx"),
        input_names=["pixel_values"],
        output_names=["logits"],
        dynamic_axes={"pixel_values": {0: "batch"}, "logits": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    arguments = ["--task", "image-classification", str(folder / "vit"), "-o"]
    main(["build", *arguments, str(folder / "model.edge")])
    y, x = np.mgrid[0:90, 0:130]
    pixels = np.stack([2 * y, x, (x * y) % 255], -1).astype(np.uint8)
    pixels[20:50, 30:60] = (200, 30, 90)
    Image.fromarray(pixels).save(folder / "a.png")
    Image.fromarray(pixels[::-1, :70, ::-1].copy()).save(folder / "b.png")
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:300])
    head = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    (folder / "huge.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    )
    pipe = transformers.pipeline("image-classification", model=model, image_processor=processor)
    return lambda name, **options: pipe(Image.open(folder / name), **options)


@pytest.fixture
def page(visit, server, reference):
    return visit(server)


def test_pictures_of_every_kind(page, reference):
    found = page.run(
        """
            const p = await ew.pipeline("image-classification", arg);
            const url = "/files/pictures/a.png";
            const file = await (await fetch(url)).blob();
            const image = new Image();
            image.src = url;
            await image.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            const context = canvas.getContext("2d");
            context.drawImage(image, 0, 0);
            const data = context.getImageData(0, 0, canvas.width, canvas.height);
            const rgb = data.data.filter((_, i) => i % 4 !== 3);
            const { width, height } = data;
            const kinds = [
              url,
              new URL(url, location.href),
              file,
              image,
              canvas,
              data,
              await createImageBitmap(file),
              { data: rgb, width, height, channels: 3 },
            ];
            const results = await p(kinds);
            const two = await p([url, "/files/pictures/b.png"], { top_k: 2 });
            await p.dispose();
            return [results, two];
        """,
        MODEL,
    )
    assert "error" not in found, found
    results, two = found
    want = reference("a.png")
    for result in results:
        close(result, want)
    close(two, [reference("a.png", top_k=2), reference("b.png", top_k=2)])


def test_a_folder_is_compiled(page, reference):
    found = page.run(
        """
            const options = { dtype: "fp32" };
            const p = await ew.pipeline("image-classification", "/files/pictures/vit/", options);
            const result = await p("/files/pictures/b.png", { top_k: null });
            await p.dispose();
            return [result, p.info.origin];
        """
    )
    assert "error" not in found, found
    close(found[0], reference("b.png", top_k=7))
    assert found[1] == "compiled"


def test_pictures_that_are_refused(page, reference):
    found = page.run(
        """
            const p = await ew.pipeline("image-classification", arg);
            const errors = [];
            for (const input of [
              "/files/pictures/broken.png",
              "/files/pictures/huge.png",
              "/files/pictures/none.png",
              new Blob(["no picture"]),
              { data: new Uint8Array(5), width: 1, height: 1, channels: 3 },
              { data: new Uint8Array(0), width: 0, height: 0, channels: 3 },
              { data: new Uint8Array(4), width: 20000, height: 20000, channels: 4 },
              7,
              null,
              "http://[",
            ])
              errors.push(await p(input).then(
                () => "nothing",
                (e) => `${e.name} ${e.where}: ${e.what}`,
              ));
            const result = await p("/files/pictures/a.png");
            await p.dispose();
            return [errors, result];
        """,
        MODEL,
    )
    assert "error" not in found, found
    errors, result = found
    assert all(e.startswith("InputError") for e in errors), errors
    assert "huge.png" in errors[1] and "20000 x 20000" in errors[1], errors
    close(result, reference("a.png"))
