"""langchain's agents on delta messages, with the middleware it comes with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    before_model,
    wrap_model_call,
)
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import add_messages
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver
from deerflow_saver.channel_mode import CheckpointChannelMode
from deerflow_saver.state import (
    adapt_state_schema_for_mode,
    get_thread_state_schema,
    merge_message_writes,
    normalize_middleware_state_schemas,
)
from support.savers import SaverCase, Storage, every_sync_case

MODES: tuple[CheckpointChannelMode, ...] = ("full", "delta")


class Scripted(BaseChatModel):
    """Calls the tool once per question, then answers; everything depends on what it is shown."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        count = len(messages)
        message = AIMessage(f"answer {count}", id=f"ai-{count}")
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "look_up", "args": {"what": str(count)}, "id": f"call-{count}"}
            message = AIMessage("", id=f"ai-{count}", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


def look_up(what: str) -> str:
    """Look something up."""
    return f"found {what}"


class Counting(AgentMiddleware[Any, Any]):
    """Keeps a count on itself and a channel of its own."""

    class State(AgentState[Any]):
        counted: Annotated[list[str], lambda left, right: [*left, *right]]

    state_schema = State

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        self.calls += 1
        return {"counted": [str(len(state["messages"]))]}


@before_model
def hook(state: Any, runtime: Any) -> None:
    """A middleware made of a function."""


@wrap_model_call
def around(request: Any, handler: Callable[[Any], Any]) -> Any:
    return handler(request)


def every_middleware() -> list[Any]:
    return [
        Counting(),
        hook,
        around,
        TodoListMiddleware(),
        ModelCallLimitMiddleware(thread_limit=99),
        ToolCallLimitMiddleware(thread_limit=99),
        PIIMiddleware("email"),
        ContextEditingMiddleware(),
        ModelRetryMiddleware(),
        ToolRetryMiddleware(),
        SummarizationMiddleware(Scripted(), trigger=("messages", 12), keep=("messages", 4)),
    ]


def agent(
    mode: CheckpointChannelMode, middleware: Sequence[Any], saver: Any = None, schema: Any = None
) -> Any:
    return create_agent(
        Scripted(),
        [look_up],
        middleware=normalize_middleware_state_schemas(middleware, mode, 3),
        state_schema=schema or get_thread_state_schema(mode, 3),
        checkpointer=saver,
    )


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def said(state: Any) -> list[tuple[str, Any]]:
    """The conversation without the ids langchain makes at random."""
    return [(message.type, message.content) for message in state.values["messages"]]


@every_sync_case
def test_both_modes_hold_the_same_conversation(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as inner:
        saver = CachedHistorySaver(inner)
        agents = {mode: agent(mode, every_middleware(), saver) for mode in MODES}
        for turn in range(5):
            asked = {"messages": [HumanMessage(f"question {turn}", id=f"q-{turn}")]}
            for mode, graph in agents.items():
                graph.invoke(asked, thread(mode))
        configs = {mode: thread(mode) for mode in MODES}
        full, delta = (agents[mode].get_state(configs[mode]) for mode in MODES)
        assert said(full) == said(delta)
        assert len(said(full)) > 4
        others = full.values.keys() - {"messages"}
        assert {name: full.values[name] for name in others} == {
            name: delta.values[name] for name in others
        }
        assert delta.values.keys() == full.values.keys()
        rows = [row.checkpoint["channel_values"] for row in inner.list(configs["delta"])]
        assert sum("messages" in values for values in rows) < len(rows) / 2


@every_sync_case
def test_a_delta_agent_is_interrupted_and_resumed(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as inner:
        asking = HumanInTheLoopMiddleware(interrupt_on={"look_up": True})
        graph = agent("delta", [asking], CachedHistorySaver(inner))
        config = thread("1")
        graph.invoke({"messages": [HumanMessage("question", id="q")]}, config)
        assert graph.get_state(config).interrupts
        graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
        assert [kind for kind, _ in said(graph.get_state(config))] == ["human", "ai", "tool", "ai"]


@pytest.mark.parametrize(
    ("mode", "channel"), [("full", BinaryOperatorAggregate), ("delta", DeltaChannel)]
)
def test_every_compilation_has_the_channel_of_the_mode(
    mode: CheckpointChannelMode, channel: type[Any]
) -> None:
    middleware = every_middleware()
    schemas = [item.state_schema for item in middleware]
    for _ in range(10):
        graph = agent(mode, middleware)
        assert type(graph.channels["messages"]) is channel
        assert isinstance(graph.channels["counted"], BinaryOperatorAggregate)
    assert [item.state_schema for item in middleware] == schemas
    assert Counting.state_schema is Counting.State


def test_the_cadence_reaches_the_agent() -> None:
    graph = agent("delta", every_middleware())
    assert graph.channels["messages"] == DeltaChannel(merge_message_writes, snapshot_frequency=3)


def test_full_mode_returns_the_same_items_in_a_new_list() -> None:
    middleware = every_middleware()
    normal = normalize_middleware_state_schemas(middleware, "full")
    assert normal is not middleware
    assert all(mine is given for mine, given in zip(normal, middleware, strict=True))


def test_an_adapted_middleware_is_the_same_object_but_for_its_schema() -> None:
    counting = Counting()
    (adapted,) = normalize_middleware_state_schemas([counting], "delta", 3)
    assert adapted.state_schema is adapt_state_schema_for_mode(Counting.State, "delta", 3)
    assert counting.state_schema is Counting.State
    assert isinstance(adapted, Counting)
    assert adapted.name == counting.name
    agent("delta", [adapted]).invoke({"messages": [HumanMessage("q")]})
    assert counting.calls == adapted.calls == 2


def test_what_is_normalised_already_stays_and_what_has_no_schema_too() -> None:
    plain = object()
    once = normalize_middleware_state_schemas([Counting(), plain], "delta", 3)
    again = normalize_middleware_state_schemas(once, "delta", 3)
    assert all(mine is given for mine, given in zip(again, once, strict=True))
    assert once[1] is plain


def test_a_middlewares_own_channels_can_be_delta_channels() -> None:
    class State(AgentState[Any]):
        messages: Annotated[list[AnyMessage], add_messages]

    middleware = normalize_middleware_state_schemas(
        [Counting()], "delta", 3, channels=("messages", "counted")
    )
    graph = create_agent(
        Scripted(),
        [look_up],
        middleware=middleware,
        state_schema=adapt_state_schema_for_mode(State, "delta", 3),
    )
    assert isinstance(graph.channels["counted"], DeltaChannel)
    assert graph.invoke({"messages": [HumanMessage("q")]})["counted"] == ["1", "3"]
