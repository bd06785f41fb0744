# SPDX-License-Identifier: Apache-2.0
"""The HTTP application: endpoints of the Open Inference Protocol, and of Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from .._core import __version__
from ..errors import MissingPackageError
from .batching import BusyError
from .models import Model, Tensor
from .protocol import RequestError, read_request, write_response
from .service import EXTENSIONS, VERSION, Held, Limits, Service

try:
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


class _Endpoints:
    """The endpoints of a service."""

    def __init__(self, service: Service) -> None:
        self.service, self.limits = service, service.limits

    # ---- health and metadata

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        self.check_name(request)
        return JSONResponse({"ready": not self.service.stops}, 503 if self.service.stops else 200)

    async def server_metadata(self, request: Request) -> Response:
        return JSONResponse({"name": "mpscnn", "version": __version__, "extensions": EXTENSIONS})

    async def model_metadata(self, request: Request) -> Response:
        self.check_name(request)

        def tensors(of: dict[str, Tensor]) -> list[dict[str, Any]]:
            return [{"name": one.name, "datatype": one.datatype, "shape": list(one.shape)} for one in of.values()]

        return JSONResponse(
            {
                "name": self.service.name,
                "versions": [VERSION],
                "platform": "mpscnn",
                "inputs": tensors(self.service.model.inputs),
                "outputs": tensors(self.service.model.outputs),
            }
        )

    async def show_metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.service.metrics.text(), media_type="text/plain; version=0.0.4")

    def check_name(self, request: Request) -> None:
        """Raise RequestError unless the path names this model and version, or none."""
        path = request.path_params
        self.service.check_name(path.get("name", self.service.name), path.get("version", VERSION))

    # ---- inference

    async def infer(self, request: Request) -> Response:
        self.check_name(request)
        self.service.batcher.check_free()
        held = Held(self.service)
        try:
            body = await self.body(request, held)
            start = time.perf_counter()
            parsed = read_request(
                body,
                request.headers.get("inference-header-content-length"),
                self.service.model.inputs,
                self.service.model.outputs,
                max_json=self.limits.json,
                max_pixels=self.limits.pixels,
            )
            results = await self.service.infer(parsed.arrays)
            parts, headers = write_response(self.service.name, VERSION, parsed, results)
        except BaseException:
            held.free()
            raise
        self.service.metrics.request.observe(time.perf_counter() - start)
        return _Answer(parts, headers, held)

    async def body(self, request: Request, held: Held) -> memoryview:
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


class _Answer(Response):
    """Results, whose bytes count as pending until the client has received them."""

    def __init__(self, parts: list[Any], headers: dict[str, str], held: Held) -> None:
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
                await asyncio.wait_for(send_all(), self.held.service.limits.seconds)
        finally:
            self.held.free()


def make_app(
    model: Model,
    *,
    name: str = "model",
    max_batch: int = 8,
    max_delay: float = 0.002,
    batches: int = 1,
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
    max_batch, max_delay, batches, max_queue
        Of the `Batcher`.
    limits : Limits, optional

    Returns
    -------
    starlette.applications.Starlette
        ``app.state.service.stops = True`` makes it not ready.

    Raises
    ------
    ValueError
        "max_batch (0) is less than the minimum (1)."
    """
    batching = {"max_batch": max_batch, "max_delay": max_delay, "batches": batches, "max_queue": max_queue}
    return app_of(Service(model, name, batching, limits or Limits()))


def app_of(service: Service) -> Starlette:
    """Return the application of a service."""
    endpoints = _Endpoints(service)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        with contextlib.suppress(asyncio.CancelledError):  # a second signal: the process ends at once
            await service.batcher.close()

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
            service.metrics.requests.labels("http", response.status_code).inc()
            return response

        return call

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    of_model = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
    routes = [
        Route("/v2", counted(endpoints.server_metadata)),
        Route("/v2/health/live", counted(endpoints.live)),
        Route("/v2/health/ready", counted(endpoints.ready)),
        Route("/metrics", endpoints.show_metrics),
        *(Route(path, counted(endpoints.model_metadata)) for path in of_model),
        *(Route(f"{path}/ready", counted(endpoints.ready)) for path in of_model),
        *(Route(f"{path}/infer", counted(endpoints.infer), methods=["POST"]) for path in of_model),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: http_error})
    app.state.service = service
    return app
