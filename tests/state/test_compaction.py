"""A thread's older messages give way to a summary, in either mode, and nothing else does."""

from __future__ import annotations

import functools
import operator
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite

from deerflow_saver import CachedHistorySaver
from deerflow_saver.errors import (
    CheckpointModeMismatchError,
    InvalidConfigError,
    UnknownStateFieldError,
)
from deerflow_saver.state import (
    CheckpointStateAccessor,
    Compaction,
    CompactionRequest,
    ContextCompactionBusy,
    ContextCompactionDisabled,
    ContextCompactionFailed,
    ThreadCheckpointNotFoundError,
    ThreadCompactionResult,
    acompact_thread,
    adapt_state_schema_for_mode,
    compact_thread,
    find_base_before_message,
    prepare_run,
)
from deerflow_saver.state.summaries import partition
from state.chat import DELTA_CHANNELS, Bare, Chat, count, ids
from support.agent_in_modes import Agent
from support.modes import compiled, thread
from support.savers import SaverCase, Storage, every_async_case, every_sync_case

both_modes = pytest.mark.parametrize("mode", ["full", "delta"])


@pytest.fixture(params=["full", "delta"])
def chat(request: pytest.FixtureRequest) -> Chat:
    return Chat(request.param, CachedHistorySaver(InMemorySaver()))


@both_modes
@every_sync_case
def test_older_messages_are_replaced_by_a_summary_and_the_rest_stays(
    case: SaverCase, storage: Storage, mode: Any
) -> None:
    with case.open(storage) as raw:
        for number, saver in enumerate([raw, CachedHistorySaver(raw)]):
            chat, place = Chat(mode, saver), str(number)
            chat.take(0, 1, 2, thread_id=place)
            before, head = chat.shown(place), chat.accessor.get(thread(place))
            done = compact_thread(chat.accessor, place, summarize=count, keep=2)
            state = chat.accessor.get(thread(place))
            assert done == ThreadCompactionResult(
                place,
                compacted=True,
                reason=None,
                removed_message_count=4,
                preserved_message_count=2,
                summary_updated=True,
                checkpoint_id=state.config["configurable"]["checkpoint_id"],
                total_tokens=done.total_tokens,
            )
            assert done.total_tokens > 0
            assert state.values == {
                **head.values,
                "messages": head.values["messages"][4:],
                "summary_text": "q-0 a-0 q-1 a-1",
            }
            assert state.metadata is not None
            assert state.metadata["source"] == "update"
            assert state.metadata["deerflow_compacted"] == 4
            assert state.parent_config == head.config
            assert (state.next, state.tasks) == ((), ())
            assert chat.accessor.history(thread(place))[1:] == before[1]


@both_modes
@every_async_case
async def test_so_they_are_on_the_async_face(case: SaverCase, storage: Storage, mode: Any) -> None:
    async def acount(request: CompactionRequest) -> str:
        return count(request)

    async with case.aopen(storage) as raw:
        saver = CachedHistorySaver(raw)
        called_later = lambda asked: acount(asked)  # noqa: E731, PLW0108 - no coroutine function
        for number, summarize in enumerate([acount, count, called_later]):
            chat, place = Chat(mode, saver), str(number)
            await chat.atake(0, 1, 2, thread_id=place)
            done = await acompact_thread(chat.accessor, place, summarize=summarize, keep=2)
            assert (done.removed_message_count, done.preserved_message_count) == (4, 2)
            await chat.atake(3, thread_id=place)
            state = await chat.accessor.aget(thread(place))
            assert ids(state) == ["q-2", "a-2", "q-3", "a-3"]
            assert state.values["summary_text"] == "q-0 a-0 q-1 a-1"


def test_both_modes_go_on_alike_after_it() -> None:
    shown = []
    for mode in ("full", "delta"):
        chat = Chat(mode, CachedHistorySaver(InMemorySaver()))
        states = []
        for turns in ([0, 1, 2], [3], [4, 5, 6, 7]):
            chat.take(*turns)
            compact_thread(chat.accessor, "1", summarize=count, keep=3)
            state = chat.accessor.get(thread())
            states.append((state.values, state.next, len(chat.accessor.history(thread()))))
        chat.take(8)
        shown.append((states, chat.accessor.get(thread()).values))
    assert shown[0] == shown[1]
    assert shown[0][1]["summary_text"] == "a-2 q-3 a-3 q-4 a-4 q-5 a-5 q-6"


def test_where_there_is_no_channel_for_it_the_summary_is_a_message_in_front() -> None:
    for mode in ("full", "delta"):
        chat = Chat(mode, InMemorySaver(), Bare)
        chat.take(0, 1)
        done = compact_thread(chat.accessor, "1", summarize=count, keep=2)
        first, *others = chat.accessor.get(thread()).values["messages"]
        assert isinstance(first, HumanMessage)
        assert first.content == "Summary of the conversation so far:\n\nq-0 a-0"
        assert first.id
        assert first.additional_kwargs["hide_from_ui"] is True
        assert [message.id for message in others] == ["q-1", "a-1"]
        assert (done.removed_message_count, done.preserved_message_count) == (2, 2)
        assert done.summary_updated
        chat.take(2)
        compact_thread(chat.accessor, "1", summarize=count, keep=2)
        again = chat.accessor.get(thread()).values["messages"]
        assert again[0].content.endswith(f"{first.id} q-1 a-1")
        assert [message.id for message in again[1:]] == ["q-2", "a-2"]


def test_the_summariser_is_told_the_state_and_what_the_caller_passed_on(chat: Chat) -> None:
    chat.take(0, 1)
    seen: list[CompactionRequest] = []

    def summarize(request: CompactionRequest) -> str:
        seen.append(request)
        return f"summary {len(seen)}"

    compact_thread(
        chat.accessor, "1", summarize=summarize, keep=1, force=False, context={"user_id": "u"}
    )
    head = chat.accessor.history(thread())[1]
    (request,) = seen
    assert request.values == head.values
    assert request.messages == head.values["messages"]
    assert [m.id for m in request.to_summarize] == ["q-0", "a-0"]
    assert [m.id for m in request.to_preserve] == ["q-1", "a-1"]
    assert request.checkpoint_id == head.config["configurable"]["checkpoint_id"]
    assert (request.keep, request.force, request.previous_summary) == (1, False, "")
    assert request.context == {"thread_id": "1", "user_id": "u"}
    chat.take(2)
    compact_thread(chat.accessor, "1", summarize=summarize, keep=1)
    assert (seen[1].previous_summary, seen[1].force) == ("summary 1", True)


def test_what_the_summariser_does_to_what_it_is_given_changes_nothing(chat: Chat) -> None:
    chat.take(0, 1)
    before = chat.accessor.get(thread()).values

    def summarize(request: CompactionRequest) -> str:
        for message in request.messages:
            message.content = "changed"
        request.messages.clear()
        request.to_preserve.clear()
        for value in request.values.values():
            if isinstance(value, list | dict):
                value.clear()
        return "summary"

    compact_thread(chat.accessor, "1", summarize=summarize, keep=2)
    assert chat.accessor.get(thread()).values == {
        **before,
        "messages": before["messages"][2:],
        "summary_text": "summary",
    }


def test_every_channel_that_is_named_is_set_and_not_merged(chat: Chat) -> None:
    chat.take(0, 1)

    def summarize(request: CompactionRequest) -> Compaction:
        message = AIMessage("all of it")
        values = {"notes": ["n"], "plan": {"p": "q"}, "title": "T"}
        return Compaction([message, *request.messages[-1:]], "text", 77, values)

    done = compact_thread(chat.accessor, "1", summarize=summarize)
    assert done.reason == "not_enough_messages"
    summarize.chooses = True  # type: ignore[attr-defined]
    done = compact_thread(chat.accessor, "1", summarize=summarize)
    assert (done.removed_message_count, done.preserved_message_count) == (3, 1)
    assert (done.total_tokens, done.summary_updated) == (77, True)
    state = chat.accessor.get(thread())
    added, kept = state.values.pop("messages")
    assert (added.content, bool(added.id), kept.id) == ("all of it", True, "a-1")
    assert state.values == {
        "notes": ["n"],
        "plan": {"p": "q"},
        "title": "T",
        "summary_text": "text",
        "do": "",
    }
    chat.take(2)
    values = chat.accessor.get(thread()).values
    assert values["notes"] == ["n", "note 3"]
    assert values["plan"] == {"p": "q", "2": "done"}


def test_what_resembles_a_compaction_is_one(chat: Chat) -> None:
    chat.take(0, 1)
    made = SimpleNamespace(
        preserved_messages=[HumanMessage("kept", id="k")],
        messages_to_summarize=[],
        summary_text="text",
        total_tokens=5,
    )
    done = compact_thread(chat.accessor, "1", summarize=lambda _: made, keep=1)
    assert (done.removed_message_count, done.preserved_message_count) == (4, 0)
    assert (chat.ids(), done.total_tokens) == (["k"], 5)
    assert chat.accessor.get(thread()).values["summary_text"] == "text"


def test_any_channels_will_do() -> None:
    for mode in ("full", "delta"):
        accessor = CheckpointStateAccessor.bind(compiled(mode), InMemorySaver(), mode=mode)  # type: ignore[arg-type]
        for number in range(3):
            accessor.graph.invoke({"log": [f"in {number}"]}, thread())
        before = accessor.get(thread()).values
        done = compact_thread(
            accessor,
            "1",
            summarize=lambda asked: f"{len(asked.to_summarize)} went",
            keep=2,
            channel="log",
            summary_channel="title",
        )
        assert (done.removed_message_count, done.preserved_message_count) == (4, 2)
        values = accessor.get(thread()).values
        assert values["log"] == before["log"][-2:]
        assert values["title"] == "4 went"
        assert (values["facts"], values["tags"]) == (before["facts"], before["tags"])


@pytest.mark.parametrize("messages", [None, [], "no list"])
def test_without_messages_there_is_nothing_to_do(messages: Any) -> None:
    class Plain(TypedDict, total=False):
        messages: Any

    builder = StateGraph(Plain)
    builder.add_node("n", lambda _: {})
    builder.add_edge(START, "n")
    graph = builder.compile()
    accessor = CheckpointStateAccessor.bind(graph, InMemorySaver())
    accessor.replace(thread(), {} if messages is None else {"messages": messages})
    history = accessor.history(thread())
    for summarize in (pytest.fail, _chooser(pytest.fail)):
        done = compact_thread(accessor, "1", summarize=summarize, keep=0)
        assert done == ThreadCompactionResult("1", compacted=False, reason="not_enough_messages")
    assert accessor.history(thread()) == history


def test_items_that_are_equal_are_counted_one_by_one() -> None:
    class Log(TypedDict):
        log: Annotated[list[str], operator.add]
        summary_text: str

    builder = StateGraph(Log)
    builder.add_node("n", lambda _: {"log": ["x"]})
    builder.add_edge(START, "n")
    accessor = CheckpointStateAccessor.bind(builder.compile(), InMemorySaver())
    accessor.graph.invoke({"log": ["x", "y", "x", "y"]}, thread())
    done = compact_thread(accessor, "1", summarize=lambda _: "s", keep=2, channel="log")
    assert (done.removed_message_count, done.preserved_message_count) == (3, 2)
    assert done.summary_updated
    assert accessor.get(thread()).values == {"log": ["y", "x"], "summary_text": "s"}


def _chooser(summarize: Any) -> Any:
    chooser: Any = functools.partial(summarize)
    chooser.chooses = True
    return chooser


def test_too_few_messages_are_left_alone(chat: Chat) -> None:
    chat.take(0, 1)
    before = chat.shown()
    for keep in (None, 4, 100):
        done = compact_thread(chat.accessor, "1", summarize=pytest.fail, keep=keep)
        assert done == ThreadCompactionResult("1", compacted=False, reason="not_enough_messages")
    declined = compact_thread(chat.accessor, "1", summarize=lambda _: None, keep=0)
    assert declined.reason == "not_enough_messages"
    assert chat.shown() == before


def test_twenty_messages_stay_unless_the_caller_says_otherwise(chat: Chat) -> None:
    chat.take(*range(12))
    done = compact_thread(chat.accessor, "1", summarize=count)
    assert (done.removed_message_count, done.preserved_message_count) == (4, 20)
    with pytest.raises(FrozenInstanceError):
        done.compacted = False  # type: ignore[misc]


# -- which messages stay ------------------------------------------------------------------------

CALL = AIMessage("", id="call", tool_calls=[{"id": "t1", "name": "n", "args": {}}])
CALLS = AIMessage(
    "", id="calls", tool_calls=[{"id": f"t{n}", "name": "n", "args": {}} for n in (2, 3)]
)
Q0, Q1 = HumanMessage("q", id="q0"), HumanMessage("q", id="q1")
A0, A1 = AIMessage("a", id="a0"), AIMessage("a", id="a1")
T1, T2, T3 = (ToolMessage("t", tool_call_id=f"t{n}", id=f"t{n}") for n in (1, 2, 3))
RULES = SystemMessage("s", id="rules")
HIDDEN = HumanMessage("h", id="hidden", additional_kwargs={"hide_from_ui": True})


@pytest.mark.parametrize(
    ("messages", "keep", "preserved"),
    [
        ([Q0, A0, Q1, A1], 2, "q1 a1"),
        ([Q0, A0, Q1, A1], 1, "q1 a1"),
        ([Q0, A0, Q1, A1], 0, "q1"),
        ([Q0, A0, Q1, A1], 9, "q0 a0 q1 a1"),
        ([RULES, Q0, A0, Q1, A1], 1, "rules q1 a1"),
        ([Q0, A0, Q1, CALL, T1, A1], 2, "q1 call t1 a1"),
        ([Q0, CALL, T1, CALLS, T2, T3, A1], 2, "q0 calls t2 t3 a1"),
        ([Q0, CALLS, T2, T3, A1], 3, "q0 calls t2 t3 a1"),
        ([Q0, A0, T1, A1], 2, "q0 a1"),
        ([Q0, A0, Q1, HIDDEN, A1], 1, "q1 a1"),
        ([Q0], 0, "q0"),
        (["x", "y", {"z": 1}], 1, "{'z': 1}"),
    ],
)
def test_calls_stay_whole_and_the_question_and_the_rules_stay(
    messages: list[Any], keep: int, preserved: str
) -> None:
    summarized, stay = partition(messages, keep)
    assert " ".join(getattr(m, "id", None) or str(m) for m in stay) == preserved
    assert sorted(map(repr, [*summarized, *stay])) == sorted(map(repr, messages))
    places = [messages.index(m) for m in summarized]
    assert places == sorted(places)


# -- refusals -----------------------------------------------------------------------------------


def refused(chat: Chat, error: type[Exception], **options: Any) -> Any:
    """The error; the thread is as it was."""
    before = chat.shown()
    with pytest.raises(error) as caught:
        compact_thread(chat.accessor, "1", **{"summarize": count, "keep": 0, **options})
    assert chat.shown() == before
    return caught.value


def test_without_a_summariser_compaction_is_disabled(chat: Chat) -> None:
    assert str(refused(chat, ContextCompactionDisabled, summarize=None)) == (
        "Context compaction is disabled."
    )


async def test_a_thread_without_checkpoints_is_not_found(chat: Chat) -> None:
    error = refused(chat, ThreadCheckpointNotFoundError)
    assert str(error) == "Thread 1 checkpoint not found"
    assert isinstance(error, LookupError)
    with pytest.raises(LookupError, match="Thread 2 checkpoint not found"):
        await acompact_thread(chat.accessor, "2", summarize=count)


def raising(_request: Any) -> str:
    raise TimeoutError("no answer")


JUNK: dict[str, tuple[Any, type[Exception]]] = {
    "an empty text": ("", ValueError),
    "a blank text": (" \n", ValueError),
    "a NUL": ("a\x00b", ValueError),
    "half a surrogate pair": ("\ud800", ValueError),
    "a number": (5, TypeError),
    "bytes": (b"text", TypeError),
    "a message": (AIMessage("text"), TypeError),
    "a list": (["text"], TypeError),
    "no text": (Compaction([], summary_text=5), TypeError),  # type: ignore[arg-type]
    "no list of messages": (Compaction("text"), TypeError),
    "no messages": (Compaction(["text"]), TypeError),
    "no mapping": (Compaction([], "text", values=5), TypeError),  # type: ignore[arg-type]
    "what cannot be stored": (Compaction([], "text", values={"title": 2**70}), TypeError),
}


@pytest.mark.parametrize(
    ("summarize", "cause"),
    [
        pytest.param(raising, TimeoutError, id="it raises"),
        *(
            pytest.param(lambda _, answer=answer: answer, cause, id=name)
            for name, (answer, cause) in JUNK.items()
        ),
    ],
)
def test_a_summariser_that_fails_or_answers_junk_changes_nothing(
    chat: Chat, summarize: Any, cause: type[Exception]
) -> None:
    chat.take(0, 1)
    error = refused(chat, ContextCompactionFailed, summarize=summarize)
    assert str(error) == "summary generation failed"
    assert isinstance(error.__cause__, cause)


def test_channels_that_the_graph_does_not_have_are_refused(chat: Chat) -> None:
    chat.take(0, 1)
    unknown = Compaction([], "text", values={"titel": "T"})
    for options in (
        {"summarize": lambda _: unknown},
        {"summarize": pytest.fail, "channel": "titel"},
        {"summarize": pytest.fail, "summary_channel": "titel"},
    ):
        error = refused(chat, UnknownStateFieldError, **options)
        assert str(error) == "Unknown thread-state field(s): titel"


def test_an_async_summariser_is_refused_where_nothing_can_await(chat: Chat) -> None:
    async def summarize(_request: Any) -> str:
        return "text"

    class Callable:
        async def __call__(self, _request: Any) -> str:
            return "text"

    chat.take(0, 1)
    called_later = lambda asked: summarize(asked)  # noqa: E731, PLW0108 - no coroutine function
    for given in (summarize, Callable(), functools.partial(summarize), called_later):
        assert "use acompact_thread" in str(refused(chat, InvalidConfigError, summarize=given))


@pytest.mark.parametrize(
    "options",
    [{"summarize": "model"}, {"keep": -1}, {"keep": True}, {"keep": 1.5}, {"keep": "2"}],
)
def test_arguments_of_no_use_are_refused(chat: Chat, options: Any) -> None:
    chat.take(0, 1)
    assert next(iter(options)) in str(refused(chat, InvalidConfigError, **options))


def test_an_accessor_that_cannot_write_is_refused(chat: Chat) -> None:
    for accessor in (
        SimpleNamespace(checkpointer=InMemorySaver(), mode="full"),
        CheckpointStateAccessor(SimpleNamespace(), InMemorySaver()),
        CheckpointStateAccessor(chat.graph, None),
    ):
        with pytest.raises(InvalidConfigError, match="needs an accessor"):
            compact_thread(accessor, "1", summarize=count)
    with pytest.raises(InvalidConfigError, match="thread_id"):
        compact_thread(chat.accessor, "", summarize=count)


@both_modes
def test_a_question_that_waits_is_not_lost(mode: Any) -> None:
    chat = Chat(mode, CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1)
    chat.take(2, do="ask")
    error = refused(chat, ContextCompactionBusy, summarize=pytest.fail)
    assert "Thread waits for the answer to an interrupt." in str(error)
    assert (error.asks, error.tasks, error.thread_id) == (True, ("answer", "close"), "1")
    chat.graph.invoke(Command(resume="x"), chat.config())
    compact_thread(chat.accessor, "1", summarize=count, keep=2)
    assert chat.ids() == ["q-2", "a-x"]


@both_modes
@pytest.mark.parametrize("how", ["stopped", "failed", "begun", "goto"])
def test_a_run_that_is_not_over_is_refused(mode: Any, how: str) -> None:
    saver = CachedHistorySaver(InMemorySaver())
    options = {"interrupt_before": ["answer"]} if how == "stopped" else {}
    chat = Chat(mode, saver, **options)
    Chat(mode, saver).take(0, 1)
    if how == "failed":
        with pytest.raises(LookupError):
            chat.take(2, do="fail")
    elif how == "begun":
        run: Any = chat.graph.stream(chat.asked(2), chat.config(), stream_mode="checkpoints")
        next(run)
    elif how == "goto":
        chat.graph.update_state(chat.config(), Command(goto="answer"), as_node="close")
    else:
        chat.take(2)
    error = refused(chat, ContextCompactionBusy, summarize=pytest.fail)
    assert str(error) == "Thread has a run in flight. Compact after the run finishes."
    assert not error.asks
    assert error.tasks == {"begun": ("__start__",), "goto": ("answer",)}.get(
        how, ("answer", "close")
    )
    assert "run it to its end" in error.__notes__[0]
    if how == "begun":
        run.close()
    if how in {"stopped", "goto"}:
        chat.graph.invoke(None, chat.config())
        assert compact_thread(chat.accessor, "1", summarize=count, keep=1).compacted


def test_a_full_process_leaves_a_delta_thread_alone() -> None:
    saver = InMemorySaver()
    delta = Chat("delta", saver)
    delta.take(0, 1)
    before = delta.shown()
    for wrap in (saver, CachedHistorySaver(saver)):
        with pytest.raises(CheckpointModeMismatchError):
            compact_thread(Chat("full", wrap).accessor, "1", summarize=pytest.fail, keep=0)
    accessor = CheckpointStateAccessor(delta.graph, saver, "full")
    with pytest.raises(InvalidConfigError, match="delta channels"):
        compact_thread(accessor, "1", summarize=pytest.fail, keep=0)
    assert delta.shown() == before


def test_a_thread_turns_from_full_to_delta_by_it() -> None:
    saver = CachedHistorySaver(InMemorySaver())
    Chat("full", saver).take(0, 1)
    delta = Chat("delta", saver)
    compact_thread(delta.accessor, "1", summarize=count, keep=2)
    delta.take(2)
    assert delta.ids() == ["q-1", "a-1", "q-2", "a-2"]
    assert delta.accessor.get(thread()).values["notes"] == ["note 1", "note 3", "note 3"]


@pytest.mark.parametrize(
    "error",
    [
        ContextCompactionDisabled(),
        ContextCompactionFailed(),
        ContextCompactionBusy(thread_id="1", checkpoint_id="c", tasks=["t"], asks=True),
        ThreadCheckpointNotFoundError("1"),
    ],
)
def test_the_errors_survive_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


# -- what is not its affair ------------------------------------------------------------------------


@both_modes
def test_a_subgraph_with_a_memory_of_its_own_keeps_it(mode: Any) -> None:
    saver = CachedHistorySaver(InMemorySaver())

    class Inner(TypedDict, total=False):
        thoughts: Annotated[list[str], operator.add]
        title: str

    schema = adapt_state_schema_for_mode(Inner, mode, 3, channels=("thoughts",))
    inner: Any = StateGraph(schema)
    inner.add_node("think", lambda s: {"thoughts": [f"of {s['title']}"]})
    inner.add_edge(START, "think")
    chat = Chat(mode, saver, inside=inner.compile(checkpointer=True))
    chat.take(0, 1)

    def inside() -> Any:
        place = thread(checkpoint_ns="inside")
        return chat.accessor.history(place)

    before = inside()
    assert before[0].values["thoughts"] == ["of 0", "of 1"]
    compact_thread(chat.accessor, "1", summarize=count, keep=2)
    assert inside() == before
    chat.take(2)
    assert inside()[0].values["thoughts"] == ["of 0", "of 1", "of 2"]
    assert chat.ids() == ["q-1", "a-1", "q-2", "a-2"]


@every_sync_case
def test_channels_that_the_graph_lacks_keep_their_values(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as raw:
        for mode in ("full", "delta"):
            saver = CachedHistorySaver(raw)
            chat, bare = Chat(mode, saver), Chat(mode, saver, Bare)
            chat.take(0, 1, thread_id=mode)
            before = chat.accessor.get(thread(mode)).values
            compact_thread(bare.accessor, mode, summarize=count, keep=2)
            values = chat.accessor.get(thread(mode)).values
            assert {**values, "messages": 0} == {**before, "messages": 0}
            chat.take(2, thread_id=mode)
            notes = chat.accessor.get(thread(mode)).values["notes"]
            assert notes == [*before["notes"], "note 4"]


def test_no_task_is_left_by_it_and_none_is_made(chat: Chat) -> None:
    chat.take(0, 1)
    compact_thread(chat.accessor, "1", summarize=count, keep=1)
    head = chat.shown()
    chat.graph.invoke(None, chat.config())
    after = chat.accessor.get(thread())
    assert (after.values, after.next) == (head[0].values, ())


@both_modes
def test_an_overwrite_and_an_edit_work_on_top_of_it(mode: Any) -> None:
    chat = Chat(mode, CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1, 2)
    compact_thread(chat.accessor, "1", summarize=count, keep=2)
    chat.accessor.update(thread(), {"notes": Overwrite(["o"])}, as_node="close")
    chat.accessor.replace(thread(), {"messages": [HumanMessage("m", id="m")]})
    values = chat.accessor.get(thread()).values
    assert (chat.ids(), values["notes"]) == (["m"], ["o"])
    assert values["summary_text"] == "q-0 a-0 q-1 a-1"


@both_modes
def test_the_turns_from_before_can_still_be_gone_back_to(mode: Any) -> None:
    chat = Chat(mode, CachedHistorySaver(InMemorySaver()))
    chat.take(0, 1, 2)
    whole = chat.accessor.get(thread())
    compact_thread(chat.accessor, "1", summarize=count, keep=2)
    base = find_base_before_message(chat.accessor, chat.accessor.get(thread()), "q-2")
    assert ids(base) == ["q-0", "a-0", "q-1", "a-1"]
    if mode == "delta":
        chat.graph.invoke(*prepare_run(chat.graph, whole.config, chat.asked(3)))
        assert chat.ids() == [*ids(whole), "q-3", "a-3"]
        assert "summary_text" not in chat.accessor.get(thread()).values


@both_modes
def test_ephemeral_and_untracked_channels_and_managed_values_are_no_hindrance(mode: Any) -> None:
    agent = Agent(mode, CachedHistorySaver(InMemorySaver()))
    agent.graph.invoke({"log": ["one"], "do": "x"}, thread())
    agent.graph.invoke({"log": ["two"], "do": "x"}, thread())
    before = agent.accessor.get(thread()).values
    done = compact_thread(
        agent.accessor, "1", summarize=lambda _: "s", keep=2, channel="log", summary_channel="title"
    )
    assert done.compacted
    values = agent.accessor.get(thread()).values
    assert values == {**before, "log": before["log"][-2:], "title": "s"}
    agent.take_ran()
    agent.graph.invoke({"log": ["three"], "do": "x"}, thread())
    assert agent.take_ran() == ["ask", "close", "plan", "work"]


@both_modes
@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("hint", "h", "h"), ("handle", object, None)],
    ids=["hint", "handle"],
)
def test_channels_that_keep_nothing_for_long_may_be_named(
    mode: Any, name: str, value: Any, shown: Any
) -> None:
    agent = Agent(mode, CachedHistorySaver(InMemorySaver()))
    agent.graph.invoke({"log": ["one"], "do": "x"}, thread())
    made = Compaction(["kept"], values={name: value})
    compact_thread(agent.accessor, "1", summarize=lambda _: made, keep=1, channel="log")
    state = agent.accessor.get(thread())
    assert (state.values["log"], state.values.get(name), state.next) == (["kept"], shown, ())


@both_modes
def test_it_makes_what_replacing_the_channels_makes(mode: Any) -> None:
    shown = []
    for compacted in (True, False):
        chat = Chat(mode, CachedHistorySaver(InMemorySaver()))
        chat.take(0, 1, 2)
        if compacted:
            compact_thread(chat.accessor, "1", summarize=lambda _: "s", keep=2)
        else:
            kept = chat.accessor.get(thread()).values["messages"][-2:]
            chat.accessor.replace(thread(), {"messages": kept, "summary_text": "s"})
        state = chat.accessor.get(thread())
        chat.take(3, 4)
        states = [s.values for s in chat.accessor.history(thread())]
        shown.append((state.values, state.next, state.tasks, states))
    assert shown[0] == shown[1]


def test_types_that_only_the_graph_knows_survive_a_strict_decoder() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "state.strict_compaction_worker"],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"},
    )
    log = "[Note(text='input 2'), Note(text='last')]"
    held = f"True {{'log': {log}, 'facts': {{'a': Note(text='fact')}}}}"
    assert done.stdout.splitlines() == [held] * 4, done.stderr
    assert "allowed" not in done.stderr


def test_delta_channels_are_all_stored_in_the_new_checkpoint() -> None:
    raw = InMemorySaver()
    chat = Chat("delta", raw)
    chat.take(0, 1)
    compact_thread(chat.accessor, "1", summarize=count, keep=2)
    head = raw.get_tuple(thread())
    assert head is not None
    stored = head.checkpoint["channel_values"]
    assert {type(stored[name]).__name__ for name in DELTA_CHANNELS} == {"_DeltaSnapshot"}
    assert END not in head.checkpoint["channel_versions"]
