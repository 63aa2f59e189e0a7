"""The routes of the server."""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ...logic.openai.answers import Answer, Usage
from ...logic.openai.requests import Generation, parse_chat, parse_completion
from ...logic.openai.responses import Reply, parse_response
from .catalog import Catalog
from .embeddings import embed
from .generation import generate
from .jobs import Job, Worker
from .options import ServeOptions
from .refusals import Cancelled, Refusal, refusal_of
from .requests import parse_body, parse_embedding
from .tensors import CONTENT_TYPE, run_part

Handler = Callable[[Request], Awaitable[Response]]
LOCAL = ("localhost", "127.0.0.1", "[::1]")


class EventStream(StreamingResponse):
    """A stream of events that cancels its job however it ends."""

    def __init__(self, job: Job, events: AsyncIterator[bytes]) -> None:
        # proxies such as nginx would else collect events
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self.job = job

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.cancel()


class Service:
    """What the routes call.

    Args:
        catalog: the models.
        options: who may use them.
    """

    def __init__(self, catalog: Catalog, options: ServeOptions) -> None:
        self.catalog, self.options = catalog, options
        self.worker = Worker(options.limits.waiting)

    def cancel(self) -> None:
        """Cancels all requests, and takes no further ones."""
        self.worker.cancel()

    def end(self) -> None:
        """Cancels all requests and waits for the engine."""
        self.worker.end()

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            ("/health", self.health, "GET"),
            ("/v1/models", self.models, "GET"),
            ("/v1/models/{name:path}", self.model, "GET"),
            ("/v1/completions", self.completions, "POST"),
            ("/v1/chat/completions", self.chat, "POST"),
            ("/v1/responses", self.responses, "POST"),
            ("/v1/embeddings", self.embeddings, "POST"),
            ("/v1/split/{name:path}", self.split, "POST"),
        ]
        middleware = []
        if self.options.origins:
            middleware.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=list(self.options.origins),
                    allow_methods=["GET", "POST"],
                    allow_headers=["*"],
                    allow_private_network=True,  # a page of the web may ask this machine
                    max_age=600,
                )
            )
        app = Starlette(
            routes=[Route(p, self._guarded(handler), methods=[m]) for p, handler, m in routes],
            middleware=middleware,
            exception_handlers={HTTPException: _not_there},
        )
        app.router.redirect_slashes = False  # to an address that the client's Host names
        return app

    def _guarded(self, handler: Handler) -> Handler:
        """A handler behind the checks of who asks; every error becomes an answer."""

        @functools.wraps(handler)
        async def guarded(request: Request) -> Response:
            try:
                self._admit(request)
                return await handler(request)
            except ClientDisconnect:
                return _refused(refusal_of(Cancelled()))
            except Exception as e:
                return _refused(refusal_of(e))

        return guarded

    def _admit(self, request: Request) -> None:
        """Raises Refusal for requests of pages and programs that may not use the server."""
        name = re.sub(r":[0-9]*\Z", "", request.headers.get("host", "")).lower()
        known = (*LOCAL, self.options.host, *map(str.lower, self.options.hosts))
        if (self.options.loopback or self.options.hosts) and name not in known:
            # Maybe a page of another site whose name was made to point to this machine.
            text = f"this server is not {name[:80]!r}; behind a proxy, start it with --allowed-host"
            raise Refusal(text, 403, code="wrong_host")
        origin = request.headers.get("origin")
        if origin is not None and not {origin, "*"} & set(self.options.origins):
            text = f"pages of {origin[:80]} may not use this server; start it with --origin"
            raise Refusal(text, 403, code="wrong_origin")
        # request.url would be made of the Host, which the client chooses.
        if self.options.api_key is not None and request.scope["path"] != "/health":
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.encode(), self.options.api_key.encode())
            if not same or scheme.lower() != "bearer":
                text = "send the server's key as `Authorization: Bearer KEY`"
                raise Refusal(text, 401, code="invalid_api_key")

    # ---- routes ----
    async def health(self, request: Request) -> Response:
        """Whether the server is there."""
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        """All models and adapters."""
        return JSONResponse({"object": "list", "data": [*map(self._described, self._names())]})

    async def model(self, request: Request) -> Response:
        """One of them."""
        name = request.path_params["name"]
        for known in self._names():
            if known == name:
                return JSONResponse(self._described(known))
        raise Refusal(f"there is no model {name[:80]!r}", 404, "model", "model_not_found")

    def _names(self) -> list[str]:
        return [name for name, _ in self.catalog.names()]

    def _described(self, name: str) -> dict[str, Any]:
        record = {"id": name, "object": "model", "created": self.catalog.created}
        parent = dict(self.catalog.names())[name]
        return {**record, "owned_by": "edgewise", "root": parent or name, "parent": parent}

    async def completions(self, request: Request) -> Response:
        """Continues texts."""
        body = parse_body(await self._body(request, "application/json"))
        return await self._answer(request, parse_completion(body, self.options.limits))

    async def chat(self, request: Request) -> Response:
        """Answers chats."""
        body = parse_body(await self._body(request, "application/json"))
        return await self._answer(request, parse_chat(body, self.options.limits))

    async def responses(self, request: Request) -> Response:
        """Answers a chat in the form of /v1/responses."""
        body = parse_body(await self._body(request, "application/json"))
        asked = parse_response(body, self.options.limits)
        reply = Reply(asked, body, secrets.token_hex(12), int(time.time()))
        return await self._text(request, asked, reply)

    async def embeddings(self, request: Request) -> Response:
        """Embeds texts."""
        body = parse_body(await self._body(request, "application/json"))
        asked = parse_embedding(body, self.options.limits)
        pipe = self.catalog.embedder(asked.model)
        job = self.worker.submit(lambda job: embed(pipe, asked, job))
        async with watched(request, job), aclosing(job.results()) as results:
            return JSONResponse(await anext(results))

    async def split(self, request: Request) -> Response:
        """Runs the second part of a split model."""
        session = self.catalog.part(request.path_params["name"])
        body, limits = await self._body(request, CONTENT_TYPE), self.options.limits
        job = self.worker.submit(lambda job: run_part(session, body, limits, job))
        async with watched(request, job), aclosing(job.results()) as results:
            return Response(await anext(results), media_type=CONTENT_TYPE)

    async def _answer(self, request: Request, asked: Generation) -> Response:
        answer = Answer(asked, secrets.token_hex(12), int(time.time()))
        return await self._text(request, asked, answer)

    async def _text(self, request: Request, asked: Generation, answer: Answer | Reply) -> Response:
        model, adapter = self.catalog.text(asked.model)
        limits = self.options.limits

        def work(job: Job) -> Iterator[Any]:
            return generate(model, adapter, asked, limits, job)

        job = self.worker.submit(work)
        results = job.results()
        async with watched(request, job):
            if not asked.stream:
                async with aclosing(results):
                    return JSONResponse(answer.whole([event async for event in results]))
            # Errors before the first text have a status of their own.
            first = await anext(results)
        return EventStream(job, _events(answer, first, results))

    async def _body(self, request: Request, kind: str) -> bytes:
        """The body of a request. Raises Refusal."""
        limits = self.options.limits
        most = limits.body if kind == "application/json" else limits.tensors
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != kind:  # pages may send other types without being asked for permission
            raise Refusal(f"send it with `Content-Type: {kind}`", 415, code="wrong_content_type")
        large = Refusal(f"at most {most} bytes are read", 413, code="too_large")
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > most:
            raise large
        data = bytearray()
        try:
            async with asyncio.timeout(limits.seconds):
                async for piece in request.stream():
                    data += piece
                    if len(data) > most:
                        raise large
        except TimeoutError:
            text = f"the body did not arrive within {limits.seconds:g} s"
            raise Refusal(text, 408, code="too_slow") from None
        return bytes(data)


async def _events(
    answer: Answer | Reply, first: Any, results: AsyncIterator[Any]
) -> AsyncIterator[bytes]:
    """The events of a stream; an error within it is its last event."""
    try:
        for record in answer.records(first):
            yield event_of(record)
        async for event in results:
            for record in answer.records(event):
                yield event_of(record)
        if isinstance(answer, Answer):
            yield event_of("[DONE]")
    except Exception as e:
        yield event_of(refusal_of(e).body)


def event_of(record: Any) -> bytes:
    """An event of a stream (text/event-stream), of the type of a record if it has one. JSON has no
    line ends within.
    """
    text = record if isinstance(record, str) else json.dumps(record, separators=(",", ":"))
    kind = record.get("type") if isinstance(record, dict) else None
    name = "" if kind is None else f"event: {kind}\n"
    return f"{name}data: {text}\n\n".encode()


@asynccontextmanager
async def watched(request: Request, job: Job) -> AsyncIterator[None]:
    """A context in which the job is cancelled when the client goes away."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        job.cancel()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()


def _refused(refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
    if refusal.status == 429:
        headers = {"Retry-After": "1"}
    return JSONResponse(refusal.body, refusal.status, headers)


async def _not_there(request: Request, error: Exception) -> Response:
    status, headers = 500, None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers  # which methods there are
    text = f"there is no {request.method} {request.scope['path'][:200]}"
    code = "method_not_supported" if status == 405 else "not_found"
    return _refused(Refusal(text, status, code=code), headers)


__all__ = ["Service", "Usage"]
