"""An application with a thread's routes, served by uvicorn over a real saver."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, HTTPException
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph

from deerflow_saver import CachedHistorySaver
from deerflow_saver.channel_mode import CheckpointChannelMode, with_checkpoint_mode
from deerflow_saver.contrib.fastapi import install_error_handlers, state_router
from deerflow_saver.state import (
    CheckpointStateAccessor,
    aprepare_run,
    get_thread_state_schema,
)
from support.savers import ASYNC_CASES, SaverCase, Storage

SERVED = [case for case in ASYNC_CASES if case.name in {"async-sqlite", "async-postgres-pool"}]


@dataclass
class Service:
    """A running application; `broken` and `mode` change how it opens threads."""

    case: SaverCase
    storage: Storage
    mode: CheckpointChannelMode = "delta"
    broken: Any = None
    summarize: Any = None
    lock: Any = None
    max_body_bytes: int = 100_000
    client: httpx.Client = field(init=False)
    app: FastAPI = field(init=False)
    saver: Any = None
    answers: list[str] = field(default_factory=list)

    def graph(self) -> Any:
        def answer(state: Any) -> dict[str, Any]:
            turn = state["messages"][-1].id.removeprefix("q-")
            self.answers.append(turn)
            if turn == "fail":
                raise HTTPException(502, "no such model")
            return {"messages": [AIMessage(f"answer {turn}", id=f"a-{turn}")], "title": turn}

        builder = StateGraph(get_thread_state_schema(self.mode, 3))
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        return builder.compile(checkpointer=self.saver)

    def accessor(self, request: Any, thread_id: str) -> Any:
        if self.broken is not None:
            return self.broken(self)
        return CheckpointStateAccessor.bind(self.graph(), self.saver, mode=self.mode)

    def build(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            async with self.case.aopen(self.storage) as saver:
                self.saver = CachedHistorySaver(saver)
                yield

        app = FastAPI(lifespan=lifespan)
        install_error_handlers(app)
        routes = state_router(
            self.accessor,
            summarizer=lambda request, thread_id: self.summarize,
            lock=self.lock,
            max_body_bytes=self.max_body_bytes,
        )
        app.include_router(routes)

        @app.post("/threads/{thread_id}/turns/{turn}")
        async def take_turn(thread_id: str, turn: str) -> dict[str, str]:
            asked = {"messages": [{"role": "user", "content": "q", "id": f"q-{turn}"}]}
            thread: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            graph, config = self.graph(), with_checkpoint_mode(thread, self.mode)
            await graph.ainvoke(asked, config)
            return {}

        @app.post("/threads/{thread_id}/regenerate")
        async def regenerate(thread_id: str) -> dict[str, str]:
            thread: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            graph = self.graph()
            newest = {"filter": {"source": "input"}, "limit": 1}
            async for asked in graph.aget_state_history(thread, **newest):
                await self.run(graph, asked.config, None)
            return {}

        @app.post("/threads/{thread_id}/edit/{checkpoint_id}/turns/{turn}")
        async def edit(thread_id: str, checkpoint_id: str, turn: str) -> dict[str, str]:
            place = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
            asked = {"messages": [{"role": "user", "content": "q", "id": f"q-{turn}"}]}
            await self.run(self.graph(), {"configurable": place}, asked)
            return {}

        return app

    async def run(self, graph: Any, config: Any, asked: Any) -> None:
        config = with_checkpoint_mode(config, self.mode)
        await graph.ainvoke(*await aprepare_run(graph, config, asked, lock=self.lock))

    def turns(self, thread_id: str, *turns: str) -> None:
        for turn in turns:
            assert self.client.post(f"/threads/{thread_id}/turns/{turn}").status_code == 200

    def get(self, thread_id: str, **query: Any) -> httpx.Response:
        return self.client.get(f"/threads/{thread_id}/state", params=query)

    def post(self, thread_id: str, route: str, /, **body: Any) -> httpx.Response:
        return self.client.post(f"/threads/{thread_id}/{route}", json=body)


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    service.app = service.build()
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as service.client:
            yield service
    finally:
        server.should_exit = True
        thread.join()
