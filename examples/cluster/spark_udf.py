# SPDX-License-Identifier: Apache-2.0
"""Enlarge pictures with Spark, in three ways: predict_batch_udf, mapInPandas and mapInArrow.

The pictures are pieces of scikit-image's photographs, as columns of type array<float>; the network is that of
examples/super_resolution. Everything runs on this machine, in a Spark of its own (which needs Java 17 or newer); on a
cluster, put the network on a file system that all machines have. The results are compared with those of one process.

    pip install pyspark pandas pyarrow scikit-image safetensors
    python examples/cluster/spark_udf.py [COUNT] [--cores N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pictures import pictures, super_resolution
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType, LongType, StructField, StructType

import mpscnn
from mpscnn.adapters import Predictor


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=128, help="number of pictures (default: %(default)s)")
    parser.add_argument("--size", type=int, default=32, help="their height and width (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="pictures in a batch (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="number of Python workers (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args(arguments)


def enlarge(options: argparse.Namespace, spark: SparkSession, folder: Path) -> dict[str, Any]:
    model = folder / "enlarge.mpscnn"
    super_resolution().save(model)
    network = mpscnn.load(model)
    (name,), (output,) = network.inputs, network.outputs
    data = pictures(options.count, options.size).astype(np.float32) / 255
    expected = np.asarray(network(data)).reshape(options.count, -1)

    floats = ArrayType(FloatType(), containsNull=False)
    schema = StructType([StructField("id", LongType(), False), StructField("picture", floats, False)])
    rows = [(i, picture.ravel().tolist()) for i, picture in enumerate(data)]
    frame = spark.createDataFrame(rows, schema).repartition(options.cores).cache()
    frame.count()  # fills the cache, so that the times below do not include it

    shape = data.shape[1:]
    predictor = Predictor(
        model, inputs={name: "picture"}, outputs={output: "large"}, keep=["id"], shapes={name: shape}, threads=1
    )
    result = StructType([StructField("id", LongType()), StructField("large", floats)])
    udf = predict_batch_udf(
        predictor.make_predict_fn, return_type=floats, batch_size=options.batch, input_tensor_shapes=[list(shape)]
    )
    ways = {
        "predict_batch_udf": lambda: frame.select("id", udf("picture").alias("large")),
        "mapInPandas": lambda: frame.mapInPandas(predictor.map, result),
        "mapInArrow": lambda: frame.mapInArrow(predictor.map, result),
    }
    report: dict[str, Any] = {"pictures": options.count}
    for way, make in ways.items():
        start = time.perf_counter()
        found = {row["id"]: np.asarray(row["large"], np.float32) for row in make().collect()}
        seconds = time.perf_counter() - start
        differences = [float(np.abs(found[i] - expected[i]).max()) for i in range(options.count) if i in found]
        report[way] = {
            "missing": options.count - len(found),
            "max_difference_from_one_process": max(differences, default=0.0),
            "seconds": seconds,
        }
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{options.cores}]")
        .appName("mpscnn")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", options.cores)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", options.batch)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = enlarge(options, spark, Path(folder))
    finally:
        spark.stop()
    ways = {way: one for way, one in report.items() if isinstance(one, dict)}
    if options.json:
        print(json.dumps(report))
    else:
        for way, one in ways.items():
            print(
                f"{way:<20}{one['seconds']:6.2f} s, {one['missing']} of {options.count} missing, max difference", end=""
            )
            print(f" {one['max_difference_from_one_process']:.1e}")
    fits = all(one["missing"] == 0 and one["max_difference_from_one_process"] < 1e-5 for one in ways.values())
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
