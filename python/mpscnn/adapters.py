# SPDX-License-Identifier: Apache-2.0
"""Predictor: a network as a picklable function of batches, for programs that run many processes (docs/scaling.md)."""

from __future__ import annotations

import copy
import inspect
import math
import operator
import os
import pickle
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from . import _checks
from .device import Device
from .loading import load
from .network import Network
from .weights import empty

__all__ = ["Predictor"]

_MAX_NETWORKS = 4
_DTYPES = ("float32", "float16", "uint8", "uint16")

# Networks of this process by the key of their predictor, most recently used last: libraries unpickle a predictor for
# each task, and its weights are loaded once.
_networks: OrderedDict[tuple[Any, ...], Network] = OrderedDict()
_lock = threading.Lock()


def _made(kind: type[Predictor]) -> Predictor:
    """Return a predictor without a state, for pickle."""
    return kind.__new__(kind)


class Predictor(_checks.Made):
    """A network as a function of batches, for Ray, Spark, Dask and other programs with many processes.

    ``predictor(batch)`` takes and returns a dict of arrays, a pandas.DataFrame, a pyarrow.Table or a
    pyarrow.RecordBatch; rows are images. A pickled predictor has the model's path, or the whole network. The model is
    loaded at the first batch, once in each process for all equal predictors.

    Columns that are arrays (NumPy, Arrow's tensors, lists of one length without nulls) are used in place. Columns of
    objects, as pandas has them, are copied into one array per batch.

    Parameters
    ----------
    model : path, Network, or another model that `load` accepts
        A path must exist on all machines; processes of one machine then share the pages of a .mpscnn file. Networks
        are pickled with their weights; other models are loaded here and pickled as networks.
    inputs : dict of str, optional
        Column of each input of the network, by its name. Default: the same names; for one input and a batch of one
        column, that column.
    outputs : dict of str, optional
        Column of each output of the network, by its name. Default: the same names.
    keep : sequence of str, default ()
        Columns that are returned unchanged. Error messages show their values in the row that failed.
    shapes : dict of tuple of int, optional
        Shape of a row, without the batch, for inputs whose rows are flat vectors, by the input's name. Default: the
        network's, if it is fixed.
    device : str, optional
        Name for `Device`. Default: "cuda:0" if CUDA_VISIBLE_DEVICES names a GPU, as Ray and Spark set it for processes
        to which they assign one; otherwise the default device.
    threads : int, >= 1, optional
        `set_num_threads` of the process. Default: unchanged, OMP_NUM_THREADS, which Ray and Spark set to the number of
        cores that they assign.
    **options
        Of `load`, for models that are not networks: input_shapes, dtype, mean, std, ...

    Raises
    ------
    TypeError
        "keep (str) is not a sequence of str.", 'device (int) is not a str.', options for a Network.
    ValueError
        "threads (0) is less than the minimum (1).", 'inputs: there is no input "z"; there are x.'
    mpscnn.ImportError, OSError
        Errors of `load`; for paths, they are raised by the first batch.

    Source
    ------
    python/mpscnn/adapters.py; no class of MPS is like it.

    Examples
    --------
    >>> import mpscnn, numpy as np, pickle
    >>> from mpscnn.adapters import Predictor
    >>> graph = mpscnn.Graph()
    >>> x = graph.input("x", channels=3, layout="NCHW")
    >>> graph.output(graph.add("NeuronReLU", x), "y", layout="NCHW")
    >>> predictor = Predictor(mpscnn.Network(graph), inputs={"x": "image"}, keep=["id"])
    >>> batch = {"id": np.arange(2), "image": np.ones((2, 3, 4, 4), np.float32)}
    >>> {name: column.shape for name, column in pickle.loads(pickle.dumps(predictor))(batch).items()}
    {'id': (2,), 'y': (2, 3, 4, 4)}
    """

    def __init__(
        self,
        model: Any,
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        shapes: Mapping[str, Sequence[int]] | None = None,
        device: str | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        self._inputs = _names(inputs, "inputs")
        self._outputs = _names(outputs, "outputs")
        if isinstance(keep, str) or not isinstance(keep, Sequence):
            _checks.refuse(keep, "keep", "a sequence of str")
        self._keep = tuple(_checks.text(name, f"keep[{i}]") for i, name in enumerate(keep))
        if shapes is not None and not isinstance(shapes, Mapping):
            _checks.refuse(shapes, "shapes", "a dict")
        self._shapes = {
            name: _checks.integers(shape, f'shapes["{name}"]', minimum=1) for name, shape in (shapes or {}).items()
        }
        self._device = None if device is None else _checks.text(device, "device")
        self._threads = None if threads is None else _checks.integer(threads, "threads", minimum=1)
        self._options = options
        self._network: Network | None = None
        self._path: str | None = None
        # Of a network, made when it is first needed: its pickle, then the memory of its weights.
        self._pickled: Sequence[Any] | None = None
        self._source: Network | None = None
        self._token = uuid.uuid4().hex  # of a network: equal in all copies of this predictor
        if isinstance(model, Network):
            if options:
                raise TypeError(f"{', '.join(options)} was given; networks take no options of load().")
            self._source = _checks.made(model, "model")
        elif isinstance(model, (str, os.PathLike)):
            self._path = os.path.abspath(model)
        else:
            self._source = load(model, **options)
        if self._source is not None:
            self._check_names(self._source)

    # ---- batches

    def __call__(self, batch: Any) -> Any:
        """Compute a batch.

        Parameters
        ----------
        batch : dict of arrays, pandas.DataFrame, pyarrow.Table or pyarrow.RecordBatch
            Columns of the inputs, of equal length, in the dtypes and layouts of the network: float32, float16, uint8 or
            uint16. It may have further columns, and no rows.

        Returns
        -------
        dict of arrays, pandas.DataFrame, pyarrow.Table or pyarrow.RecordBatch
            As the batch: the columns of ``keep``, then the outputs. If all inputs were flat vectors (lists of Arrow or
            Spark), so are the outputs.

        Raises
        ------
        KeyError
            'there is no column "image"; there are id, picture: name it with inputs= or keep=.'
        ValueError
            'column "image", row 3 (id=17): its shape (3, 8, 9) is not that of row 0, (3, 8, 8).'
        TypeError
            'column "image": its dtype (float64) is not float32, float16, uint8 or uint16: convert it with
            .astype("float32").', "batch (list) is not a dict, ..."
        """
        kind = _kind(batch)
        network = self.network
        names = [str(name) for name in kind.names(batch)]
        label = self._label(batch, kind, names)
        given: dict[str, Any] = {}
        are_flat = True
        for name, spec in network.inputs.items():
            column = self._column(name, names, len(network.inputs))
            array = kind.array(kind.column(batch, column), _Rows(column, label))
            array, was_flat = self._rows(array, name, column, spec)
            are_flat = are_flat and was_flat
            given[name] = array
        results = self._compute(network, given)
        outputs = {self._outputs.get(name, name): array for name, array in zip(network.outputs, results, strict=True)}
        for name in self._keep:
            if name not in names:
                raise KeyError(_no_column(name, names))
            if name in outputs:
                raise ValueError(f'keep: "{name}" is the name of an output, too: rename it with outputs=.')
        return kind.result(batch, self._keep, outputs, are_flat)

    def map(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the result of each batch, for Spark's mapInPandas and mapInArrow.

        Parameters
        ----------
        batches : iterable of batches

        Returns
        -------
        iterator of batches

        Raises
        ------
        KeyError, ValueError, TypeError
            As in a call.
        """
        return map(self, batches)

    def make_predict_fn(self) -> Callable[..., Any]:
        """Return a function of arrays, one per input in order, for ``predict_batch_udf`` of Spark.

        Returns
        -------
        function
            Takes arrays of any number of rows; flat rows become `shapes`. Returns (rows, values) of one output, or a
            dict of them.

        Raises
        ------
        mpscnn.ImportError, OSError
            Errors of `load`. The function raises ValueError and TypeError as a call does.
        """
        network = self.network

        def predict(*arrays: NDArray[Any]) -> Any:
            label = _no_label
            columns = list(network.inputs)
            given = {
                name: self._rows(_stack(array, _Rows(name, label)), name, name, network.inputs[name])[0]
                for name, array in zip(columns, arrays, strict=True)
            }
            results = [_flat(array) for array in self._compute(network, given)]
            if len(results) == 1:
                return results[0]
            return {self._outputs.get(name, name): array for name, array in zip(network.outputs, results, strict=True)}

        # Spark counts the parameters.
        kind = inspect.Parameter.POSITIONAL_ONLY
        names = [f"input_{i}" for i in range(len(network.inputs))]
        predict.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        return predict

    @property
    def network(self) -> Network:
        """The network in this process; loaded by the first access."""
        if self._network is None:
            with _lock:
                self._network = self._load()
        return self._network

    # ---- the network

    def _load(self) -> Network:
        if self._threads is not None:
            from .threads import set_num_threads

            set_num_threads(self._threads)
        name = _device_name(self._device)
        key: tuple[Any, ...] = (self._token, name)
        if self._path is not None:
            status = os.stat(self._path)  # a replaced file is another model
            key = (
                self._path,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                repr(sorted(self._options.items())),
                name,
            )
        network = _networks.pop(key, None) or self._make(None if name is None else Device(name))
        self._check_names(network)
        _networks[key] = network
        while len(_networks) > _MAX_NETWORKS:
            _networks.popitem(last=False)
        return network

    def _make(self, device: Device | None) -> Network:
        if self._path is not None:
            return load(self._path, device=device, **self._options)
        if self._source is None:
            pickled, *buffers = self._pickled or (b"",)
            network: Network = pickle.loads(pickled, buffers=buffers)
        else:
            network = self._source
        if device is not None and network.device != device:
            network = copy.copy(network)
            network._make_kernels(device)
        return network

    def _check_names(self, network: Network) -> None:
        for what, names, kind, known in (
            ("inputs", self._inputs, "input", network.inputs),
            ("outputs", self._outputs, "output", network.outputs),
            ("shapes", self._shapes, "input", network.inputs),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f'{what}: there is no {kind} "{name}"; there are {", ".join(known)}.')

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Return the state with the weights of a network as buffers.

        From protocol 5 on, these are out of band where the library takes them so: Ray keeps them once per machine, in
        the shared memory of its object store, and networks read them there.
        """
        state = {**vars(_checks.made(self, "self")), "_network": None, "_source": None}
        if self._source is not None and self._pickled is None:
            buffers: list[pickle.PickleBuffer] = []
            self._pickled = (pickle.dumps(self._source, protocol=5, buffer_callback=buffers.append), *buffers)
        if self._pickled is not None:
            first, *rest = self._pickled
            found = [pickle.PickleBuffer(one) for one in rest]
            outside = operator.index(protocol) >= 5
            state["_pickled"] = (first, *(found if outside else [bytes(one.raw()) for one in found]))
        return _made, (type(self),), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.adapters.Predictor, not made>"
        return f"<mpscnn.adapters.Predictor of {self._path or self._source or 'a network'}>"

    # ---- columns

    def _column(self, name: str, names: list[str], count: int) -> str:
        column = self._inputs.get(name, name)
        if column in names:
            return column
        others = [one for one in names if one not in self._keep]
        if count == 1 and name not in self._inputs and len(others) == 1:
            return others[0]
        raise KeyError(_no_column(column, names))

    def _rows(self, array: Any, name: str, column: str, spec: Any) -> tuple[Any, bool]:
        """Return the array with the axes of the layout, and whether its rows were flat."""
        dtype = getattr(array, "dtype", None)
        if len(array) == 0 and dtype not in _DTYPES:  # an empty column has any type
            array = np.empty(array.shape, np.float32)
        elif isinstance(dtype, np.dtype) and dtype.name not in _DTYPES:
            raise TypeError(
                f'column "{column}": its dtype ({dtype}) is not float32, float16, uint8 or uint16: convert it with'
                ' .astype("float32").'
            )
        shape = self._shapes.get(name)
        if shape is None:
            extents = {"H": spec.height, "W": spec.width, "C": spec.channels}
            known = tuple(extents[letter] for letter in spec.layout[1:])
            shape = known if all(known) else None
        if array.ndim == len(spec.layout):
            return array, array.ndim == 2
        if array.ndim > 2:
            return array, False  # the network names the wrong shape
        if shape is None:
            raise ValueError(
                f'column "{column}": its rows are vectors, and those of input "{name}" are {spec.layout[1:]}: give'
                f' their shape with shapes={{"{name}": (...)}}.'
            )
        if len(array) == 0:
            return array.reshape(0, *shape), True
        size = int(np.prod(shape))
        if array.size != size * len(array):
            raise ValueError(
                f'column "{column}", row 0: its number of values ({array.size // len(array)}) is not {size}, of the'
                f" shape {shape}."
            )
        return array.reshape(len(array), *shape), True

    def _compute(self, network: Network, given: dict[str, Any]) -> list[NDArray[Any]]:
        counts = {name: len(array) for name, array in given.items()}
        if len(set(counts.values())) != 1:
            listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise ValueError(f"the inputs have different numbers of rows ({listed}).")
        count = next(iter(counts.values()))
        if count == 0:  # shapes of results are those of one row
            given = {name: np.zeros((1, *array.shape[1:]), array.dtype) for name, array in given.items()}
        try:
            results = network(**given)
        except (ValueError, TypeError) as error:
            rows = "row 0" if count == 1 else f"rows 0 to {count - 1}"
            raise type(error)(f"{rows}: {error}") from error
        in_order = results if isinstance(results, tuple) else (results,)
        return [np.asarray(array)[:count] for array in in_order]

    def _label(self, batch: Any, kind: type[_Dict], names: list[str]) -> Callable[[int], str]:
        """Return a function that names a row by the scalars of `keep`."""

        def label(row: int) -> str:
            shown = []
            for name in self._keep:
                value = kind.value(batch, name, row) if name in names else None
                if isinstance(value, (str, bytes, int, float, np.generic)):
                    shown.append(f"{name}={value!s:.80}")
            return f" ({', '.join(shown)})" if shown else ""

        return label


class _Rows:
    """Names rows of a column in errors."""

    def __init__(self, column: str, label: Callable[[int], str]) -> None:
        self.column, self.label = column, label

    def __call__(self, row: int) -> str:
        return f'column "{self.column}", row {row}{self.label(row)}'


def _no_label(row: int) -> str:
    return ""


def _stack(rows: Any, where: _Rows) -> Any:
    """Return an array of equal rows; arrays that are not of objects are returned as they are."""
    if getattr(rows, "dtype", None) != np.dtype(object) and not isinstance(rows, (list, tuple)):
        return rows
    together: NDArray[Any] | None = None
    for i, row in enumerate(rows):
        if row is None:
            raise ValueError(f"{where(i)} is None.")
        try:
            array = np.asarray(row)
        except ValueError:  # lists of different lengths
            array = np.asarray(None)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{where(i)}: {type(row).__name__} is not an array of numbers.")
        if together is None:
            if array.dtype.name not in _DTYPES:
                raise TypeError(
                    f"{where(i)}: its dtype ({array.dtype}) is not float32, float16, uint8 or uint16: convert it with"
                    ' .astype("float32").'
                )
            together = empty((len(rows), *array.shape), array.dtype.name)
        if array.shape != together.shape[1:]:
            raise ValueError(f"{where(i)}: its shape {array.shape} is not that of row 0, {together.shape[1:]}.")
        if array.dtype != together.dtype:
            raise TypeError(f"{where(i)}: its dtype ({array.dtype}) is not that of row 0, {together.dtype}.")
        together[i] = array
    return np.empty((0,), np.float32) if together is None else together


# ---- kinds of batches


class _Dict:
    """Batches of Ray Data's format "numpy", and of everything else that has arrays by name."""

    @staticmethod
    def names(batch: Any) -> Iterable[Any]:
        return list(batch)

    @staticmethod
    def column(batch: Any, name: str) -> Any:
        return batch[name]

    @staticmethod
    def array(column: Any, where: _Rows) -> Any:
        return _stack(column if hasattr(column, "dtype") else list(column), where)

    @staticmethod
    def value(batch: Any, name: str, row: int) -> Any:
        return batch[name][row]

    @staticmethod
    def result(batch: Any, keep: Sequence[str], outputs: dict[str, NDArray[Any]], are_flat: bool) -> Any:
        return {**{name: batch[name] for name in keep}, **outputs}


class _Pandas(_Dict):
    @staticmethod
    def names(batch: Any) -> Iterable[Any]:
        return list(batch.columns)

    @staticmethod
    def array(column: Any, where: _Rows) -> Any:
        return _stack(column.to_numpy(), where)

    @staticmethod
    def value(batch: Any, name: str, row: int) -> Any:
        return batch[name].iloc[row]

    @staticmethod
    def result(batch: Any, keep: Sequence[str], outputs: dict[str, NDArray[Any]], are_flat: bool) -> Any:
        table = batch[list(keep)].copy(deep=False)
        for name, array in outputs.items():
            rows = _flat(array) if are_flat else array
            table[name] = rows if rows.ndim == 1 else list(rows)
        return table


class _Arrow(_Dict):
    @staticmethod
    def names(batch: Any) -> Iterable[Any]:
        return list(batch.schema.names)

    @staticmethod
    def column(batch: Any, name: str) -> Any:
        column = batch.column(name)
        if not hasattr(column, "num_chunks"):
            return column
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    @staticmethod
    def array(column: Any, where: _Rows) -> Any:
        import pyarrow as arrow

        if column.null_count:
            raise ValueError(f"{where(column.is_null().to_pylist().index(True))} is null.")
        if hasattr(column, "to_numpy_ndarray"):
            return column.to_numpy_ndarray()
        if isinstance(column.type, arrow.BaseExtensionType):  # Ray's tensors
            return _stack(column.to_numpy(zero_copy_only=False), where)
        shape, values = [len(column)], column
        while arrow.types.is_nested(values.type):
            inner = _list_length(values, where, len(column))
            shape.append(inner)
            values = values.flatten()
            if values.null_count:
                found = values.is_null().to_pylist().index(True)
                raise ValueError(f"{where(found * len(column) // len(values))} has values that are null.")
        return values.to_numpy(zero_copy_only=False).reshape(shape)

    @staticmethod
    def value(batch: Any, name: str, row: int) -> Any:
        return batch.column(name)[row].as_py()

    @staticmethod
    def result(batch: Any, keep: Sequence[str], outputs: dict[str, NDArray[Any]], are_flat: bool) -> Any:
        import pyarrow as arrow

        columns = [batch.column(name) for name in keep]
        for array in outputs.values():
            rows = np.ascontiguousarray(array)
            if not are_flat and rows.ndim > 1:
                columns.append(arrow.FixedShapeTensorArray.from_numpy_ndarray(rows))
                continue
            values = arrow.array(rows.reshape(-1))
            if rows.ndim == 1:
                columns.append(values)
                continue
            each = rows.size // max(1, len(rows))
            kind, dtype = (arrow.ListArray, np.int32) if rows.size < 2**31 else (arrow.LargeListArray, np.int64)
            columns.append(kind.from_arrays(np.arange(len(rows) + 1, dtype=dtype) * dtype(each), values))
        return type(batch).from_arrays(columns, names=[*keep, *outputs])


def _list_length(column: Any, where: _Rows, rows: int) -> int:
    """Return the length of the lists of an Arrow column, which must be equal."""
    import pyarrow as arrow

    if arrow.types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    if not (arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type)):
        raise TypeError(f'column "{where.column}": Arrow\'s {column.type} is not a list or tensor of numbers.')
    lengths = np.diff(column.offsets.to_numpy())
    if len(lengths) == 0:
        return 0
    different = np.flatnonzero(lengths != lengths[0])
    if len(different):
        row = int(different[0]) * rows // len(lengths)
        raise ValueError(f"{where(row)}: its length ({lengths[different[0]]}) is not that of row 0, {lengths[0]}.")
    return int(lengths[0])


def _kind(batch: Any) -> type[_Dict]:
    # By class name, so that neither package is imported.
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(batch).__mro__}
    if "pandas.DataFrame" in names:
        return _Pandas
    if names & {"pyarrow.Table", "pyarrow.RecordBatch"}:
        return _Arrow
    if not isinstance(batch, Mapping):
        _checks.refuse(batch, "batch", "a dict of arrays, a pandas.DataFrame, a pyarrow.Table or a pyarrow.RecordBatch")
    return _Dict


def _names(given: Mapping[str, str] | None, what: str) -> dict[str, str]:
    if given is not None and not isinstance(given, Mapping):
        _checks.refuse(given, what, "a dict")
    return {_checks.text(key, what): _checks.text(value, f'{what}["{key}"]') for key, value in (given or {}).items()}


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(len(array), math.prod(array.shape[1:]))


def _no_column(name: str, names: list[str]) -> str:
    return f'there is no column "{name}"; there are {", ".join(names)}: name it with inputs= or keep=.'


def _device_name(given: str | None) -> str | None:
    """Return the name of the device of this process; None is the default device."""
    if given is not None or "MPSCNN_ENGINE" in os.environ:
        return given
    # Ray hides GPUs by "", NVIDIA's tools by "-1" or "NoDevFiles".
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    return None if first in ("", "-1", "NoDevFiles") else "cuda:0"
