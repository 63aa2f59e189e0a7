"""Optionals: a value, which is its own optional, or NOTHING."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.dtypes import BOOL
from ...declare.op import Op, fail
from ...declare.values import NOTHING, Nothing

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext

optional = Op("Optional")


@optional.host(static=True)
def optional_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any]:
    return [inputs[0] if inputs else NOTHING]


optional_get_element = Op("OptionalGetElement")


@optional_get_element.host(static=True)
def optional_get_element_host(
    node: BoundNode, run: HostContext, inputs: list[Any]
) -> list[Any] | None:
    if not node.has(0) or isinstance(inputs[0], Nothing):
        fail(
            node,
            "the optional has no value",
            "Check what is fed; if it is right, export the model again.",
        )
    return [inputs[0]]


optional_has_element = Op("OptionalHasElement")


@optional_has_element.host(static=True)
def optional_has_element_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any]:
    return [run.constant(BOOL, [], [node.has(0) and not isinstance(inputs[0], Nothing)])]
