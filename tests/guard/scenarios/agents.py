"""Legal: tool-calling agents, in the shapes that LangChain's `create_agent` compiles to.

`create_agent` runs a model node and sends each tool call to a tools node of its own, with
middleware as further nodes; the prebuilt agent of this LangGraph does the same.
"""

from __future__ import annotations

import warnings
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from guard.scenarios.env import Env
from guard.scenarios.kinds import agent_state
from guard.scenarios.registry import legal


class Model(BaseChatModel):
    """Calls two tools for a question, and then says that it is done."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        number = len(messages)
        if isinstance(messages[-1], ToolMessage):
            answer = AIMessage(f"done after {number}", id=f"done{number}")
        else:
            calls = [
                {"name": "look_up", "args": {"word": word}, "id": f"call{number}{word}"}
                for word in ("one", "two")
            ]
            answer = AIMessage("", id=f"asks{number}", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


def asking_look_up() -> Any:
    @tool("look_up")
    def asking(word: str) -> str:
        """Look a word up, once somebody agrees."""
        return f"found {word}: {interrupt(word)}" if word == "two" else f"found {word}"

    return asking


def agent(env: Env, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangGraph points to LangChain's own
        from langgraph.prebuilt import create_react_agent

        return create_react_agent(
            Model(),
            options.pop("tools", [look_up]),
            state_schema=agent_state(env.kind),
            checkpointer=env.saver,
            **options,
        )


def question(number: int) -> Any:
    return {"messages": [HumanMessage(f"question {number}", id=f"q{number}")]}


async def _turns(env: Env, graph: Any, count: int = 2) -> None:
    for number in range(count):
        await env.invoke(graph, question(number), env.thread())


async def _answered(env: Env, graph: Any) -> None:
    for number in range(2):
        await env.invoke(graph, question(number), env.thread())
        while (await env.state(graph, env.thread())).interrupts:
            await env.invoke(graph, Command(resume="yes"), env.thread())


@legal
async def create_react_agent(env: Env) -> None:
    await _turns(env, agent(env, version="v1"))


@legal
async def create_agent(env: Env) -> None:
    await _turns(env, agent(env, version="v2", pre_model_hook=lambda s: {"ref": ["before"]}))


@legal
async def create_agent_hitl(env: Env) -> None:
    def review(state: Any) -> Any:
        if getattr(state["messages"][-1], "tool_calls", None):
            return {"ref": [f"reviewed {interrupt('may it?')}"]}
        return {}

    await _answered(env, agent(env, version="v2", post_model_hook=review))


@legal
async def create_agent_tool_interrupt(env: Env) -> None:
    await _answered(env, agent(env, version="v2", tools=[asking_look_up()]))
