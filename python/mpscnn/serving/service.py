# SPDX-License-Identifier: Apache-2.0
"""The state of a server, which its protocols share: the model, its batches, limits, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..errors import MissingPackageError
from .batching import Batcher, BusyError
from .models import Model
from .protocol import RequestError

try:
    import prometheus_client
except ModuleNotFoundError as error:
    raise MissingPackageError(
        "The server", "prometheus_client", ("uvicorn", "httptools", "starlette", "prometheus_client")
    ) from error

VERSION = "1"  # of the model: a server has one
EXTENSIONS = ("binary_tensor_data",)
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Limits:
    """Limits of requests.

    Attributes
    ----------
    body : int, bytes
        Of one request.
    json : int, bytes
        Of its JSON part, and of a gRPC message without its raw tensors. Both are parsed without a pause of the event
        loop.
    pending : int, bytes
        Of all requests that are received or wait, and of answers that are sent. Further requests are answered with 503
        or RESOURCE_EXHAUSTED. At most pending / body messages of gRPC are received at the same time.
    pixels : int
        Of one input: rows x height x width.
    seconds : float
        To receive a request, to send an answer over HTTP, and to answer gRPC's pings.
    """

    body: int = 64 << 20
    json: int = 16 << 20
    pending: int = 256 << 20
    pixels: int = 1 << 24
    seconds: float = 30.0


class Metrics:
    """Metrics for Prometheus, of all protocols."""

    def __init__(self, batcher: Callable[[], int], pending: Callable[[], int]) -> None:
        self.registry = registry = prometheus_client.CollectorRegistry()
        histogram, counter, gauge = prometheus_client.Histogram, prometheus_client.Counter, prometheus_client.Gauge
        self.requests = counter(
            "mpscnn_requests", "Answered requests by protocol and status", ["protocol", "status"], registry=registry
        )
        self.rows = counter("mpscnn_rows", "Computed rows", registry=registry)
        sizes = (1, 2, 4, 8, 16, 32, 64, 128)
        self.batch = histogram("mpscnn_batch_rows", "Rows of a batch", buckets=sizes, registry=registry)
        self.queue = histogram(
            "mpscnn_queue_seconds", "Time that a request waited for its batch", buckets=_SECONDS, registry=registry
        )
        self.compute = histogram("mpscnn_compute_seconds", "Time of a batch", buckets=_SECONDS, registry=registry)
        self.request = histogram(
            "mpscnn_request_seconds",
            "Time from the last byte of a request to its answer",
            buckets=_SECONDS,
            registry=registry,
        )
        gauge("mpscnn_queue_requests", "Requests that wait", registry=registry).set_function(batcher)
        gauge("mpscnn_pending_bytes", "Bodies of requests in memory", registry=registry).set_function(pending)

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return prometheus_client.generate_latest(self.registry)

    def observe_batch(self, rows: int, waited: list[float], seconds: float) -> None:
        """Observe a batch."""
        self.rows.inc(rows)
        self.batch.observe(rows)
        self.compute.observe(seconds)
        for one in waited:
            self.queue.observe(one)


def netloc(host: str, port: int) -> str:
    """Return host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Service:
    """A model with its batches, limits and metrics."""

    def __init__(self, model: Model, name: str, batching: Mapping[str, Any], limits: Limits) -> None:
        self.model, self.name, self.limits = model, name, limits
        self.pending = 0  # bytes
        self.stops = False
        self.metrics = Metrics(lambda: self.batcher.waiting, lambda: self.pending)
        self.batcher = Batcher(model, **batching, observe=self.metrics.observe_batch)

    def check_name(self, name: str, version: str) -> None:
        """Raise RequestError unless these are the name and version of the model."""
        if name != self.name:
            raise RequestError(f'there is no model "{name:.200}"; there is "{self.name}".', 404)
        if version != VERSION:
            raise RequestError(f'there is no version "{version:.200}" of "{name}"; there is "{VERSION}".', 404)

    async def infer(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs, computed in a batch with those of other requests."""
        try:
            self.model.check(arrays)
        except (ValueError, TypeError) as error:
            raise RequestError(str(error)) from error
        return await self.batcher(arrays)


class Held:
    """The bytes that a request holds of Limits.pending."""

    def __init__(self, service: Service) -> None:
        self.service, self.bytes = service, 0

    def take(self, size: int) -> None:
        """Hold further bytes, or raise BusyError."""
        if self.service.pending + size > self.service.limits.pending:
            raise BusyError(f"the bodies of requests take {self.service.pending} bytes, near the maximum.")
        self.change(self.bytes + size)

    def change(self, size: int) -> None:
        """Hold so many bytes from now on."""
        self.service.pending += size - self.bytes
        self.bytes = size

    def free(self) -> None:
        """Hold nothing."""
        self.change(0)
