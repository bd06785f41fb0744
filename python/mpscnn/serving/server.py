# SPDX-License-Identifier: Apache-2.0
"""A process that serves one model: uvicorn, with a graceful stop."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType

from ..errors import MissingPackageError
from .app import Limits, make_app
from .models import Model


def serve(
    model: Model,
    *,
    name: str = "model",
    host: str = "127.0.0.1",
    port: int = 8080,
    max_batch: int = 8,
    max_delay: float = 0.002,
    max_queue: int = 64,
    limits: Limits | None = None,
    max_connections: int = 1024,
    stop_seconds: float = 30.0,
    started: Callable[[str], object] | None = None,
) -> None:
    """Serve a model until SIGTERM or SIGINT, then answer the requests that were accepted and return.

    Parameters
    ----------
    model : Model
    name, max_batch, max_delay, max_queue, limits
        As in `make_app`.
    host, port : str and int
        Address; port 0 is a free one.
    max_connections : int
        Further connections are answered with 503.
    stop_seconds : float
        Time for the answers after the signal.
    started : callable, optional
        Called with the server's URL once it accepts connections.

    Raises
    ------
    mpscnn.MissingPackageError
        uvicorn, starlette or prometheus_client is not installed.
    OSError
        The address cannot be used.
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "The server", "uvicorn", ("uvicorn", "httptools", "starlette", "prometheus_client")
        ) from error

    app = make_app(model, name=name, max_batch=max_batch, max_delay=max_delay, max_queue=max_queue, limits=limits)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.server.stops = True  # type: ignore[attr-defined]
            super().handle_exit(sig, frame)

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
        if started is not None:
            started("http://{}:{}".format(*listening.getsockname()[:2]))
        # uvicorn raises a signal again after its end, for the handler that it found.
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            server.run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)
