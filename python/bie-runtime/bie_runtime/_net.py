"""The C API of bie_runtime.h by ctypes."""

from __future__ import annotations

import ctypes
import json
import math
import os
from functools import cache
from pathlib import Path

import numpy as np

from bie_runtime._table import TableForm


class NetError(ValueError):
    """A net, an input or an option that cannot be; the sentence is the runtime's."""


class _Tensor(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int32), ("sizes", ctypes.c_int64 * 3), ("elements", ctypes.c_int64))


class _Options(ctypes.Structure):
    _fields_ = (
        ("max_batch", ctypes.c_int64),
        ("threads", ctypes.c_int32),
        ("parallel_for", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
    )


_POINTER = ctypes.c_void_p
_SIGNATURES = {
    "bie_version": (ctypes.c_char_p, ()),
    "bie_last_error": (ctypes.c_char_p, ()),
    "bie_net_load": (ctypes.c_int, (ctypes.c_char_p, ctypes.POINTER(_POINTER))),
    "bie_net_from_memory": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_POINTER))),
    "bie_net_free": (None, (_POINTER,)),
    "bie_net_inputs": (ctypes.c_int32, (_POINTER,)),
    "bie_net_outputs": (ctypes.c_int32, (_POINTER,)),
    "bie_net_input": (ctypes.c_int, (_POINTER, ctypes.c_int32, ctypes.POINTER(_Tensor))),
    "bie_net_output": (ctypes.c_int, (_POINTER, ctypes.c_int32, ctypes.POINTER(_Tensor))),
    "bie_net_metadata": (ctypes.c_char_p, (_POINTER, ctypes.c_char_p)),
    "bie_net_summary": (ctypes.c_char_p, (_POINTER,)),
    "bie_context_create": (ctypes.c_int, (_POINTER, ctypes.POINTER(_Options), ctypes.POINTER(_POINTER))),
    "bie_context_free": (None, (_POINTER,)),
    "bie_run": (ctypes.c_int, (_POINTER, ctypes.c_int64, ctypes.POINTER(_POINTER), ctypes.POINTER(_POINTER))),
}


@cache
def _library() -> ctypes.CDLL:
    """The library that BIE_RUNTIME_LIBRARY names, else the package's own."""
    path = os.environ.get("BIE_RUNTIME_LIBRARY") or Path(__file__).parent / "lib" / "libbie_runtime.so"
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def library_version() -> str:
    return _library().bie_version().decode()


def _check(status: int) -> None:
    if status != 0:
        raise NetError(_library().bie_last_error().decode(errors="replace"))


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class Net:
    """A net file, or its bytes. Any number of threads may run it at the same time: a call takes a context, the memory
    of one pass, that no other call is using. `threads` is the number of threads of each context.

    >>> net = Net("digits.net.bie")  # doctest: +SKIP
    >>> net.run(np.zeros((2, *net.input_shape), np.float32)).shape  # doctest: +SKIP
    (2, 10)
    """

    def __init__(self, source: str | os.PathLike | bytes, *, max_batch: int = 32, threads: int = 1):
        self._net, self._contexts = _POINTER(), []
        if isinstance(source, bytes):
            self._bytes = source  # which have to stay
            _check(_library().bie_net_from_memory(source, len(source), ctypes.byref(self._net)))
        else:
            _check(_library().bie_net_load(os.fsencode(source), ctypes.byref(self._net)))
        self._options = _Options(max_batch=max_batch, threads=threads)
        self._contexts.append(self._made_context())
        if (inputs := _library().bie_net_inputs(self._net)) != 1:
            raise NetError(f"expected a net of one input, got one of {inputs}")
        # Every run needs these answers, and asking for them takes as long as a call of a small net.
        self._run, self._input = _library().bie_run, self._shape("input", 0)
        self._elements = math.prod(self._input)
        self._outputs = [self._shape("output", i) for i in range(_library().bie_net_outputs(self._net))]

    def _made_context(self) -> ctypes.c_void_p:
        context = _POINTER()
        _check(_library().bie_context_create(self._net, ctypes.byref(self._options), ctypes.byref(context)))
        return context

    def __del__(self):
        for context in getattr(self, "_contexts", ()):
            _library().bie_context_free(context)
        if getattr(self, "_net", None):
            _library().bie_net_free(self._net)

    def _shape(self, which: str, index: int) -> tuple[int, ...]:
        tensor = _Tensor()
        _check(getattr(_library(), f"bie_net_{which}")(self._net, index, ctypes.byref(tensor)))
        return tuple(tensor.sizes[: tensor.rank])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample: (features,) or (channels, height, width)."""
        return self._input

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        return list(self._outputs)

    def metadata(self, key: str) -> str | None:
        value = _library().bie_net_metadata(self._net, key.encode())
        return None if value is None else value.decode(errors="replace")

    @property
    def class_names(self) -> list[str]:
        """Numbers where the net names none."""
        if listed := self.metadata("class_names"):  # names that a list of lines cannot hold
            return json.loads(listed)
        names = (self.metadata("classes") or "").split("\n")
        return names if names != [""] else [str(i) for i in range(self.output_shapes[0][0])]

    @property
    def table(self) -> TableForm | None:
        """Of a net that was trained with a table: makes what ``run`` takes of rows, and labels of what it returns.

        >>> outputs = net.run(net.table.features([{"width": 1.5, "colour": "red"}]))  # doctest: +SKIP
        """
        text = self.metadata("table")
        return TableForm(text) if text else None

    @property
    def summary(self) -> str:
        """The nodes, their sizes and kernels, a line each."""
        return _library().bie_net_summary(self._net).decode()

    def run(self, x: np.ndarray) -> np.ndarray | list[np.ndarray]:
        """The output [batch, ...] of samples [batch, ...], of whose elements only the number has to fit; a list of them
        where the net has several outputs."""
        x = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim < 2 or x.size != x.shape[0] * self._elements:
            raise NetError(f"x: expected [batch, {', '.join(map(str, self.input_shape))}], got {list(x.shape)}")
        outputs = [np.empty((x.shape[0], *shape), np.float32) for shape in self._outputs]
        places = (_POINTER * len(outputs))(*map(_address, outputs))
        # ctypes releases the GIL during the call. pop and append of a list are atomic, with and without a GIL.
        try:
            context = self._contexts.pop()
        except IndexError:
            context = self._made_context()
        try:
            _check(self._run(context, x.shape[0], (_POINTER * 1)(_address(x)), places))
        finally:
            self._contexts.append(context)
        return outputs[0] if len(outputs) == 1 else outputs
