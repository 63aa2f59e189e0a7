"""optical-character-recognition: bars of colors are read as what they are. Boxes are compared with
those of RapidOCR in tests/logic/test_ocr.py.
"""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from edgewise.compiler.task_package import compile_task
from edgewise.errors import InputError
from edgewise.host.session.open import folder_files

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torch")
pytest.importorskip("onnx")

from .tiny_ocr import make, page  # noqa: E402

BARS = [("rgb", 30, 40, 240, 24), ("gb", 40, 120, 160, 30), ("rbr", 220, 122, 150, 30)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("ocr"))


@pytest.fixture(scope="module")
def packaged(folder):
    main(["build", "--task", "ocr", str(folder), "-o", str(folder / "model.edge")])
    return folder / "model.edge"


def check(found, bars):
    """The texts, and boxes around the bars that are a little larger."""
    assert [one["text"] for one in found] == [bar[0] for bar in bars]
    for one, (_, left, top, width, height) in zip(found, bars):
        (x0, y0), (x1, y1), (x2, y2), (x3, y3) = one["box"]
        assert 0.6 < one["score"] <= 1
        more = 2 * height
        assert left - more < min(x0, x3) <= left and top - more < min(y0, y1) <= top
        assert left + width - 2 <= max(x1, x2) < left + width + more
        assert top + height - 2 <= max(y2, y3) < top + height + more


@pytest.mark.parametrize("packed", [False, True])
def test_lines(folder, packaged, packed):
    with pipeline("ocr", packaged if packed else folder) as read:
        check(read(page(BARS)), BARS)
        assert read(page([])) == []
        assert read(np.full((1, 1, 3), 255, np.uint8)) == []
        assert read(page(BARS), text_score=1) == []
        strip = [("rgb", 20, 4, 240, 20)]
        check(read(page(strip, 28, 400)), strip)
        up = np.rot90(page([("rg", 100, 100, 120, 20)]))  # is turned by another quarter
        assert [one["text"] for one in read(up, use_cls=False)] == ["gr"]
        assert [one["text"] for one in read(up)] == ["rg"]


@pytest.mark.parametrize("packed", [False, True])
def test_turned_texts(folder, packaged, packed):
    """What is upside down is turned, unless it is not asked for."""
    bars = [("gr", 60, 50, 240, 30)]
    with pipeline("ocr", packaged if packed else folder) as read:
        assert [one["text"] for one in read(page(bars))] == ["rg"]
        assert [one["text"] for one in read(page(bars), use_cls=False)] == ["gr"]


@pytest.mark.parametrize("packed", [False, True])
def test_slanted_texts(folder, packaged, packed):
    bars = [("rgb", 60, 130, 240, 30)]
    turned = Image.fromarray(page(bars)).rotate(9, fillcolor=(255, 255, 255))
    with pipeline("ocr", packaged if packed else folder) as read:
        (line,) = read(turned)
    assert line["text"] == "rgb"
    (x0, y0), (x1, y1) = line["box"][:2]
    assert np.degrees(np.arctan2(y0 - y1, x1 - x0)) == pytest.approx(9, abs=1)


def test_dictionaries(tmp_path):
    """A text beside the recognizer, which has to be the model's; and no directions."""
    folder = make(tmp_path / "model", metadata=False, directions=False)
    with pipeline("ocr", folder) as read:
        check(read(page(BARS)), BARS)
    files, _ = folder_files(folder)
    assert "cls" not in compile_task(files, "ocr").manifest["programs"]
    for text, what in (
        ("r\ng\nb\na\nc\n", "has 5 characters, and the model knows 3"),
        ("r\n", "has 1 characters, and the model knows 3"),
        ("\udcff", "no text in UTF-8"),
    ):
        (folder / "dict.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(InputError, match=what), pipeline("ocr", folder) as read:
            read(page(BARS))
    (folder / "dict.txt").unlink()
    with pytest.raises(InputError, match="there is no dictionary"), pipeline("ocr", folder) as read:
        read(page(BARS))


def test_what_is_refused(folder, tmp_path):
    with pipeline("ocr", folder) as read:
        for name, value in (("thresh", 2), ("box_thresh", "x"), ("use_cls", 1), ("text_score", -1)):
            with pytest.raises(InputError, match=name):
                read(page(BARS), **{name: value})
        with pytest.raises(InputError, match="picture"):
            read(3)
        check(read(page(BARS)), BARS)
    with pytest.raises(InputError, match="there is no det.onnx"):
        pipeline("ocr", tmp_path)
