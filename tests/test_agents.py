"""LangChain's `create_agent` with delta messages: raw and wrapped tell the same conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Required

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver
from guard.scenarios.agents import Model, asking_look_up, look_up, question
from support.conversation import at, thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

TURNS = 2


class State(AgentState[Any]):
    """The agent's state, its messages as a delta channel."""

    messages: Required[
        Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=7)]
    ]


def plain(saver: Any) -> Any:
    """Calls its tools at once."""
    return create_agent(Model(), [look_up], state_schema=State, checkpointer=saver)


def reviewed(saver: Any) -> Any:
    """Asks before it calls its tools."""
    review: Any = HumanInTheLoopMiddleware(interrupt_on={"look_up": True})
    return create_agent(
        Model(), [look_up], state_schema=State, checkpointer=saver, middleware=[review]
    )


def asking(saver: Any) -> Any:
    """One of its tools asks, beside another that does not."""
    return create_agent(Model(), [asking_look_up()], state_schema=State, checkpointer=saver)


def answer(interrupts: Sequence[Any]) -> Any:
    """Yes to whatever is asked."""
    asked = interrupts[0].value
    if isinstance(asked, str):
        return Command(resume="yes")
    return Command(resume={"decisions": [{"type": "approve"} for _ in asked["action_requests"]]})


def told(snapshot: Any) -> list[Any]:
    """A state's messages without random ids, the results of parallel calls in any order."""
    told: list[Any] = []
    results: list[str] = []
    for message in snapshot.values.get("messages", ()):
        if isinstance(message, ToolMessage):
            results.append(str(message.content))
            continue
        told += [*sorted(results), (message.type, message.content, message.id)]
        results = []
    return [*told, *sorted(results), snapshot.next, len(snapshot.interrupts)]


every_agent = pytest.mark.parametrize("make", [plain, reviewed, asking], ids=lambda m: m.__name__)
SAID = 5
"""Messages of a turn: a question, two calls in one message, two results, and an answer."""


@every_agent
@every_sync_case
def test_an_agent_says_and_remembers_the_same(make: Any, case: SaverCase, storage: Storage) -> None:
    def talk(agent: Any, config: Any) -> list[Any]:
        seen = []
        for number in range(TURNS):
            agent.invoke(question(number), config)
            while interrupts := agent.get_state(config).interrupts:
                seen.append(told(agent.get_state(config)))
                agent.invoke(answer(interrupts), config)
            seen.append(told(agent.get_state(config)))
        return seen

    with case.open(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        expected = talk(make(raw), thread("raw"))
        assert talk(make(saver), thread("wrapped")) == expected
        assert saver.cache_info().refused == 0
        ours, theirs = make(saver), make(raw)
        head = theirs.get_state(thread("wrapped"))
        assert len(head.values["messages"]) == TURNS * SAID
        assert ours.get_state(thread("wrapped")) == head
        assert list(ours.get_state_history(thread("wrapped"))) == list(
            theirs.get_state_history(thread("wrapped"))
        )
        for row in list(raw.list(thread("wrapped"))):
            place = at(row, thread("wrapped"))
            history = saver.get_delta_channel_history(config=place, channels=["messages"])
            assert history == raw.get_delta_channel_history(config=place, channels=["messages"])


@every_agent
@every_async_case
async def test_an_agent_on_a_loop_says_and_remembers_the_same(
    make: Any, case: SaverCase, storage: Storage
) -> None:
    async def talk(agent: Any, config: Any) -> list[Any]:
        seen = []
        for number in range(TURNS):
            await agent.ainvoke(question(number), config)
            while interrupts := (await agent.aget_state(config)).interrupts:
                seen.append(told(await agent.aget_state(config)))
                await agent.ainvoke(answer(interrupts), config)
            seen.append(told(await agent.aget_state(config)))
        return seen

    async with case.aopen(storage) as raw:
        saver: Any = CachedHistorySaver(raw)
        expected = await talk(make(raw), thread("raw"))
        assert await talk(make(saver), thread("wrapped")) == expected
        assert saver.cache_info().refused == 0
        ours, theirs = make(saver), make(raw)
        head = await theirs.aget_state(thread("wrapped"))
        assert len(head.values["messages"]) == TURNS * SAID
        assert await ours.aget_state(thread("wrapped")) == head
        histories = [
            [state async for state in agent.aget_state_history(thread("wrapped"))]
            for agent in (ours, theirs)
        ]
        assert histories[0] == histories[1]
