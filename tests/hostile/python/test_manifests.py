"""The two readers of packages under random changes of the manifest's text: literals on which JSON
of Python and of JavaScript differ, wrong UTF-8, keys of JavaScript's objects, and lists and numbers
out of place. Both give the same verdict; the words may quote a value as JSON of the language does.
"""

import copy
import io
import json
import random

import pytest
from edgewise.logic.manifest.package import signed

from ..damage import damage_json
from ..packages import joined, places, split, tasks
from ..test_readers import both

LITERALS = [
    *(b"1.0 1e0 1E2 -0 0.0 -0.0 1e400 -1e400 1e-400 0.1e1 2147483648 4294967296 -1".split()),
    *(b"9007199254740991 9007199254740993 18446744073709551616 NaN Infinity -Infinity".split()),
    *(b"01 +1 .5 1. 0x10 1_0 tru TRUE None undefined [1,] {a:1} 'a' nul".split()),
    b"1" + b"0" * 400,
    b"1" + b"0" * 5000,
    b"0." + b"0" * 400 + b"1",
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\ud83d\\ude00"',
    b'"\\u0000"',
    b'"\\/"',
    b'"\\x41"',
    b'"\\u12"',
    b'"\t"',
    b'"\x7f"',
    b'"\xc2\xa0"',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"\xff"',
    b'"\xe2\x80\xa8"',
    b'"e\xcc\x81"',
    b'{"a":1,"a":2}',
    b'{"__proto__":{"bytes":1}}',
    b'{"constructor":1,"toString":2,"hasOwnProperty":3}',
    b'{"length":3,"0":1}',
    b"\xef\xbb\xbf1",
    b" 1\r\n",
    b"\x0c1",
    b"\xc2\xa01",
    b"/*a*/1",
    b"[" * 70 + b"]" * 70,
    b"[[[[]]]]",
]
KEYS = [b'"__proto__"', b'"constructor"', b'"length"', b'"\\ud800"', b'"a\\u0000"', b"a", b'"x"']


def damaged(rng: random.Random, manifest: dict) -> bytes:
    """The text of a changed manifest with its checksum."""
    manifest = damage_json(rng, manifest, 1) if rng.random() < 0.3 else copy.deepcopy(manifest)
    mark, everywhere = "@mark@", [p for p in places(manifest) if p and p != ("manifest_sha256",)]
    path = rng.choice(everywhere)
    at = manifest
    for k in path[:-1]:
        at = at[k]
    if isinstance(at, dict) and rng.random() < 0.2:
        at[mark], new = at.pop(path[-1]), rng.choice(KEYS)
    else:
        at[path[-1]], new = mark, rng.choice(LITERALS)
    own = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
    text = json.dumps({"manifest_sha256": "0" * 64, **own}, separators=(",", ":")).encode()
    return signed(text.replace(b'"' + mark.encode() + b'"', new, 1))


@pytest.mark.parametrize("seed", range(4))
def test_literals_out_of_place(seed, page):
    """The large manifests of decoders are in test_readers.py; these are quickly read."""
    rng = random.Random(seed)
    for package in tasks().values():
        package.write(file := io.BytesIO())
        manifest, rest = split(file.getvalue())
        for _ in range(40):
            both(page, joined(damaged(rng, manifest), rest), words=False)
