"""LangChain's summarisation middleware as a summariser for compaction (extra `langchain`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.runtime import Runtime

from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state import Compaction, CompactionRequest

try:
    from langchain.agents.middleware import SummarizationMiddleware
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'deerflow_saver.contrib.langchain needs LangChain: pip install "deerflow-saver[langchain]"',
        name=error.name,
    ) from error

__all__ = ["MiddlewareSummarizer"]

_TRIGGER = "_should_summarize"
"""The middleware's method that tells whether its trigger is reached."""
_INTRODUCTION = "Here is a summary of the conversation to date:"
_NO_SUMMARY = ("Error generating summary", "Previous conversation was too long to summarize.")
"""What the middleware writes in place of a summary that it could not make."""


class MiddlewareSummarizer:
    """Summarises as a `SummarizationMiddleware` does before a model is called.

    Its prompt, model and rules for what stays are used; the summary is a message in front of
    the others. Its trigger counts only without `force`, and a `keep` that is given replaces
    its own. The middleware itself is not changed.

    Args:
        middleware: a `SummarizationMiddleware`, of whatever subclass.

    Raises:
        InvalidConfigError: it is none, or its release has no trigger that can be passed over.

    """

    chooses = True
    """It decides itself what stays."""

    def __init__(self, middleware: SummarizationMiddleware[Any, Any]) -> None:
        given: Any = middleware
        if not isinstance(given, SummarizationMiddleware):
            msg = f"needs a SummarizationMiddleware, got {type(given).__name__}"
            raise InvalidConfigError(msg)
        if not callable(getattr(middleware, _TRIGGER, None)):
            msg = "this LangChain's SummarizationMiddleware cannot be called by hand: update it"
            raise InvalidConfigError(msg)
        self._middleware = middleware

    def __call__(self, request: CompactionRequest) -> Compaction | None:
        """Summarise in place."""
        update = self._ready(request).before_model(_state(request), _runtime(request))
        return _compaction(update, request)

    async def acall(self, request: CompactionRequest) -> Compaction | None:
        """Summarise with the model's async face."""
        update = await self._ready(request).abefore_model(_state(request), _runtime(request))
        return _compaction(update, request)

    def _ready(self, request: CompactionRequest) -> Any:
        ready: Any = copy.copy(self._middleware)
        if request.keep is not None:
            ready.keep = ("messages", request.keep)
        if request.force:
            setattr(ready, _TRIGGER, lambda *_args, **_options: True)
        return ready


def _state(request: CompactionRequest) -> Any:
    return {**request.values, "messages": request.messages}


def _runtime(request: CompactionRequest) -> Any:
    return Runtime(context=dict(request.context))


def _compaction(update: Mapping[str, Any] | None, request: CompactionRequest) -> Compaction | None:
    """The middleware's update as what the channels are to hold."""
    if update is None:
        return None
    messages = [m for m in update["messages"] if not isinstance(m, RemoveMessage)]
    known = {message.id for message in request.messages}
    for message in messages:
        if message.id is None or message.id not in known:
            _refuse_no_summary(message)
    others = {name: value for name, value in update.items() if name != "messages"}
    return Compaction(messages, values=others)


def _refuse_no_summary(message: BaseMessage) -> None:
    """Refuse to put an excuse in place of the conversation.

    Raises:
        ValueError: the message holds no summary.

    """
    text = str(message.text).removeprefix(_INTRODUCTION).strip()
    if not text or text.startswith(_NO_SUMMARY):
        msg = f"the middleware made no summary: {text or 'it is empty'}"
        raise ValueError(msg)
