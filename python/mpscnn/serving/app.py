# SPDX-License-Identifier: Apache-2.0
"""The HTTP application: endpoints of the Open Inference Protocol, limits, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core import __version__
from ..errors import MissingPackageError
from .batching import Batcher, BusyError
from .models import Model, Tensor
from .protocol import RequestError, read_request, write_response

try:
    import prometheus_client
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingPackageError(
        "The server", str(error.name), ("uvicorn", "httptools", "starlette", "prometheus_client")
    ) from error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

VERSION = "1"  # of the model: a server has one
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Limits:
    """Limits of requests.

    Attributes
    ----------
    body : int, bytes
        Of one request.
    json : int, bytes
        Of its JSON part, which is parsed without a pause.
    pending : int, bytes
        Of the bodies of all requests that are received or wait, and of answers that are sent; further requests are
        answered with 503.
    pixels : int
        Of one input: rows x height x width.
    seconds : float
        To receive a body, and to send an answer.
    """

    body: int = 64 << 20
    json: int = 16 << 20
    pending: int = 256 << 20
    pixels: int = 1 << 24
    seconds: float = 30.0


class _Metrics:
    def __init__(self, batcher: Callable[[], int], pending: Callable[[], int]) -> None:
        self.registry = registry = prometheus_client.CollectorRegistry()
        histogram, counter, gauge = prometheus_client.Histogram, prometheus_client.Counter, prometheus_client.Gauge
        self.requests = counter("mpscnn_requests", "Answered requests by HTTP status", ["status"], registry=registry)
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

    def observe_batch(self, rows: int, waited: list[float], seconds: float) -> None:
        self.rows.inc(rows)
        self.batch.observe(rows)
        self.compute.observe(seconds)
        for one in waited:
            self.queue.observe(one)


class _Server:
    """State and endpoints of the application."""

    def __init__(self, model: Model, name: str, batching: dict[str, Any], limits: Limits) -> None:
        self.model, self.name, self.limits = model, name, limits
        self.pending = 0  # bytes
        self.stops = False
        self.metrics = _Metrics(lambda: self.batcher.waiting, lambda: self.pending)
        self.batcher = Batcher(model, **batching, observe=self.metrics.observe_batch)

    # ---- health and metadata

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        self.check_name(request)
        return JSONResponse({"ready": not self.stops}, 503 if self.stops else 200)

    async def server_metadata(self, request: Request) -> Response:
        return JSONResponse({"name": "mpscnn", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def model_metadata(self, request: Request) -> Response:
        self.check_name(request)

        def tensors(of: dict[str, Tensor]) -> list[dict[str, Any]]:
            return [{"name": one.name, "datatype": one.datatype, "shape": list(one.shape)} for one in of.values()]

        return JSONResponse(
            {
                "name": self.name,
                "versions": [VERSION],
                "platform": "mpscnn",
                "inputs": tensors(self.model.inputs),
                "outputs": tensors(self.model.outputs),
            }
        )

    async def show_metrics(self, request: Request) -> Response:
        return PlainTextResponse(
            prometheus_client.generate_latest(self.metrics.registry), media_type="text/plain; version=0.0.4"
        )

    def check_name(self, request: Request) -> None:
        """Raise RequestError unless the path names this model and version, or none."""
        name, version = request.path_params.get("name", self.name), request.path_params.get("version", VERSION)
        if name != self.name:
            raise RequestError(f'there is no model "{name:.200}"; there is "{self.name}".', 404)
        if version != VERSION:
            raise RequestError(f'there is no version "{version:.200}" of "{name}"; there is "{VERSION}".', 404)

    # ---- inference

    async def infer(self, request: Request) -> Response:
        self.check_name(request)
        self.batcher.check_free()
        held = _Held(self)
        try:
            body = await self.body(request, held)
            start = time.perf_counter()
            parsed = read_request(
                body,
                request.headers.get("inference-header-content-length"),
                self.model.inputs,
                self.model.outputs,
                max_json=self.limits.json,
                max_pixels=self.limits.pixels,
            )
            try:
                self.model.check(parsed.arrays)
            except (ValueError, TypeError) as error:
                raise RequestError(str(error)) from error
            results = await self.batcher(parsed.arrays)
            parts, headers = write_response(self.name, VERSION, parsed, results)
        except BaseException:
            held.free()
            raise
        self.metrics.request.observe(time.perf_counter() - start)
        return _Answer(parts, headers, held)

    async def body(self, request: Request, held: _Held) -> memoryview:
        """Receive the body within the limits."""
        if encoding := request.headers.get("content-encoding"):
            raise RequestError(f'Content-Encoding ("{encoding:.40}") is not supported.', 415)
        length = request.headers.get("content-length")
        if length is not None:
            if not (length.isascii() and length.isdigit()):
                raise RequestError(f'Content-Length ("{length:.40}") is not a number.')
            self.check_size(int(length) if len(length) < 20 else 1 << 64)
            held.take(int(length))
        body = bytearray()

        async def receive() -> None:
            async for chunk in request.stream():
                self.check_size(len(body) + len(chunk))
                if length is None:
                    held.take(len(chunk))
                body.extend(chunk)

        try:
            await asyncio.wait_for(receive(), self.limits.seconds)
        except asyncio.TimeoutError:
            raise RequestError(f"the body was not received within {self.limits.seconds:g} s.", 408) from None
        return memoryview(body).toreadonly()

    def check_size(self, size: int) -> None:
        if size > self.limits.body:
            raise RequestError(f"the body has more bytes than the maximum ({self.limits.body}).", 413)


class _Held:
    """The bytes that a request holds of Limits.pending."""

    def __init__(self, server: _Server) -> None:
        self.server, self.bytes = server, 0

    def take(self, size: int) -> None:
        if self.server.pending + size > self.server.limits.pending:
            raise BusyError(f"the bodies of requests take {self.server.pending} bytes, near the maximum.")
        self.change(self.bytes + size)

    def change(self, size: int) -> None:
        """Hold so many bytes from now on."""
        self.server.pending += size - self.bytes
        self.bytes = size

    def free(self) -> None:
        self.change(0)


class _Answer(Response):
    """Results, whose bytes count as pending until the client has received them."""

    def __init__(self, parts: list[Any], headers: dict[str, str], held: _Held) -> None:
        size = sum(map(len, parts))
        super().__init__(headers={**headers, "content-length": str(size)})
        self.parts, self.held = parts, held
        held.change(size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_all() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for i, part in enumerate(self.parts):
                is_last = i + 1 == len(self.parts)
                await send({"type": "http.response.body", "body": part, "more_body": not is_last})

        try:
            # A client that does not read loses its connection: uvicorn closes it if the answer is not complete.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(send_all(), self.held.server.limits.seconds)
        finally:
            self.held.free()


def make_app(
    model: Model,
    *,
    name: str = "model",
    max_batch: int = 8,
    max_delay: float = 0.002,
    max_queue: int = 64,
    limits: Limits | None = None,
) -> ASGIApp:
    """Return an ASGI application that serves a model.

    Parameters
    ----------
    model : Model
        `NetworkModel` of a network.
    name : str, default "model"
        Name in paths: /v2/models/<name>/infer.
    max_batch, max_delay, max_queue
        Of the `Batcher`.
    limits : Limits, optional

    Returns
    -------
    starlette.applications.Starlette
        ``app.state.server.stops = True`` makes it not ready.

    Raises
    ------
    ValueError
        "max_batch (0) is less than the minimum (1)."
    """
    batching = {"max_batch": max_batch, "max_delay": max_delay, "max_queue": max_queue}
    server = _Server(model, name, batching, limits or Limits())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await server.batcher.close()

    def counted(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def call(request: Request) -> Response:
            try:
                response = await endpoint(request)
            except RequestError as error:
                response = JSONResponse({"error": str(error)}, error.status)
            except BusyError as error:
                response = JSONResponse({"error": str(error)}, 503, {"retry-after": str(error.retry_after)})
            except ClientDisconnect:
                response = Response(status_code=400)  # no one reads it
            except Exception as error:
                response = JSONResponse({"error": f"{type(error).__name__}: {error}"}, 500)
            server.metrics.requests.labels(response.status_code).inc()
            return response

        return call

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    of_model = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
    routes = [
        Route("/v2", counted(server.server_metadata)),
        Route("/v2/health/live", counted(server.live)),
        Route("/v2/health/ready", counted(server.ready)),
        Route("/metrics", server.show_metrics),
        *(Route(path, counted(server.model_metadata)) for path in of_model),
        *(Route(f"{path}/ready", counted(server.ready)) for path in of_model),
        *(Route(f"{path}/infer", counted(server.infer), methods=["POST"]) for path in of_model),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: http_error})
    app.state.server = server
    return app
