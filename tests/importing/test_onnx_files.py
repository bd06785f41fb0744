# SPDX-License-Identifier: Apache-2.0
"""ONNX files that are damaged or hostile, and models that are refused: messages of the errors."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_support import assert_same, floats, model, reference, run, weights

import mpscnn
from mpscnn.importing import onnx as importer

node = helper.make_node


def simple(**arrays: np.ndarray) -> onnx.ModelProto:
    arrays = {"w": np.ones((2, 3, 1, 1), np.float32)} | arrays
    nodes = [node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["y"], "relu")]
    return model(nodes, {"x": ("n", 3, 4, 4)}, ["y"], **arrays)


def invalid(given, match: str, **options) -> None:
    with pytest.raises(mpscnn.InvalidModelError, match=match):
        importer.read(given, **options)


# ---- accepted kinds of models


def test_paths_bytes_and_protos(tmp_path):
    proto = simple()
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    expected = [n.kernel for n in importer.read(proto)]
    for given in (path, str(path), path.read_bytes(), memoryview(path.read_bytes()), bytearray(path.read_bytes())):
        assert [n.kernel for n in importer.read(given)] == expected
    with pytest.raises(TypeError, match=r"model \(int\)"):
        importer.read(3)
    with pytest.raises(TypeError, match=r"model \(bytes\)"):
        importer.read(_BytesPath())
    invalid(tmp_path / "none.onnx", r"none\.onnx. cannot be opened: No such file")
    invalid(tmp_path, "is not a regular file")


class _BytesPath(os.PathLike):
    def __fspath__(self):
        return b"model.onnx"


def test_a_model_is_not_changed():
    proto = simple()
    before = proto.SerializeToString()
    importer.read(proto)
    assert proto.SerializeToString() == before


def test_input_shapes():
    proto = model([node("Relu", ["x"], ["y"])], {"x": ("n", 3, "h", "w")}, ["y"])
    invalid(proto, r'the input "x" leaves extents open.*input_shapes=\{"x": \(1, 3, 224, 224\)\}')
    importer.read(proto, input_shapes={"x": (1, 3, 5, 6)})
    for shapes, error, match in [
        ({"z": (1, 3, 5, 6)}, ValueError, 'names "z"; the inputs are x'),
        ({"x": (1, 3, 5)}, ValueError, "has not the 4 axes"),
        ({"x": (1, 4, 5, 6)}, ValueError, "is not what the model has"),
        ({"x": (1, 3, 0, 6)}, ValueError, "less than the minimum"),
        ({"x": "1356"}, TypeError, "is not a tuple of int"),
        ({"x": (1, 3, 5.0, 6)}, TypeError, "is not a tuple of int"),
        ([("x", (1, 3, 5, 6))], TypeError, r"input_shapes \(list\)"),
    ]:
        with pytest.raises(error, match=match):
            importer.read(proto, input_shapes=shapes)


def test_the_package_is_missing():
    program = """
        import sys
        sys.modules["onnx"] = None
        import mpscnn
        try:
            from mpscnn.importing import onnx
        except mpscnn.MissingPackageError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "ONNX models need the package onnx, which is not installed: pip install onnx.\n"


# ---- damaged files


def test_damaged_bytes():
    data = simple().SerializeToString()
    invalid(b"", "it has no version or no graph")
    invalid(b"not a model at all", "no ONNX model")
    invalid(data[: len(data) // 2], "no ONNX model|has|checker|graph|Field|version")
    invalid(b"\xff" * 64, "no ONNX model")


def test_the_checker_is_asked():
    proto = simple()
    proto.graph.node[1].input[0] = "nothing"
    invalid(proto, "nothing")
    proto = simple()
    proto.graph.node[0].op_type = "NoSuchOperator"
    invalid(proto, "No Op registered for NoSuchOperator")
    proto = simple()
    proto.ClearField("opset_import")
    invalid(proto, "opset|version")


@pytest.mark.parametrize("version", [1, 5, 1000])
def test_versions_that_are_not_known(version):
    proto = simple()
    proto.opset_import[0].version = version
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=f"version {version} is not one of 6 to"):
        importer.read(proto)


def test_two_versions():
    proto = simple()
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    invalid(proto, "2 versions")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda t: t.dims.__setitem__(0, 5),
            r'the tensor "w" of type FLOAT and shape \[5, 3, 1, 1\] has 24 bytes, not 60',
        ),
        (lambda t: t.dims.__setitem__(0, -2), "negative extent"),
        (lambda t: t.dims.__setitem__(0, 2**62), "values"),
        (lambda t: t.dims.extend([2**31, 2**31]), "values"),
        (lambda t: setattr(t, "raw_data", t.raw_data[:-1]), "23 bytes, not 24"),
        (lambda t: setattr(t, "data_type", 11), "24 bytes, not 48"),
        (lambda t: setattr(t, "data_type", 99), "data_type|data type|type|99"),
        (lambda t: (t.ClearField("raw_data"), t.float_data.extend([1, 2])), "has 2 values in float_data, not 6"),
        (lambda t: (t.ClearField("raw_data"), t.int64_data.extend([1] * 6)), "has 0 values in float_data"),
    ],
)
def test_tensors_of_other_sizes(change, match):
    proto = simple()
    change(proto.graph.initializer[0])
    with pytest.raises((mpscnn.InvalidModelError, mpscnn.UnsupportedOperatorError), match=match):
        importer.read(proto)


def test_tensors_in_attributes_are_checked():
    bad = numpy_helper.from_array(np.float32([1, 2]))
    bad.dims[0] = 3
    proto = model([node("Constant", [], ["c"], value=bad), node("Add", ["x", "c"], ["y"])], {"x": ("n", 3)}, ["y"])
    invalid(proto, "has 8 bytes, not 12")


@pytest.mark.parametrize(
    ("nodes", "arrays", "match"),
    [
        ([node("Conv", ["x", "w"], ["y"])], {"w": np.ones((2, 5, 1, 1), np.float32)}, "do not fit|channels"),
        ([node("Conv", ["x", "w"], ["y"])], {"w": np.ones((2, 3, 9, 9), np.float32)}, "of the result"),
        ([node("Conv", ["x", "w"], ["y"], strides=[0, 1])], {"w": np.ones((2, 3, 1, 1), np.float32)}, "strides"),
        ([node("Conv", ["x", "w"], ["y"], strides=[1])], {"w": np.ones((2, 3, 1, 1), np.float32)}, "strides|axes"),
        ([node("Conv", ["x", "w"], ["y"], pads=[-1, 0, 0, 0])], {"w": np.ones((2, 3, 1, 1), np.float32)}, "pads"),
        ([node("Conv", ["x", "w"], ["y"], auto_pad="SOME")], {"w": np.ones((2, 3, 1, 1), np.float32)}, "SOME"),
        (
            [node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])],
            {"w": np.ones((2, 3, 1, 1), np.float32)},
            "kernel_shape",
        ),
        ([node("Reshape", ["x", "s"], ["y"])], {"s": np.int64([0, 7])}, r"has 48 values"),
        ([node("Reshape", ["x", "s"], ["y"])], {"s": np.int64([0, 0, 0, 0, 0])}, "0 at an axis"),
        ([node("Squeeze", ["x", "s"], ["y"])], {"s": np.int64([1])}, "are not all 1"),
        ([node("Gather", ["x", "s"], ["y"], axis=1)], {"s": np.int64([3])}, r"indices \[3\] of 3"),
        ([node("Split", ["x", "s"], ["y", "z"], axis=1)], {"s": np.int64([1, 1])}, "parts of"),
        (
            [node("BatchNormalization", ["x", *"abcd"], ["y"])],
            dict.fromkeys("abcd", np.ones(4, np.float32)),
            "3 channels",
        ),
        ([node("Pad", ["x", "p"], ["y"])], {"p": np.int64([1, 2, 3])}, "pads"),
        ([node("Resize", ["x", "", "s"], ["y"])], {"s": np.float32([1, 1])}, "2 scales"),
        ([node("Transpose", ["x"], ["y"], perm=[0, 1, 1, 2])], {}, "no order|perm"),
    ],
)
def test_shapes_that_do_not_fit(nodes, arrays, match):
    proto = helper.make_model(
        helper.make_graph(
            nodes,
            "graph",
            [floats("x", ("n", 3, 4, 4))],
            [floats(name, [None]) for name in nodes[-1].output],
            weights(**arrays),
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    invalid(proto, match)


def test_extents_beyond_every_image():
    for extent in (2**21, 2**40, 2**62):
        proto = model([node("Relu", ["x"], ["y"])], {"x": ("n", 3, extent, 4)}, ["y"])
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="the limit"):
            importer.read(proto)
        nodes = [node("Pad", ["x", "p"], ["c"]), node("AveragePool", ["c"], ["y"], kernel_shape=[2**20, 2**20])]
        proto = model(nodes, {"x": ("n", 3, 4, 4)}, [], p=np.int64([0, 0, 0, 0, 0, 0, extent, extent]))
        proto.graph.output.append(floats("y", ("n", 3, None, None)))
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="the limit"):
            importer.read(proto)
        nodes = [node("Resize", ["x", "", "s"], ["y"])]
        proto = model(nodes, {"x": ("n", 3, 4, 4)}, [], s=np.float32([1, 1, extent, 1]))
        proto.graph.output.append(floats("y", ("n", 3, None, None)))
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="the limit"):
            importer.read(proto)


# ---- functions


def nested_functions(depth: int) -> onnx.ModelProto:
    """Return functions that each call the previous one twice."""
    functions = [
        helper.make_function("own", "F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for i in range(1, depth):
        calls = [node(f"F{i - 1}", ["a"], ["c"], domain="own"), node(f"F{i - 1}", ["c"], ["b"], domain="own")]
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], calls, opsets))
    graph = helper.make_graph([node(f"F{depth - 1}", ["x"], ["y"], domain="own")], "functions",
                              [floats("x", ("n", 3))], [floats("y", ("n", 3))])  # fmt: skip
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8)


def test_functions_that_grow_without_end():
    assert len(importer.read(nested_functions(4))) == 8
    invalid(nested_functions(40), "more than the limit")


def test_functions_that_call_themselves():
    proto = nested_functions(3)
    proto.functions[0].node[0].op_type = "F2"
    proto.functions[0].node[0].domain = "own"
    proto.functions[0].opset_import.append(helper.make_opsetid("own", 1))
    invalid(proto, "calls itself|recursi|cycle")


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ((1, 3, 4, 220_000), r"x: shape \(3, 4, 220000\): 220000 along W is more than the maximum \(16384\)"),
        ((1, 3, 16_385, 4), r"16385 along H is more than the maximum \(16384\)"),
        ((1, 8193), r"8193 along C is more than the maximum \(8192\)"),
        ((1, 3, 220_000), r"220000 along W"),
    ],
)
def test_inputs_larger_than_an_image(shape, match):
    nodes = [node("Relu", ["x"], ["y"], "relu")]
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=match):
        importer.read(model(nodes, {"x": shape}, ["y"]))
    open_extents = model(nodes, {"x": ("n", "c", *"hw"[: len(shape) - 2])}, ["y"])
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=match):
        importer.read(open_extents, input_shapes={"x": shape})


# ---- external data


def external(folder: pathlib.Path, **entries: str) -> pathlib.Path:
    """Write a model to `folder` whose external weights have these entries."""
    proto = simple()
    tensor = proto.graph.initializer[0]
    data = tensor.raw_data
    (folder / "weights.bin").write_bytes(b"\0" * 4096 + data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    given = {"location": "weights.bin", "offset": "4096", "length": str(len(data))} | entries
    for key, value in given.items():
        if value is not None:
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path):
    path = external(tmp_path)
    graph = importer.read(path)
    weight = graph.nodes[0].arguments["weight"]
    assert not weight.flags.owndata
    assert str(tmp_path / "weights.bin") in pathlib.Path("/proc/self/maps").read_text()
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    assert_same(run(graph, {"x": x})["y"], reference(simple(), {"x": x})[0])
    assert [n.kernel for n in importer.read(external(tmp_path, length=None))] == ["Convolution", "NeuronReLU"]
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "other.bin").write_bytes((tmp_path / "weights.bin").read_bytes())
    importer.read(external(tmp_path, location="inside/other.bin"))
    (tmp_path / "link.bin").symlink_to("inside/other.bin")


@pytest.mark.parametrize("one_file", [False, True])
def test_external_data_as_the_package_writes_it(tmp_path, one_file):
    proto = simple(unused=np.ones(3, np.float32), s=np.float32([2]))
    proto.graph.node.insert(0, node("Mul", ["x", "s"], ["m"]))
    proto.graph.node[1].input[0] = "m"
    path = tmp_path / "model.onnx"
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    expected = reference(proto, {"x": x})[0]
    onnx.save(proto, path, save_as_external_data=True, all_tensors_to_one_file=one_file, size_threshold=0)
    assert len(list(tmp_path.iterdir())) == (2 if one_file else 4)
    assert_same(run(importer.read(path), {"x": x})["y"], expected)


def test_external_data_at_an_odd_place(tmp_path):
    path = external(tmp_path, offset="4097")
    (tmp_path / "weights.bin").write_bytes(b"\0" * 4097 + np.ones(6, np.float32).tobytes())
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    assert_same(mpscnn.Network(importer.read(path))(x), reference(simple(), {"x": x})[0])


@pytest.mark.parametrize("text", [b"weights.bin", b"offset", b"4096"])
def test_external_data_that_is_no_text(tmp_path, text):
    path = external(tmp_path)
    data = path.read_bytes()
    assert data.count(text) == 1
    path.write_bytes(data.replace(text, b"\xff" * len(text)))
    invalid(path, "UTF-8|no ONNX model")
    invalid(data.replace(text, b"\xff" * len(text)), "UTF-8|given by its path|no ONNX model")


def test_external_data_needs_a_path(tmp_path):
    data = external(tmp_path).read_bytes()
    invalid(data, "given by its path")
    invalid(onnx.load_model_from_string(data), "given by its path")


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "inside/../../secret.bin", "..\\secret.bin", "{absolute}", "\\\\server\\share", "C:\\secret.bin",
     "~/secret.bin", "", ".", "inside", "secret.bin\0", "none.bin", "..", "/dev/zero", "inside/./../../secret.bin"],
)  # fmt: skip
def test_places_outside_of_the_folder(tmp_path, location):
    folder = tmp_path / "model"
    (folder / "inside").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8192)
    path = external(folder, location=location.replace("{absolute}", str(tmp_path / "secret.bin")))
    invalid(path, 'the tensor "w" lies at|location|external')


@pytest.mark.parametrize("target", ["../secret.bin", "{absolute}", "/dev/zero"])
@pytest.mark.parametrize("of_folder", [False, True])
def test_links_out_of_the_folder(tmp_path, target, of_folder):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8192)
    place = "weights.link"
    if of_folder:
        (folder / "way").symlink_to(tmp_path)
        place = "way/secret.bin"
    else:
        (folder / place).symlink_to(target.replace("{absolute}", str(tmp_path / "secret.bin")))
    invalid(external(folder, location=place), "a link that leaves the model's folder")


def test_a_pipe_is_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    invalid(external(tmp_path, location="pipe"), "no regular file")


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"offset": "4097"}, "ends at byte 4121 .* has 4120"),
        ({"offset": "-4"}, 'has offset "-4"'),
        ({"offset": "1e3"}, "no number of bytes"),
        ({"offset": "18446744073709551616"}, "no number of bytes"),
        ({"offset": "999999999999999999"}, "ends at byte"),
        ({"length": "-24"}, 'has length "-24"'),
        ({"length": "23"}, "has 23 bytes, not 24"),
        ({"length": "99999999999"}, "has 99999999999 bytes, not 24"),
        ({"length": None, "offset": "0"}, "has 4120 bytes, not 24"),
        ({"length": None, "offset": "5000"}, "has -880 bytes, not 24"),
        ({"offset": "٤"}, "no number of bytes"),
    ],
)
def test_parts_that_the_file_has_not(tmp_path, entries, match):
    invalid(external(tmp_path, **entries), match)


def test_a_file_that_is_cut_off(tmp_path):
    path = external(tmp_path)
    with open(tmp_path / "weights.bin", "r+b") as file:
        file.truncate(4100)
    invalid(path, "which has 4100")


# ---- operators without a kernel


def test_all_operators_in_one_message():
    nodes = [
        node("Det", ["x"], ["a"], "first"),
        node("Relu", ["a"], ["b"]),
        node("Bernoulli", ["x"], ["c"], "second"),
        node("Det", ["c"], ["d"], "behind"),
        node("Unique", ["x"], ["e"], "third"),
        node("Add", ["b", "d"], ["f"]),
        node("Add", ["f", "e"], ["y"]),
    ]
    proto = model(nodes, {"x": ("n", 3, 4, 4)}, ["y"])
    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        importer.read(proto)
    assert [entry[:2] for entry in caught.value.nodes] == [
        ("Det", "first"),
        ("Bernoulli", "second"),
        ("Unique", "third"),
    ]
    reasons = [reason for _, _, reason in caught.value.nodes]
    assert reasons[:2] == ["no kernel computes it"] * 2
    assert reasons[2].startswith("the number of its results depends on values")
    assert isinstance(caught.value, NotImplementedError)


def test_nodes_that_nothing_reads_are_left_out():
    proto = model([node("Sin", ["x"], ["a"]), node("Relu", ["x"], ["y"])], {"x": ("n", 3, 4, 4)}, ["y"])
    assert [n.kernel for n in importer.read(proto)] == ["NeuronReLU"]


def test_other_domains():
    proto = model([node("Relu", ["x"], ["y"])], {"x": ("n", 3)}, ["y"])
    proto.graph.node[0].CopyFrom(node("FusedConv", ["x"], ["y"], "fused", domain="com.microsoft"))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        importer.read(proto)
    assert caught.value.nodes == [("com.microsoft.FusedConv", "fused", 'an operator of the domain "com.microsoft"')]


def test_outputs_that_are_constants():
    proto = model([node("Relu", ["x"], ["y"])], {"x": ("n", 3)}, ["y"], w=np.ones(3, np.float32))
    proto.graph.output.append(floats("w", (3,)))
    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        importer.read(proto)
    assert caught.value.nodes == [("output", "w", "it is the same whatever the inputs are")]


@pytest.mark.parametrize(
    ("kind", "shape", "reason"),
    [
        (TensorProto.DOUBLE, ("n", 3), "values of type DOUBLE"),
        (TensorProto.STRING, ("n", 3), "values of type STRING"),
        (TensorProto.FLOAT, (), "0 axes"),
        (TensorProto.FLOAT, ("n", 1, 2, 3, 4), "5 axes"),
        (TensorProto.FLOAT, ("n", 0), "no values"),
    ],
)
def test_inputs_that_are_no_images(kind, shape, reason):
    graph = helper.make_graph(
        [node("Relu", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason):
        importer.read(proto)


def test_integers_are_computed_as_floats():
    nodes = [node("ArgMax", ["x"], ["a"], axis=1), node("Mul", ["a", "two"], ["y"])]
    proto = model(nodes, {"x": ("n", 3, 4, 4)}, [], two=np.int64([2]))
    proto.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, ("n", 1, 4, 4)))
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(importer.read(proto), {"x": x})["y"], 2 * x.argmax(1)[:, None])
    proto.graph.node[1].CopyFrom(node("Cast", ["a"], ["y"], to=TensorProto.FLOAT))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    np.testing.assert_array_equal(run(importer.read(proto), {"x": x})["y"], x.argmax(1)[:, None])


def test_constants_that_would_not_fit_into_memory():
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])]
    for shape in ([2**40], [2**20, 2**20], [2**62, 4]):
        proto = model(nodes, {"x": ("n", 3)}, [], s=np.int64(shape))
        proto.graph.output.append(floats("y", [None] * max(2, len(shape))))
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="a constant of shape"):
            importer.read(proto)
    nodes = [node("Range", ["a", "b", "c"], ["r"]), node("Add", ["x", "r"], ["y"])]
    proto = model(nodes, {"x": ("n", 3)}, [], a=np.float32(0), b=np.float32(1e30), c=np.float32(1))
    proto.graph.output.append(floats("y", ("n", None)))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="a constant of shape"):
        importer.read(proto)
