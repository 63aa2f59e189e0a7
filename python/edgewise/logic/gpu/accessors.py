"""WGSL functions that read and write the elements of an operand, by element type.

A float is an f32 for shaders, whatever it is stored as; integers of up to 32 bits are i32 or u32;
an int64 is a vec2u of its low and its high word; an element that is only moved is a u32, or a vec2u
if it has 8 bytes. Elements smaller than a word are written by atomic operations on their word,
since neighbours belong to other invocations.
"""

from __future__ import annotations

from dataclasses import dataclass

# class of an element type: how a shader sees it, by ONNX code
CLASSES: dict[str, str] = {
    "1": "f",
    "10": "f",
    "16": "f",
    "2": "u",
    "4": "u",
    "9": "u",
    "12": "u",
    "3": "i",
    "5": "i",
    "6": "i",
    "7": "l",
}
MOVED: dict[str, str] = {"1": "w", "2": "w", "4": "w", "8": "d"}
TYPES: dict[str, str] = {"f": "f32", "i": "i32", "u": "u32", "l": "vec2u", "w": "u32", "d": "vec2u"}


def class_of(dtype: int, nbytes: int) -> str:
    """The class of an element type, "" where no shader has it. dtype 0: elements that are only
    moved: "w", or "d" for those of 8 bytes.
    """
    return MOVED.get(str(nbytes), "") if dtype == 0 else CLASSES.get(str(dtype), "")


@dataclass(frozen=True)
class Access:
    """An operand as its accessors see it.

    Attributes:
        name: of the operand.
        dtype, nbytes: as of steps.element_dtype.
        binding: name of the variable that it is bound as.
        stored: element type of that array: "f32", "u32" or "atomic<u32>".
        base: expression of the offset of element 0, in elements.
    """

    name: str
    dtype: int
    nbytes: int
    binding: str
    stored: str
    base: str

    @property
    def kind(self) -> str:
        """The class of its elements."""
        return class_of(self.dtype, self.nbytes)

    def word(self, index: str) -> str:
        """A word of its binding as u32."""
        element = f"{self.binding}[{index}]"
        if self.stored == "atomic<u32>":
            return f"atomicLoad(&{element})"
        return f"bitcast<u32>({element})" if self.stored == "f32" else element

    def set_word(self, index: str, value: str) -> str:
        """The statement that writes a whole word. value: a u32."""
        element = f"{self.binding}[{index}]"
        if self.stored == "atomic<u32>":
            return f"atomicStore(&{element}, {value});"
        return f"{element} = {f'bitcast<f32>({value})' if self.stored == 'f32' else value};"

    def function(self, suffix: str) -> tuple[str, str]:
        """(text, text of what it needs) of an accessor: "" reads, "_set" writes, "_int" reads an
        integer as i32, "_word" reads a word.
        """
        if suffix == "_set":
            return self._write()
        if suffix == "_int":
            return self._int()
        return self._word() if suffix == "_word" else self._read()

    def _word(self) -> tuple[str, str]:
        at = f"({self.base} * {self.nbytes}u) / 4u + i" if self.nbytes != 4 else f"{self.base} + i"
        return f"fn {self.name}_word(i: u32) -> u32 {{ return {self.word(at)}; }}", ""

    def _bits(self) -> str:
        """Statements that leave the bits of element j in w."""
        index, shift, mask = self._place()
        return f"let w = ({self.word(index)} >> ({shift})) & {mask};"

    def _place(self) -> tuple[str, str, str]:
        """Where element j of 1 or 2 bytes lies: its word, its lowest bit, and a mask."""
        if self.nbytes == 1:
            return "j >> 2u", "(j & 3u) * 8u", "0xffu"
        return "j >> 1u", "(j & 1u) * 16u", "0xffffu"

    def _read(self) -> tuple[str, str]:
        kind = self.kind
        head = f"fn {self.name}(i: u32) -> {TYPES[kind]} {{ let j = {self.base} + i;"
        if self.nbytes == 8:
            low, high = self.word("2u * j"), self.word("2u * j + 1u")
            return f"{head} return vec2u({low}, {high}); }}", ""
        if self.nbytes == 4:
            if kind == "f" and self.stored == "f32":
                return f"{head} return {self.binding}[j]; }}", ""
            word = self.word("j")
            value = f"bitcast<{TYPES[kind]}>({word})" if kind in ("f", "i") else word
            return f"{head} return {value}; }}", ""
        if kind == "f":
            value = "unpack2x16float(w).x" if self.dtype == 10 else "bitcast<f32>(w << 16u)"
        elif kind == "i":
            shift = 32 - 8 * self.nbytes
            value = f"bitcast<i32>(w << {shift}u) >> {shift}u"
        else:
            value = "w"
        return f"{head} {self._bits()} return {value}; }}", ""

    def _write(self) -> tuple[str, str]:
        kind = self.kind
        head = f"fn {self.name}_set(i: u32, v: {TYPES[kind]}) {{ let j = {self.base} + i;"
        if self.nbytes == 8:
            low, high = self.set_word("2u * j", "v.x"), self.set_word("2u * j + 1u", "v.y")
            return f"{head} {low} {high} }}", ""
        needs = ""
        if self.nbytes == 4:
            if kind == "f" and self.stored == "f32":
                return f"{head} {self.binding}[j] = v; }}", ""
            bits = "bitcast<u32>(v)" if kind in ("f", "i") else "v"
            return f"{head} {self.set_word('j', bits)} }}", ""
        if kind == "f":
            needs = "half_bits" if self.dtype == 10 else "bfloat_bits"
            bits = f"{needs}(v)"
        else:
            bits = "bitcast<u32>(v)" if kind == "i" else "v"
        index, shift, mask = self._place()
        return (
            f"{head} let s = {shift}; let at = {index};"
            f" atomicAnd(&{self.binding}[at], ~({mask} << s));"
            f" atomicOr(&{self.binding}[at], ({bits} & {mask}) << s); }}",
            needs,
        )

    def _int(self) -> tuple[str, str]:
        read = f"{self.name}(i)"
        if self.kind == "l":
            value = f"saturated({read})"
        else:
            value = f"i32({read})"
        return f"fn {self.name}_int(i: u32) -> i32 {{ return {value}; }}", ""
