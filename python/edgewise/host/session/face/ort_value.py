"""`OrtValue` and `IOBinding`, with the interface of onnxruntime's classes, over plain arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_input, copy_into, dtype_code, empty, holds_strings
from ....compiler.declare.dtypes import NAME, STRING, bytes_for
from ....compiler.declare.symbolic import product
from ....errors import InputError, list_of
from .node_arg import ORT_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..inference import InferenceSession


class OrtValue:
    """A value that is fed or computed, as onnxruntime.OrtValue.

    Args:
        value: an array, a list, a dict, or None for an optional without a value. Arrays are not
            copied: writes to them are seen here.
    """

    def __init__(self, value: Any) -> None:
        self._value: Any = plain(value)

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """The OrtValue of an array, which it shares.

        Raises:
            InputError: it is no array, or the device is not "cpu".
        """
        _check_device(device_type)
        if not holds_strings(numpy_obj):
            as_input(numpy_obj, "")
        return OrtValue(numpy_obj)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Any, onnx_element_type: int) -> OrtValue:
        """The OrtValue of the bytes of an array as elements of an ONNX type of the same size."""
        from ....compiler.arrays import Array

        code, shape, raw = as_input(data, "")
        want = dtype_code(onnx_element_type, "onnx_element_type")
        if bytes_for(code, 8) != bytes_for(want, 8):
            raise InputError(
                f"an element of {NAME[code]} has another size than one of {NAME[want]}",
                "onnx_element_type",
                "Pass an array whose elements have as many bytes.",
            )
        return OrtValue(data if code == want else Array(shape, NAME[want], raw))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """An OrtValue of zeros. element_type: a type of NumPy, or an ONNX code."""
        _check_device(device_type)
        sizes = list_of(shape, "shape", "a list of integers")
        return OrtValue(empty(dtype_code(element_type, "element_type"), sizes))

    def numpy(self) -> Any:
        """The array, not copied. Raises InputError if it is not a tensor."""
        self._check_tensor()
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        value = self.numpy()
        a = value.__array__()
        return a.astype(dtype) if dtype is not None and a.dtype != dtype or copy else a

    def __len__(self) -> int:
        return self.shape()[0]

    def __bool__(self) -> bool:
        return True  # also of a scalar, which has no length

    def shape(self) -> list[int]:
        """Its dimensions."""
        self._check_tensor()
        return list(self._value.shape) if self._is_strings() else as_input(self._value, "")[1]

    def element_type(self) -> int:
        """The ONNX code of its elements' type."""
        self._check_tensor()
        return STRING if self._is_strings() else as_input(self._value, "")[0]

    def data_type(self) -> str:
        """Its type as ONNX Runtime writes it, such as "tensor(float)"."""
        if self.is_tensor_sequence():
            inner = OrtValue(self._value[0]).data_type() if self._value else "tensor(float)"
            return f"seq({inner})"
        return f"tensor({ORT_TYPES[self.element_type()]})"

    def device_name(self) -> str:
        """Always "cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """Whether it is not an optional without a value."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return not isinstance(self._value, (list, dict, type(None)))

    def is_sparse_tensor(self) -> bool:
        """Always False: sparse tensors become dense ones."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence."""
        return isinstance(self._value, list)

    def tensor_size_in_bytes(self) -> int:
        """Number of bytes of its elements."""
        return bytes_for(self.element_type(), product(self.shape()))

    def data_ptr(self) -> int:
        """Address of its elements. Raises InputError if it is not a NumPy array."""
        interface = getattr(self._value, "__array_interface__", None)
        if interface is None:
            raise InputError("it has no address", "OrtValue.data_ptr", "Make it of a NumPy array.")
        return int(interface["data"][0])

    def update_inplace(self, np_arr: Any) -> None:
        """Copies an array of the same type and shape into its memory."""
        self._check_tensor()
        copy_into(self._value, np_arr, "update_inplace")

    def _is_strings(self) -> bool:
        return holds_strings(self._value)

    def _check_tensor(self) -> None:
        if not self.is_tensor():
            raise InputError(
                f"it is a {type(self._value).__name__}", "OrtValue", "Only tensors can do this."
            )


def plain(value: Any) -> Any:
    """What a caller passed, without the OrtValue around it."""
    return value._value if isinstance(value, OrtValue) else value


def arrays_of(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
    """Feeds without OrtValues: recorded runs take arrays alone. What is no dict stays for `run`,
    which refuses it.
    """
    return {k: plain(v) for k, v in feeds.items()} if hasattr(feeds, "items") else feeds


class IOBinding:
    """Inputs and outputs of runs of a session, as onnxruntime.IOBinding: values are named once and
    used by each `run_with_iobinding`.

    Args:
        session: the session.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | None] = {}  # None: a new array for each run
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array, which is read by each run."""
        self.bind_ortvalue_input(name, OrtValue(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds the memory at an address. It must stay valid, and needs NumPy.

        Args:
            name: of the input.
            device_type, device_id: "cpu", and a number that is ignored.
            element_type: a type of NumPy, or an ONNX code.
            shape: dimensions.
            buffer_ptr: the address, such as `torch.Tensor.data_ptr()` of a contiguous tensor.
        """
        _check_device(device_type)
        code = dtype_code(element_type, "element_type")
        self.bind_ortvalue_input(name, OrtValue(empty(code, list(shape), buffer_ptr)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds a value, which is read by each run."""
        self._inputs[self._session.check_input(name).name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Asks for an output: in a new array, or in the memory at an address (see `bind_input`)."""
        _check_device(device_type)
        value = None
        if buffer_ptr is not None:
            code = dtype_code(element_type, "element_type")
            value = OrtValue(empty(code, list(shape or ()), buffer_ptr))
        self._bind_output(name, value)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Asks for an output in the memory of a tensor of its type and shape."""
        self._bind_output(name, ortvalue)

    def _bind_output(self, name: str, value: OrtValue | None) -> None:
        self._session.check_outputs([name])
        self._outputs[name] = value

    def synchronize_inputs(self) -> None:
        """Does nothing: inputs are in the memory of the process."""

    def synchronize_outputs(self) -> None:
        """Does nothing: outputs are complete when a run ends."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The arrays of `get_outputs`."""
        return [v._value for v in self._results]

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._outputs.clear()
        self._results = []

    def run(self, run_options: Any = None) -> None:
        """Runs the session. Raises as InferenceSession.run, and InputError where an output does not
        fit into the memory bound for it.
        """
        feeds = arrays_of(self._inputs)
        values = self._session.run(list(self._outputs), feeds, run_options)
        results = []
        for (name, bound), value in zip(self._outputs.items(), values):
            if bound is not None:
                copy_into(bound.numpy(), value, f"output '{name}'")
            results.append(bound or OrtValue(value))
        self._results = results


def _check_device(device_type: object) -> None:
    if device_type != "cpu":
        raise InputError(
            f"{device_type!r} is not a device of values", "device_type", "They are in 'cpu'."
        )
