# SPDX-License-Identifier: Apache-2.0
"""Networks, tables and profiles as displayed by notebooks."""

from __future__ import annotations

from html.parser import HTMLParser
from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
import pytest

import mpscnn
from mpscnn.layers import layer_table
from mpscnn.plotting import svg


class Cells(HTMLParser):
    """The texts of a table's cells, row by row, and its caption."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.caption = ""
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert not self._open, f"elements that are not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        else:
            assert self._open[-1] == "caption"
            self.caption += data


def network(height: int | None = 8, name: str = "relu") -> mpscnn.Network:
    graph = mpscnn.Graph()
    x = graph.input("x", height=height, width=height, channels=4)
    weight = np.ones((4, 3, 3, 4), np.float32)
    y = graph.add("Convolution", x, name="conv", weight=weight, layout="OHWI", padding=1)
    graph.output(graph.add("NeuronTanH", graph.add("PoolingMax", y, kernel_size=2, stride=2), name=name), "y")
    return mpscnn.Network(graph)


def test_a_network_is_its_table_of_layers() -> None:
    net = network()
    html = net._repr_html_()
    assert html is not None
    cells = Cells(html)
    header, rows, totals = layer_table(net).rows()
    assert cells.rows == [list(header), *map(list, rows), list(totals)]
    assert cells.caption == repr(net)
    assert Cells(net.layers()._repr_html_()).rows == cells.rows


def test_a_network_is_its_picture() -> None:
    net = network()
    assert net._repr_svg_() == svg(net)


def test_free_heights() -> None:
    net = network(None)
    assert net._repr_svg_() is None
    html = net._repr_html_()
    assert html is not None
    assert Cells(html).rows == [
        ["input", "layout", "height", "width", "channels"],
        ["x", "NHWC", "any", "any", "4"],
    ]


def test_names_are_text() -> None:
    name = "<script>alert('1')</script>&amp;"
    net = network(name=name)
    html = net._repr_html_()
    assert html is not None
    assert "<script" not in html
    assert any(row[0] == name for row in Cells(html).rows)


def test_objects_whose_init_has_not_run() -> None:
    assert mpscnn.Network.__new__(mpscnn.Network)._repr_html_() is None
    assert mpscnn.Network.__new__(mpscnn.Network)._repr_svg_() is None
    assert mpscnn.profile.__new__(mpscnn.profile)._repr_html_() is None


def test_a_profile_is_its_table() -> None:
    net = network()
    with mpscnn.profile() as profile:
        net(np.ones((1, 8, 8, 4), np.float32))
    html = profile._repr_html_()
    assert html is not None
    cells = Cells(html)
    assert cells.rows[0] == ["name", "kernel", "calls", "ms", "share"]
    assert [" ".join(row) for row in cells.rows] == [" ".join(line.split()) for line in profile.table().splitlines()]
    assert {row[1] for row in cells.rows[1:]} == {"Convolution", "PoolingMax", "NeuronTanH"}


def picture(image: mpscnn.Image) -> np.ndarray:
    png = image._repr_png_()
    assert png is not None
    return np.asarray(PIL.Image.open(BytesIO(png)))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_image_is_a_picture(channels: int) -> None:
    values = np.random.default_rng(1).integers(0, 256, (2, 5, 7, channels), np.uint8)
    shown = picture(mpscnn.Image.from_array(values))
    expected = np.concatenate(values, axis=1)
    np.testing.assert_array_equal(shown, expected[..., 0] if channels == 1 else expected)
    np.testing.assert_array_equal(picture(mpscnn.Image.from_array(values / np.float32(255))), shown)
    np.testing.assert_array_equal(picture(mpscnn.Image.from_array(values * np.uint16(257))), shown)


def test_values_beyond_a_picture() -> None:
    values = np.array([-np.inf, -1, np.nan, 0.5, 2, np.inf], np.float32).reshape(1, 1, 6, 1)
    np.testing.assert_array_equal(picture(mpscnn.Image.from_array(values)), [[0, 0, 0, 128, 255, 255]])
    many = mpscnn.Image((40, 2, 3, 1), "uint8")
    assert picture(many).shape == (2, 16 * 3)


def test_images_without_a_picture() -> None:
    assert mpscnn.Image((1, 4, 4, 2))._repr_png_() is None
    with mpscnn.CommandBuffer() as buffer:
        image = mpscnn.Image.temporary(buffer, (1, 4, 4, 4))
        assert image._repr_png_() is None
        image.read_count = 0
