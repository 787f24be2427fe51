"""LangChain's summarisation middleware as a summariser."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.contrib.langchain import MiddlewareSummarizer
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state import ContextCompactionFailed, acompact_thread, compact_thread
from state.chat import Chat
from support.modes import thread


class Model(FakeListChatModel):
    """Counts how often it is asked."""

    asked: int = 0

    def _call(self, *args: Any, **kwargs: Any) -> str:
        self.asked += 1
        return super()._call(*args, **kwargs)


@pytest.fixture(params=["full", "delta"])
def chat(request: pytest.FixtureRequest) -> Chat:
    chat = Chat(request.param, CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1, 2)
    return chat


def middleware(**options: Any) -> Any:
    model = Model(responses=["what was said"])
    return SummarizationMiddleware(**{"model": model, "keep": ("messages", 2), **options})


def assert_summarised(chat: Chat, done: Any, kept: list[str]) -> None:
    first, *others = chat.accessor.get(thread()).values["messages"]
    assert isinstance(first, HumanMessage)
    assert first.content.endswith("what was said")
    assert first.additional_kwargs == {"lc_source": "summarization"}
    assert first.id
    assert [message.id for message in others] == kept
    assert (done.removed_message_count, done.preserved_message_count) == (6 - len(kept), len(kept))
    assert done.summary_updated
    assert done.total_tokens > 0


def test_the_middlewares_model_and_its_own_rule_for_what_stays_are_used(chat: Chat) -> None:
    given = middleware()
    done = compact_thread(chat.accessor, "1", summarize=MiddlewareSummarizer(given))
    assert_summarised(chat, done, ["q-2", "a-2"])
    assert given.model.asked == 1
    chat.take(3)
    assert chat.ids()[1:] == ["q-2", "a-2", "q-3", "a-3"]


async def test_so_they_are_on_the_async_face(chat: Chat) -> None:
    given = middleware()
    done = await acompact_thread(chat.accessor, "1", summarize=MiddlewareSummarizer(given))
    assert_summarised(chat, done, ["q-2", "a-2"])


def test_a_keep_that_is_given_counts(chat: Chat) -> None:
    given = middleware()
    done = compact_thread(chat.accessor, "1", summarize=MiddlewareSummarizer(given), keep=4)
    assert_summarised(chat, done, ["q-1", "a-1", "q-2", "a-2"])
    assert given.keep == ("messages", 2)


def test_the_trigger_counts_without_force_only(chat: Chat) -> None:
    before = chat.shown()
    for trigger in (None, ("messages", 7)):
        given = middleware(trigger=trigger)
        summarizer = MiddlewareSummarizer(given)
        done = compact_thread(chat.accessor, "1", summarize=summarizer, force=False)
        assert (done.reason, given.model.asked) == ("not_enough_messages", 0)
    assert chat.shown() == before
    reached = MiddlewareSummarizer(middleware(trigger=("messages", 6)))
    done = compact_thread(chat.accessor, "1", summarize=reached, force=False)
    assert_summarised(chat, done, ["q-2", "a-2"])


def test_too_few_messages_are_left_alone(chat: Chat) -> None:
    before = chat.shown()
    given = middleware(keep=("messages", 6))
    done = compact_thread(chat.accessor, "1", summarize=MiddlewareSummarizer(given))
    assert (done.reason, given.model.asked) == ("not_enough_messages", 0)
    assert chat.shown() == before


def raising(*_: Any, **__: Any) -> Any:
    raise TimeoutError("no answer")


@pytest.mark.parametrize(
    "patched",
    [
        raising,
        lambda *_: "",
        lambda *_: "Error generating summary: no answer",
        lambda *_: "Previous conversation was too long to summarize.",
    ],
    ids=["it raises", "empty", "an error", "too long"],
)
def test_a_conversation_is_not_replaced_by_an_excuse(
    chat: Chat, patched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = chat.shown()
    given = middleware()
    monkeypatch.setattr(given, "_create_summary", patched)
    with pytest.raises(ContextCompactionFailed, match="summary generation failed"):
        compact_thread(chat.accessor, "1", summarize=MiddlewareSummarizer(given))
    assert chat.shown() == before


def test_what_the_middleware_adds_to_other_channels_is_set(chat: Chat) -> None:
    class Titled(SummarizationMiddleware[Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> Any:
            assert runtime.context == {"thread_id": "1", "user_id": "u"}
            update = super().before_model(state, runtime)
            return update and {**update, "title": f"after {state['title']}"}

    given = Titled(model=middleware().model, keep=("messages", 2))
    done = compact_thread(
        chat.accessor, "1", summarize=MiddlewareSummarizer(given), context={"user_id": "u"}
    )
    assert_summarised(chat, done, ["q-2", "a-2"])
    assert chat.accessor.get(thread()).values["title"] == "after 2"


def test_what_is_no_such_middleware_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfigError, match="needs a SummarizationMiddleware"):
        MiddlewareSummarizer(object())  # type: ignore[arg-type]
    monkeypatch.delattr(SummarizationMiddleware, "_should_summarize")
    with pytest.raises(InvalidConfigError, match="update it"):
        MiddlewareSummarizer(middleware())


def test_the_extra_is_named_where_it_is_missing() -> None:
    script = "import sys; sys.modules['langchain'] = None; import deerflow_saver.contrib.langchain"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert 'pip install "deerflow-saver[langchain]"' in done.stderr
