# SPDX-License-Identifier: Apache-2.0
"""A process that serves one model over HTTP (uvicorn) and gRPC, with a graceful stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType

from .. import _checks
from ..errors import MissingPackageError
from .app import app_of
from .models import Model
from .service import Limits, Service, netloc


def serve(
    model: Model,
    *,
    name: str = "model",
    host: str = "127.0.0.1",
    port: int = 8080,
    grpc_port: int | None = None,
    max_batch: int = 8,
    max_delay: float = 0.002,
    batches: int = 1,
    max_queue: int = 64,
    limits: Limits | None = None,
    max_connections: int = 1024,
    stop_seconds: float = 30.0,
    started: Callable[..., object] | None = None,
) -> None:
    """Serve a model until SIGTERM or SIGINT, then answer the requests that were accepted and return.

    Parameters
    ----------
    model : Model
    name, max_batch, max_delay, batches, max_queue, limits
        As in `make_app`.
    host, port : str and int
        Address of HTTP; port 0 is a free one.
    grpc_port : int, optional
        Port of gRPC on the same host; None is no gRPC.
    max_connections : int
        Further connections are answered with 503, and further calls of gRPC with RESOURCE_EXHAUSTED.
    stop_seconds : float
        Time for the answers after the signal.
    started : callable, optional
        Called with the server's URL once it accepts connections; with `grpc_port`, also with ``grpc://host:port``.

    Raises
    ------
    mpscnn.MissingPackageError
        uvicorn, starlette or prometheus_client is not installed, or grpcio or protobuf with `grpc_port`.
    ValueError
        "port (70000) is greater than the maximum (65535)."
    OSError
        The address cannot be used.
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "The server", "uvicorn", ("uvicorn", "httptools", "starlette", "prometheus_client")
        ) from error

    for what, number in (("port", port), ("grpc_port", grpc_port)):
        if number is not None:
            _checks.integer(number, what, minimum=0, maximum=65535)
    if grpc_port is not None:
        from .rpc import RpcServer

    batching = {"max_batch": max_batch, "max_delay": max_delay, "batches": batches, "max_queue": max_queue}
    service = Service(model, name, batching, limits or Limits())
    app = app_of(service)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            urls = ["http://" + netloc(*listening.getsockname()[:2])]
            if grpc_port is not None:
                self.rpc = RpcServer(service, max_connections)
                urls.append("grpc://" + netloc(host, await self.rpc.start(host, grpc_port)))
            await super().startup(sockets)
            if started is not None:
                started(*urls)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            service.stops = True
            super().handle_exit(sig, frame)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if grpc_port is None:
                await super().shutdown(sockets)
                return
            http = asyncio.create_task(super().shutdown(sockets))
            ends = [http, asyncio.create_task(self.rpc.stop(stop_seconds))]
            while not (all(end.done() for end in ends) or self.force_exit):
                await asyncio.wait(ends, timeout=0.1)
            if self.force_exit:  # a second signal
                http.cancel()
                await self.rpc.stop(None)
            await asyncio.gather(*ends, return_exceptions=self.force_exit)
            if not self.force_exit:
                await service.batcher.close()  # again: calls may have come after the end of HTTP

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        limit_concurrency=max_connections,
        timeout_graceful_shutdown=max(1, round(stop_seconds)),
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 << 10,
        server_header=False,
    )
    server = Server(config)
    with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
        # uvicorn raises a signal again after its end, for the handler that it found.
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            server.run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)
