"""Messages that are written without an id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.pregel import _loop, main
from langgraph.types import Command, Overwrite

from deerflow_saver import CachedHistorySaver, fixes
from deerflow_saver.fixes._message_scenes import Minted, mint
from deerflow_saver.fixes._naming import named
from fixes.sides import as_released, mended

SLUG = "unstable-message-ids"
DICT = {"role": "user", "content": "x"}
THREAD: Any = {"configurable": {"thread_id": "1"}}

FORMS: dict[str, Callable[[], Any]] = {
    "message": lambda: [HumanMessage("x")],
    "pair": lambda: [("user", "x")],
    "bare pair": lambda: ("user", "x"),
    "string": lambda: "x",
    "listed string": lambda: ["x"],
    "dict": lambda: [dict(DICT)],
    "bare dict": lambda: dict(DICT),
    "two at once": lambda: [("user", "x"), "x"],
    "overwritten dict": lambda: Overwrite([dict(DICT)]),
    "overwritten pair": lambda: Overwrite([("user", "x")]),
    "overwritten string": lambda: Overwrite(["x"]),
    "overwritten message": lambda: Overwrite([HumanMessage("x")]),
    "overwritten by key": lambda: {"__overwrite__": [dict(DICT)]},
    "overwritten in JSON": lambda: {"value": [dict(DICT)], "type": "__overwrite__"},
}

pytestmark = pytest.mark.usefixtures("as_released")

every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def graph(node: Callable[[Any], Any], schema: Any = Minted, saver: Any = None) -> Any:
    builder: Any = StateGraph(schema)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver or InMemorySaver())


def ids(state: Any) -> list[Any]:
    return [getattr(message, "id", None) for message in state["messages"]]


def reads(run: Any, *, is_async: bool = False) -> list[list[Any]]:
    """The ids of the head, read three times."""
    if is_async:
        return [ids(asyncio.run(run.aget_state(THREAD)).values) for _ in range(3)]
    return [ids(run.get_state(THREAD).values) for _ in range(3)]


def steady(live: list[Any], later: list[list[Any]]) -> bool:
    return None not in live and bool(live) and all(again == live for again in later)


@pytest.fixture
def fixed() -> None:
    if as_released(SLUG) and not mended(SLUG):
        pytest.skip("this release cannot be patched")


def test_as_released_some_form_changes_at_every_read() -> None:
    if as_released(SLUG):
        found = []
        for name in FORMS.keys() - {"overwritten in JSON"}:  # a defect of its own
            form = FORMS[name]
            run = graph(lambda _state: {})
            live = ids(run.invoke({"messages": form()}, THREAD))
            found.append(steady(live, reads(run)))
        assert not all(found)


@pytest.mark.usefixtures("fixed")
@every_form
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_as_input_and_from_a_node_ids_stay(form: Any, is_async: bool, durability: Any) -> None:
    run = graph(lambda _state: {"messages": form()})
    given = ({"messages": form()}, THREAD)
    if is_async:
        live = asyncio.run(run.ainvoke(*given, durability=durability))
    else:
        live = run.invoke(*given, durability=durability)
    assert steady(ids(live), reads(run, is_async=is_async))


@pytest.mark.usefixtures("fixed")
@every_form
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_in_update_state_ids_stay(form: Any, is_async: bool) -> None:
    run = graph(lambda _state: {})
    run.invoke({"messages": [HumanMessage("first", id="first")]}, THREAD)
    if is_async:
        asyncio.run(run.aupdate_state(THREAD, {"messages": form()}, as_node="node"))
    else:
        run.update_state(THREAD, {"messages": form()}, as_node="node")
    first, *rest = reads(run)
    assert steady(first, rest)


@pytest.mark.usefixtures("fixed")
@every_form
def test_in_a_command_ids_stay(form: Any) -> None:
    run = graph(lambda _state: {})
    run.invoke({"messages": [HumanMessage("first", id="first")]}, THREAD)
    live = run.invoke(Command(update={"messages": form()}, goto="node"), THREAD)
    assert steady(ids(live), reads(run))


@pytest.mark.usefixtures("fixed")
@every_form
def test_equal_messages_stay_apart(form: Any) -> None:
    run = graph(lambda _state: {"messages": form()})
    run.invoke({"messages": form()}, THREAD)
    found = reads(run)[0]
    assert len(found) == len(set(found))
    at_once = 2 if isinstance(form(), list) and len(form()) > 1 else 1
    overwritten = isinstance(form(), Overwrite) or (
        isinstance(form(), dict) and "__overwrite__" in {*form(), form().get("type")}
    )
    assert len(found) == (at_once if overwritten else 2 * at_once)


@pytest.mark.usefixtures("fixed")
@every_form
def test_a_message_can_be_addressed_by_the_id_it_was_read_with(form: Any) -> None:
    run = graph(lambda _state: {})
    run.invoke({"messages": form()}, THREAD)
    target = reads(run)[0][0]
    run.update_state(THREAD, {"messages": [RemoveMessage(id=target)]}, as_node="node")
    assert target not in reads(run)[0]


@pytest.mark.usefixtures("fixed")
@every_form
def test_the_cache_gives_the_same_ids(form: Any) -> None:
    inner = InMemorySaver()
    run = graph(lambda _state: {"messages": form()}, saver=CachedHistorySaver(inner))
    run.invoke({"messages": form()}, THREAD)
    raw = graph(lambda _state: {}, saver=inner)
    assert reads(run) == reads(raw)


@pytest.mark.usefixtures("fixed")
def test_the_callers_lists_and_dicts_are_left_as_they_are() -> None:
    given: list[Any] = [("user", "x"), "x", dict(DICT)]
    overwritten = [dict(DICT)]
    run = graph(lambda _state: {"messages": Overwrite(overwritten)})
    run.invoke({"messages": given}, THREAD)
    assert given == [("user", "x"), "x", DICT]
    assert overwritten == [DICT]


# -- channels that are no messages, or mint on purpose ---------------------------------------------


def words(current: list[Any] | None, writes: list[Any]) -> list[Any]:
    made = list(current or [])
    for write in writes:
        made.extend(write if isinstance(write, list) else [write])
    return made


def by_content(current: list[Any] | None, writes: list[Any]) -> list[Any]:
    """Equal messages are one here: the id is made of the content."""
    made: Any = list(current or [])
    for write in writes:
        texts = write if isinstance(write, list) else [write]
        made = add_messages(made, [HumanMessage(text, id=f"id of {text}") for text in texts])
    return made  # type: ignore[no-any-return]


def shouting(current: list[Any] | None, writes: list[Any]) -> list[Any]:
    """A string becomes something else than LangChain would make of it."""
    made: Any = list(current or [])
    for write in writes:
        texts = write if isinstance(write, list) else [write]
        made = add_messages(made, [AIMessage(text.upper()) for text in texts])
    return made  # type: ignore[no-any-return]


def failing(current: Any, writes: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "reducer", [words, by_content, shouting, failing], ids=lambda r: r.__name__
)
@pytest.mark.parametrize(
    "value",
    ["x", ["x", "y"], ("user", "x"), [("user", "x")], Overwrite(["x"]), Overwrite("x"), 7, None,
     {"role": "user", "content": "x"}, Overwrite([{"type": "noise"}]), [], Overwrite([])],
    ids=repr,
)  # fmt: skip
def test_what_a_reducer_makes_no_new_messages_of_is_left_alone(reducer: Any, value: Any) -> None:
    assert named(DeltaChannel(reducer, list), value) is value


class Unhashable:
    """A reducer that no dictionary can hold."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, current: Any, writes: Any) -> Any:
        return mint(current, writes)


def test_a_reducer_may_be_any_callable() -> None:
    made = named(DeltaChannel(Unhashable(), list), ["x"])
    assert isinstance(made[0], BaseMessage)
    assert made[0].id


def test_a_reducer_is_asked_once_about_a_type_it_makes_no_messages_of() -> None:
    asked = []

    def counting(current: Any, writes: Any) -> Any:
        asked.append(writes)
        return words(current, writes)

    channel = DeltaChannel(counting, list)
    for word in ("a", "b", "c"):
        named(channel, [word])
    assert len(asked) <= 3
    before = len(asked)
    named(channel, ["d"])
    assert len(asked) == before


@pytest.mark.usefixtures("fixed")
def test_a_channel_of_words_stores_words() -> None:
    schema: Any = TypedDict("schema", {"messages": Annotated[list[Any], DeltaChannel(words)]})
    run = graph(lambda _state: {"messages": ["y"]}, schema)
    run.invoke({"messages": ["x"]}, THREAD)
    assert run.get_state(THREAD).values == {"messages": ["x", "y"]}


def test_revert_gives_the_functions_back() -> None:
    modules = [module for module in (_loop, main) if "ensure_message_ids" in vars(module)]
    originals = [vars(module)["ensure_message_ids"] for module in modules]
    fixes.apply([SLUG])
    fixes.revert([SLUG])
    assert all(
        vars(module)["ensure_message_ids"] is original
        for module, original in zip(modules, originals, strict=True)
    )


def _without_blanks(current: list[Any], writes: Any) -> list[Any]:
    items = [item for write in writes for item in write if item != ""]
    return list(add_messages(current, items))  # type: ignore[arg-type]


def test_an_item_that_the_reducer_drops_says_nothing_of_the_next_one() -> None:
    channel = DeltaChannel(_without_blanks, list)
    assert named(channel, [""]) == [""]
    assert isinstance(named(channel, ["x"])[0], HumanMessage)


def test_a_pair_that_went_through_json_gets_an_id_too() -> None:
    channel = DeltaChannel(_without_blanks, list)
    (message,) = named(channel, [["user", "x"]])
    assert isinstance(message, HumanMessage)
    assert message.id


class Array:
    """Like numpy's, neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError


def test_a_dict_whose_type_is_an_array_is_left_alone() -> None:
    value = Overwrite([{"type": Array()}])
    assert named(DeltaChannel(_without_blanks, list), value) is value
