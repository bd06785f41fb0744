# SPDX-License-Identifier: Apache-2.0
"""mpscnn run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mpscnn

from .conftest import normal

Image = pytest.importorskip("PIL.Image")


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def scores(model: Path, path: Path, **options: object) -> np.ndarray:
    """Return the scores of one image, computed through the Python interface."""
    return mpscnn.load(model, **options)(np.ascontiguousarray(pixels(path)[None].transpose(0, 3, 1, 2)))[0]


def test_classes(run, classifier: Path, pictures: Path) -> None:
    ran = run("run", classifier, pictures, "--top", 3, "--json")
    assert ran.status == 0
    results = ran.json["results"]
    assert [Path(result["path"]).name for result in results] == ["a.png", "b.png", "c.png"]
    assert ran.json["images_per_second"] > 0
    for result in results:
        expected = scores(classifier, Path(result["path"]))
        best = np.argsort(-expected)[:3]
        assert [one["index"] for one in result["classes"]] == best.tolist()
        np.testing.assert_allclose([one["score"] for one in result["classes"]], expected[best], rtol=1e-5, atol=1e-5)


def test_batches_change_nothing(run, classifier: Path, pictures: Path) -> None:
    one, many = (run("run", classifier, pictures, "--json", "--batch", n).json["results"] for n in (1, 8))
    for a, b in zip(one, many, strict=True):
        assert a["path"] == b["path"]
        np.testing.assert_allclose(*([c["score"] for c in r["classes"]] for r in (a, b)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batch", "sizes"), [(1, [1] * 6), (2, [2, 2, 1, 1]), (4, [4, 1, 1]), (9, [5, 1])])
def test_sizes_of_batches(
    run, brighter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, sizes: list[int]
) -> None:
    """Five arrays of one size, then one of another."""
    seen = []
    submit = mpscnn.Network._submit

    def watch(network: mpscnn.Network, item: np.ndarray) -> object:
        seen.append(len(item))
        return submit(network, item)

    monkeypatch.setattr(mpscnn.Network, "_submit", watch)
    folder = tmp_path / "arrays"
    folder.mkdir()
    for number in range(6):
        np.save(folder / f"{number}.npy", normal(number, 3, 6, 6 + number // 5))
    assert run("run", brighter, folder, "-o", tmp_path / "out", "--as", "array", "--batch", batch).status == 0
    assert seen == sizes
    for number in range(6):
        expected = normal(number, 3, 6, 6 + number // 5)[::-1] / 2 + np.float32(0.25)
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{number}.npy")[0], expected, atol=1e-6)


def test_probabilities(run, classifier: Path, pictures: Path) -> None:
    ran = run("run", classifier, pictures / "a.png", "--top", 10, "--softmax", "--json")
    found = [one["score"] for one in ran.json["results"][0]["classes"]]
    assert sum(found) == pytest.approx(1)
    exponentials = np.exp(scores(classifier, pictures / "a.png").astype(np.float64))
    np.testing.assert_allclose(found, np.sort(exponentials / exponentials.sum())[::-1], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", "\n".join(f"class {i}" for i in range(10))),
        ("labels.json", json.dumps([f"class {i}" for i in range(10)])),
        ("index.json", json.dumps({str(i): [f"n{i}", f"class {i}"] for i in range(10)})),
    ],
)
def test_labels(run, classifier: Path, pictures: Path, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    ran = run("run", classifier, pictures / "a.png", "--labels", tmp_path / name, "--json")
    for one in ran.json["results"][0]["classes"]:
        assert one["label"] == f"class {one['index']}"
    assert "class " in run("run", classifier, pictures / "a.png", "--labels", tmp_path / name).out


def test_labels_that_are_none(run, classifier: Path, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("3")
    ran = run("run", classifier, pictures, "--labels", tmp_path / "labels.json")
    assert ran.status == 1
    assert "no list of names" in ran.err


def test_mean_and_std(run, classifier: Path, pictures: Path) -> None:
    options = ["--mean", "0.5,0.25,0.125", "--std", "0.5,0.25,0.2"]
    ran = run("run", classifier, pictures / "a.png", "--top", 10, "--json", *options)
    expected = scores(classifier, pictures / "a.png", mean=[0.5, 0.25, 0.125], std=[0.5, 0.25, 0.2])
    np.testing.assert_allclose(
        [one["score"] for one in ran.json["results"][0]["classes"]], np.sort(expected)[::-1], rtol=1e-4, atol=1e-5
    )


def test_imagenet_is_resized_cropped_and_normalized(run, classifier: Path, pictures: Path) -> None:
    ran = run("run", classifier, pictures / "c.png", "--preset", "imagenet", "--top", 10, "--json")
    with Image.open(pictures / "c.png") as image:  # 20 x 30 pixels
        resized = image.resize((384, 256), Image.Resampling.BILINEAR).crop((80, 16, 304, 240))
    x = np.asarray(resized, np.float32).transpose(2, 0, 1)[None] / 255
    mean, std = (np.float32(v).reshape(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    expected = mpscnn.load(classifier)((x - mean) / std)[0]
    np.testing.assert_allclose(
        [one["score"] for one in ran.json["results"][0]["classes"]], np.sort(expected)[::-1], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ([], (20, 30)),
        (["--size", "12x16"], (12, 16)),
        (["--size", "9"], (9, 9)),
        (["--resize", "10"], (10, 15)),
        (["--resize", "10", "--crop", "8x11"], (8, 11)),
        (["--crop", "20x30"], (20, 30)),
    ],
)
def test_sizes(run, brighter: Path, pictures: Path, tmp_path: Path, options: list[str], shape: tuple) -> None:
    ran = run("run", brighter, pictures / "c.png", "-o", tmp_path / "out", *options)
    assert ran.status == 0
    assert pixels(tmp_path / "out" / "c.png").shape == (*shape, 3)


def test_images_are_written_as_png(run, brighter: Path, pictures: Path, tmp_path: Path) -> None:
    ran = run("run", brighter, pictures, "-o", tmp_path / "out", "--json")
    assert ran.status == 0
    for result in ran.json["results"]:
        before, after = pixels(Path(result["path"])), pixels(Path(result["output"]))
        np.testing.assert_array_equal(after, np.rint(before[:, :, ::-1] / np.float32(2) + 63.75).astype(np.uint8))


def test_a_range_of_results(run, brighter: Path, pictures: Path, tmp_path: Path) -> None:
    assert run("run", brighter, pictures / "a.png", "-o", tmp_path, "--range", "0.25,0.75").status == 0
    np.testing.assert_array_equal(pixels(tmp_path / "a.png"), pixels(pictures / "a.png")[:, :, ::-1])


def test_images_as_arrays(run, brighter: Path, pictures: Path, tmp_path: Path) -> None:
    assert run("run", brighter, pictures / "a.png", "-o", tmp_path, "--as", "array").status == 0
    found = np.load(tmp_path / "a.npy")
    expected = pixels(pictures / "a.png")[:, :, ::-1].transpose(2, 0, 1) / 510 + 0.25
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


def test_arrays(run, brighter: Path, classifier: Path, tmp_path: Path) -> None:
    x = normal(0, 5, 3, 9, 7)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "one.npy", x[0])
    ran = run("run", brighter, tmp_path / "x.npy", tmp_path / "one.npy", "-o", tmp_path / "out", "--as", "array")
    assert ran.status == 0
    expected = x[:, ::-1] / 2 + np.float32(0.25)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "x.npy"), expected, atol=1e-6)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "one.npy"), expected[:1], atol=1e-6)
    ran = run("run", classifier, tmp_path / "one.npy", "--json", "--top", 10)
    np.testing.assert_allclose(
        [one["score"] for one in ran.json["results"][0]["classes"]],
        np.sort(mpscnn.load(classifier)(x[:1])[0])[::-1],
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["{pictures}"], 2, "results are of shape (1, 3, 16, 12)"),
        (["{pictures}", "-o", "{tmp}/out", "--crop", "40x40"], 1, "are less than --crop asks for (40 x 40)"),
        (["{pictures}", "-o", "{tmp}/out", "--range", "1,1"], 2, "is not two different numbers"),
        (["{pictures}", "-o", "{tmp}/out", "--size", "1x2x3"], 2, "is not one number, or height x width"),
        (["{pictures}", "-o", "{tmp}/out", "--mean", "a,b"], 2, "is not numbers with commas"),
        (["{pictures}", "-o", "{tmp}/out", "--mean", "1,2"], 1, "mean"),
        (["{pictures}/none.png"], 2, "does not exist"),
        (["{empty}"], 1, "has no images and no .npy arrays"),
        (["{pictures}/notes.txt", "-o", "{tmp}/out"], 1, "notes.txt"),
        (["{pictures}", "--as", "sound"], 2, "sound"),
    ],
)
def test_wrong_use(
    run, brighter: Path, pictures: Path, tmp_path: Path, options: list[str], status: int, message: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = run("run", brighter, *(text.format(pictures=pictures, tmp=tmp_path, empty=empty) for text in options))
    assert (ran.status, ran.out) == (status, "")
    assert message in ran.message


def test_several_inputs_are_refused(run, two_inputs: Path, pictures: Path) -> None:
    ran = run("run", two_inputs, pictures)
    assert ran.status == 1
    assert "this one has 2 (p, q)" in ran.err


def test_pickled_arrays_are_refused(run, brighter: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "evil.npy", np.array([print], dtype=object), allow_pickle=True)
    ran = run("run", brighter, tmp_path / "evil.npy", "-o", tmp_path / "out")
    assert ran.status == 1
    assert "Python objects" in ran.err
