"""Damages files: JSON values, bytes, and packages with consistent changes of manifest, plans and
checksums.
"""

import copy
import hashlib
import struct

from edgewise.compiler.plan.plan import HEADER
from edgewise.compiler.sums import source_sums
from edgewise.onnx import BytesSource

from .packages import joined, split

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    24,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    1 << 12,
    1 << 16,
    1 << 20,
    1 << 24,
    1 << 28,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 40,
    (1 << 53) - 1,
    1 << 53,
    1 << 62,
    (1 << 64) - 1,
    -1,
    -2,
    -8,
    -64,
    -(1 << 31),
    -(1 << 63),
)
VALUES = (
    None,
    True,
    False,
    1.0,
    1.5,
    -0.0,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    "(",
    "a*",
    "\\",
    "\0",
    "\ud800",
    "é",
    "__proto__",
    "weights",
    "plan/1",
    "plan/2",
    "input",
    "output",
    "cache",
    "state",
    "computed",
    "weight",
    "input_ids",
    "logits",
    "float16",
    "float32",
    "int64",
    "inference",
    "F8",
    "BOOL",
    "F64",
    "BF16",
    [],
    {},
    [0],
    [0, 0],
    [-1, 4],
    [0, 1 << 20],
    [1 << 40, 1 << 40],
    ["x"],
    {"a": 1},
    {"a": None},
    {"(": 1},
    {"past": 1, "last": 0},
)
KINDS = ("weight", "computed", "cache", "state", "input", "output")


def places(x, path=()):
    """Paths of all values in a JSON value; long lists are sampled."""
    if path:
        yield path
    if isinstance(x, dict):
        for k in x:
            yield from places(x[k], (*path, k))
    elif isinstance(x, list):
        for i in range(len(x)) if len(x) < 8 else (0, 1, 2, len(x) // 2, len(x) - 1):
            yield from places(x[i], (*path, i))


def damage_json(rng, value, times=None):
    """Returns a JSON value with parts removed, swapped, repeated, or replaced."""
    value = copy.deepcopy(value)
    for _ in range(times or rng.choice((1, 1, 2, 3))):
        everywhere = list(places(value))
        if not everywhere:
            break
        path = rng.choice(everywhere)
        at = value
        for k in path[:-1]:
            at = at[k]
        key, how = path[-1], rng.random()
        if how < 0.1:
            del at[key]
        elif how < 0.3:
            there = value
            for k in rng.choice(everywhere):
                there = there[k]
            at[key] = copy.deepcopy(there)
        elif how < 0.4 and isinstance(at, list):
            at.insert(rng.randrange(len(at) + 1), copy.deepcopy(at[key]))
        elif how < 0.5 and isinstance(at, dict):
            at[
                rng.choice(
                    (
                        "x",
                        "__metadata__",
                        "__proto__",
                        "lora_A",
                        "name",
                        f"{key}.lora_A.weight",
                        *at,
                    )
                )
            ] = at.pop(key)
        elif how < 0.75 and type(at[key]) is int:
            at[key] = (
                at[key] + rng.choice((-64, -8, -4, -1, 1, 4, 8, 64, 4096))
                if rng.random() < 0.6
                else rng.choice(NUMBERS)
            )
        else:
            at[key] = copy.deepcopy(rng.choice(VALUES + NUMBERS))
    return value


def damage_bytes(rng, data: bytes) -> bytes:
    """Returns bytes with some of them flipped, overwritten, removed or repeated."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        if not data:
            break
        at, how = rng.randrange(len(data)), rng.randrange(6)
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at] = rng.choice((0, 1, 127, 128, 255))
        elif how == 2:
            del data[at:]
        elif how == 3:
            data[at & ~3 : (at & ~3) + 4] = struct.pack(
                "<I", (rng.choice(NUMBERS) + rng.choice((0, 0, len(data)))) & 0xFFFFFFFF
            )
        elif how == 4:
            del data[at : at + rng.choice((1, 4, 16))]
        else:
            data[at:at] = data[at : at + rng.choice((1, 4, 16))]
    return bytes(data)


class DamagedPackage:
    """Unpacks a package, damages it, and packs it again, mostly with correct checksums.

    `notes` lists the changes.
    """

    def __init__(self, rng, package: bytes, others: list):
        self.rng, self.notes = rng, []
        self.manifest, data = split(package)
        self.parts = {
            name: bytearray(data[at : at + size])
            for name, (at, size) in self.manifest["files"].items()
        }
        self.others = others

    def make(self) -> bytes:
        """Applies some random changes; returns the damaged package."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2, 2, 3, 5))):
            how = rng.choice(
                (
                    self.one_size,
                    self.one_size,
                    self.one_name,
                    self.one_kind,
                    self.writable,
                    self.tokens,
                    self.numbers,
                    self.numbers,
                    self.structure,
                    self.weight_place,
                    self.exchange,
                    self.registers,
                )
            )
            try:
                how()
            except (
                KeyError,
                IndexError,
                TypeError,
                ValueError,
                AttributeError,
                struct.error,
                OverflowError,
            ):
                continue  # an earlier change has removed the target of this one
            self.notes.append(how.__name__)
        return self.whole()

    def plans(self) -> list:
        found = []
        for part in ("decoder", "inference"):
            found += self.manifest.get(part, {}).get("plans", [])
        for program in self.manifest.get("training", []):
            found += program["plans"].values()
        return found

    def slot(self) -> tuple:
        """Chooses a slot: (bytes of its plan, offset in the plan's table of slots, its entry in the
        manifest).
        """
        plan = self.rng.choice(self.plans())
        data, i = self.parts[plan["file"]], self.rng.randrange(len(plan["slots"]))
        return data, HEADER.unpack_from(data)[9] + 16 * i, plan["slots"][i]

    def same_name(self, name: str) -> list:
        """All slots with this name in all plans, each with its offset."""
        return [
            (self.parts[p["file"]], HEADER.unpack_from(self.parts[p["file"]])[9] + 16 * i, s)
            for p in self.plans()
            for i, s in enumerate(p["slots"])
            if s["name"] == name
        ]

    def one_size(self) -> None:
        """Changes the size of a slot in one plan or in all, in the plan and in the manifest."""
        rng = self.rng
        slot = self.slot()
        size = (
            max(0, slot[2]["bytes"] + rng.choice((-64, -8, 8, 64)))
            if rng.random() < 0.5
            else abs(rng.choice(NUMBERS))
        )
        for data, at, s in self.same_name(slot[2]["name"]) if rng.random() < 0.5 else [slot]:
            width = {"float32": 4, "int64": 8}.get(s["dtype"], 1)
            s["bytes"], s["shape"] = size, [size // width]
            struct.pack_into("<Q", data, at, size)
        if rng.random() < 0.7:
            for of in (
                self.manifest["weights"],
                self.manifest.get("decoder", {}).get("caches", []),
                *(p["states"] for p in self.manifest.get("training", [])),
            ):
                for x in of:
                    if x["name"] == slot[2]["name"]:
                        x["bytes"] = size
                        x.pop("rows", None)
                        if "shape" in x:
                            x["shape"] = [size // 4]

    def one_name(self) -> None:
        """Gives a slot the name of another one, and sometimes its kind and size."""
        (_, _, a), (data, at, b) = self.slot(), self.slot()
        b["name"] = a["name"]
        if self.rng.random() < 0.7:
            b["kind"] = a["kind"]
        if self.rng.random() < 0.7:
            b["bytes"], b["shape"], b["dtype"] = a["bytes"], copy.deepcopy(a["shape"]), a["dtype"]
            struct.pack_into("<Q", data, at, a["bytes"])

    def one_kind(self) -> None:
        """Changes the kind of a slot, and the manifest where required."""
        data, at, s = self.slot()
        s["kind"] = self.rng.choice(KINDS)
        if s["kind"] == "cache" and self.rng.random() < 0.8:
            self.manifest["decoder"]["caches"].append({"name": s["name"], "bytes": s["bytes"]})
        if s["kind"] == "weight" and self.rng.random() < 0.8:
            self.manifest["weights"].append(
                {
                    "name": s["name"],
                    "file": "weights",
                    "offset": self.rng.randrange(len(self.parts["weights"]) + 1),
                    "bytes": s["bytes"],
                }
            )
        if self.rng.random() < 0.5:
            struct.pack_into("<I", data, at + 8, int(s["kind"] not in ("weight", "input")))

    def writable(self) -> None:
        data, at, _ = self.slot()
        data[at + 8] ^= 1

    def tokens(self) -> None:
        """Changes the number of tokens, the capacity or the vocabulary, and the sizes of slots that
        depend on them.
        """
        rng, d = self.rng, self.manifest["decoder"]
        p = rng.choice(d["plans"])
        n = rng.choice((1, 2, 3, 5, 16, 24, 1 << 10, 1 << 16, 1 << 24, 1 << 25))
        if rng.random() < 0.3:
            d["vocab_size"] = n
        else:
            p["tokens"], d["capacity"] = (
                n,
                (max(n, d["capacity"]) if rng.random() < 0.8 else d["capacity"]),
            )
        for plan in d["plans"]:
            data = self.parts[plan["file"]]
            for i, s in enumerate(plan["slots"]):
                if s["kind"] in ("input", "output"):
                    s["bytes"] = 8 * plan["tokens"] if s["kind"] == "input" else 4 * d["vocab_size"]
                    struct.pack_into("<Q", data, HEADER.unpack_from(data)[9] + 16 * i, s["bytes"])

    def numbers(self) -> None:
        """Changes numbers of a plan: header, steps, parameters, operands; sometimes several large
        ones together.
        """
        rng = self.rng
        data = self.parts[rng.choice(self.plans())["file"]]
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            at = rng.randrange(len(data)) & ~3
            struct.pack_into(
                "<I",
                data,
                at,
                (
                    rng.choice(NUMBERS)
                    if rng.random() < 0.7
                    else struct.unpack_from("<I", data, at)[0] + rng.choice((-8, -1, 1, 8, 64))
                )
                & 0xFFFFFFFF,
            )

    def structure(self) -> None:
        self.manifest = damage_json(self.rng, self.manifest, 1)

    def weight_place(self) -> None:
        w = self.rng.choice(self.manifest["weights"])
        w[self.rng.choice(("offset", "bytes"))] = self.rng.choice(
            (
                0,
                1,
                16,
                64,
                *(x["offset"] for x in self.manifest["weights"]),
                *(x["bytes"] for x in self.manifest["weights"]),
            )
        )

    def exchange(self) -> None:
        """Swaps the bytes of a plan with another plan of this package or of another one."""
        file, other = self.rng.choice(self.plans())["file"], split(self.rng.choice(self.others))
        name = self.rng.choice(
            [n for n in other[0]["files"] if "plan" in n or n.startswith("train")]
        )
        at, size = other[0]["files"][name]
        self.parts[file] = bytearray(other[1][at : at + size])

    def registers(self) -> None:
        data = self.parts[self.rng.choice(self.plans())["file"]]
        struct.pack_into(
            "<q",
            data,
            HEADER.unpack_from(data)[8] + 8 * self.rng.randrange(4),
            self.rng.choice(NUMBERS[:28] + NUMBERS[29:]),
        )

    def whole(self) -> bytes:
        """Packs the parts again."""
        data, manifest, rng = bytearray(), self.manifest, self.rng
        if not isinstance(manifest, dict):
            return joined(manifest, b"")
        files = {}
        for name, content in self.parts.items():
            files[name] = [len(data), len(content)]
            data += content + bytes(-len(content) % 64)
        if rng.random() < 0.9 and "structure" not in self.notes:
            manifest["files"] = files
        if isinstance(manifest.get("sha256"), dict) and rng.random() < 0.97:
            manifest["sha256"] |= {
                name: hashlib.sha256(content).hexdigest()
                for name, content in self.parts.items()
                if name in manifest["sha256"]
            }
        if isinstance(manifest.get("weights"), list) and rng.random() < 0.97:
            source = BytesSource(bytes(self.parts["weights"]))
            for w in manifest["weights"]:
                try:
                    w["sums"] = (
                        source_sums(source, w["offset"], w["bytes"])
                        if w["offset"] + w["bytes"] <= source.size
                        else ["0" * 16] * min(100, -(-w["bytes"] // (4 << 20)))
                    )
                except Exception:  # noqa: BLE001 - the package is damaged
                    continue
        return joined(manifest, bytes(data))
