"""Declared expressions (rules, reaches, element sizes) as C over int64.

An operation whose result could leave int64 for some parameters, judged by interval arithmetic over
the int32 parameters, becomes a call that records the overflow.
"""

from __future__ import annotations

import ast

from edgewise.compiler.declare.kernel import parse

C_KEYWORDS = {
    "auto",
    "break",
    "case",
    "char",
    "const",
    "default",
    "double",
    "float",
    "int",
    "long",
    "register",
    "short",
    "signed",
    "static",
    "unsigned",
    "void",
}
I32 = (-(2**31), 2**31 - 1)
I64 = (-(2**63), 2**63 - 1)


def c_name(name):
    return name + "_" if name in C_KEYWORDS else name


class Expression:
    """One declared expression as C.

    `low` is the smallest value that the parameters named in `counts` can have here.
    """

    def __init__(self, kernel, text, low):
        self.kernel, self.text, self.low, self.used = kernel, str(text), low, []
        self.c, self.range = self.visit(parse(text))

    def visit(self, node):
        return getattr(self, "visit_" + type(node).__name__, self.unknown)(node)

    def unknown(self, node):
        raise SyntaxError(
            f"kernel {self.kernel.name}: {ast.dump(node)} in {self.text!r} has no C form"
        )

    def param(self, name):
        name = {"as_": "as", "is_": "is"}.get(name, name)
        if name not in self.kernel.params:
            raise NameError(
                f"kernel {self.kernel.name}: {self.text!r} uses {name!r}, which is no parameter"
            )
        if name not in self.used:
            self.used.append(name)
        return name, (self.low if name in self.kernel.empty else I32[0], I32[1])

    def visit_Name(self, node):
        name, span = self.param(node.id)
        return c_name(name), span

    def visit_Constant(self, node):
        return (f"{node.value}" if abs(node.value) < 2**31 else f"INT64_C({node.value})"), (
            node.value,
            node.value,
        )

    def visit_Subscript(self, node):
        name, span = self.param(node.value.id)
        return f"(int64_t){c_name(name)}[{node.slice.value}]", span

    def visit_UnaryOp(self, node):
        c, (low, high) = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return f"!({c})", (0, 1)
        if not isinstance(node.op, ast.USub):
            self.unknown(node)
        return f"-({c})", (-high, -low)

    def visit_BinOp(self, node):
        (a, (al, ah)), (b, (bl, bh)) = self.visit(node.left), self.visit(node.right)
        corners = [(al, bl), (al, bh), (ah, bl), (ah, bh)]
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            call = "div" if isinstance(node.op, ast.FloorDiv) else "mod"
            return f"ew_check_{call}(&bad, {a}, {b})", (min(al, 0), max(ah, bh, 0))
        call, sign, results = {
            ast.Add: ("add", "+", [x + y for x, y in corners]),
            ast.Sub: ("sub", "-", [x - y for x, y in corners]),
            ast.Mult: ("mul", "*", [x * y for x, y in corners]),
        }.get(type(node.op)) or self.unknown(node)
        span = min(results), max(results)
        if span[0] >= I64[0] and span[1] <= I64[1]:
            inner = [
                (
                    f"({c})"
                    if self.loose(side, sign, side is node.right) and not c.startswith("ew_")
                    else c
                )
                for c, side in ((a, node.left), (b, node.right))
            ]
            return f"{inner[0]} {sign} {inner[1]}", span
        return f"ew_check_{call}(&bad, {a}, {b})", (max(span[0], I64[0]), min(span[1], I64[1]))

    @staticmethod
    def loose(side, sign, right):
        """Whether an operand binds less tightly than the operator it stands beside."""
        return (
            isinstance(side, ast.IfExp)
            or isinstance(side, ast.BinOp)
            and isinstance(side.op, (ast.Add, ast.Sub))
            and (sign == "*" or sign == "-" and right)
        )

    def visit_Compare(self, node):
        left, parts = self.visit(node.left)[0], []
        for op, right in zip(node.ops, node.comparators):
            if isinstance(op, ast.In):
                parts.append(
                    "(" + " || ".join(f"{left} == {self.visit(e)[0]}" for e in right.elts) + ")"
                )
            else:
                sign = {
                    ast.Eq: "==",
                    ast.NotEq: "!=",
                    ast.Lt: "<",
                    ast.LtE: "<=",
                    ast.Gt: ">",
                    ast.GtE: ">=",
                }.get(type(op)) or self.unknown(node)
                right_c = self.visit(right)[0]
                parts.append(
                    f"{left} {sign} {f'({right_c})' if isinstance(right, ast.IfExp) else right_c}"
                )
                left = right_c
        return " && ".join(parts), (0, 1)

    def visit_BoolOp(self, node):
        sign = " && " if isinstance(node.op, ast.And) else " || "
        return sign.join(f"({self.visit(v)[0]})" for v in node.values), (0, 1)

    def visit_IfExp(self, node):
        test = self.visit(node.test)[0]
        (a, (al, ah)), (b, (bl, bh)) = self.visit(node.body), self.visit(node.orelse)
        a, b = (
            f"({c})" if isinstance(side, ast.IfExp) else c
            for c, side in ((a, node.body), (b, node.orelse))
        )
        return f"{test} ? {a} : {b}", (min(al, bl), max(ah, bh))

    def visit_Call(self, node):
        name, arguments = node.func.id, [self.visit(a) for a in node.args]
        spans = [span for _, span in arguments]
        if name in ("lo", "hi"):
            return f"ew_check_{name}(&bad, {', '.join(c for c, _ in arguments)})", I64
        if name == "volume":
            return f"ew_check_volume_of_3({arguments[0][0]})", (0, I32[1])
        if name == "distinct":
            if len(arguments) == 2:
                return f"ew_check_distinct_strides({', '.join(c for c, _ in arguments)})", (0, 1)
            dims, strides = (", ".join(c for c, _ in arguments[i::2]) for i in (0, 1))
            return (
                (
                    f"ew_check_distinct({len(arguments) // 2}, (const int64_t[]){{{dims}}}, (const"
                    f" int64_t[]){{{strides}}})"
                ),
                (0, 1),
            )
        if name in ("min", "max"):
            c, pick = arguments[0][0], min if name == "min" else max
            for other, _ in arguments[1:]:
                c = f"ew_check_{name}({c}, {other})"
            return c, (pick(s[0] for s in spans), pick(s[1] for s in spans))
        if name in ("bytes_of", "bytes_of_any"):
            return f"ew_check_{name}(&bad, {arguments[0][0]})", (0, 8)
        if name == "ceil_div":
            return f"ew_check_ceil_div(&bad, {arguments[0][0]}, {arguments[1][0]})", (
                0,
                max(spans[0][1], 0),
            )
        self.unknown(node)
