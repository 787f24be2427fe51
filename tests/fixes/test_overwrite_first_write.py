"""An `Overwrite` as the first write to an empty reducer channel."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Overwrite

from deerflow_saver import fixes
from deerflow_saver.fixes import Presence
from fixes.sides import as_released, mended

SLUG = "overwrite-first-write"
FORMS: dict[str, Any] = {
    "class": Overwrite,
    "key": lambda value: {"__overwrite__": value},
    "json": lambda value: {"value": value, "type": "__overwrite__"},
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
OW = Overwrite({"k": 1})

pytestmark = pytest.mark.usefixtures("as_released")


def channel(typ: Any = dict | None, reducer: Any = operator.or_) -> Any:
    made: Any = BinaryOperatorAggregate(typ, reducer)
    made.key = "probe"
    return made


def written(*writes: Any, typ: Any = dict | None) -> Any:
    made = channel(typ)
    assert made.update(list(writes)) is True
    return made.get()


def known(form: Any) -> bool:
    """Whether this release of LangGraph takes the form for an `Overwrite` at all."""
    return written({}, form({"k": 1})) == {"k": 1} and written({"a": 1}, form({})) == {}


@every_form
def test_as_released_the_wrapper_is_stored(form: Any) -> None:
    if as_released(SLUG):
        assert written(form({"k": 1})) == form({"k": 1})


@every_form
def test_mended_every_form_is_unwrapped(form: Any) -> None:
    fixes.apply([SLUG, "overwrite-json-form"])
    assert known(form)
    assert written(form({"k": 1})) == {"k": 1}


def test_two_in_one_step_raise_as_they_do_in_a_full_channel() -> None:
    assert not as_released(SLUG) or written(OW, Overwrite({"k": 2})) == {"k": 2}
    fixes.apply([SLUG])
    errors = []
    for made in (channel(), channel(dict)):
        with pytest.raises(InvalidUpdateError) as caught:
            made.update([OW, Overwrite({"k": 2})])
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("writes", "value"),
    [
        pytest.param([{"a": 1}], {"a": 1}, id="plain"),
        pytest.param([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}, id="plain, plain"),
        pytest.param([{"a": 1}, OW], {"k": 1}, id="plain, overwrite"),
        pytest.param([OW, {"a": 1}], {"k": 1}, id="overwrite, plain"),
        pytest.param([OW, {"a": 1}, {"b": 2}], {"k": 1}, id="overwrite, plain, plain"),
        pytest.param([Overwrite(None)], None, id="overwrite by None"),
    ],
)
def test_an_empty_channel_takes_writes_as_a_full_one_does(writes: Any, value: Any) -> None:
    fixes.apply([SLUG])
    assert written(*writes) == value
    assert written(*writes, typ=dict) == value


def test_no_writes_are_no_update() -> None:
    fixes.apply([SLUG])
    made = channel()
    assert made.update([]) is False
    assert not made.is_available()


class Capitals(BinaryOperatorAggregate):  # type: ignore[type-arg]
    """A subclass with an `update` of its own."""

    def update(self, values: Any) -> bool:
        return super().update([str(getattr(value, "value", value)).upper() for value in values])


def test_a_subclass_that_overrides_update_is_respected() -> None:
    fixes.apply([SLUG])
    made: Any = Capitals(str | None, operator.add)  # type: ignore[arg-type]
    made.key = "probe"
    made.update([Overwrite("a"), "b"])
    assert made.get() == "AB"


@pytest.mark.parametrize("call", ["bound", "by keyword", "through the class"])
def test_update_may_be_called_in_every_way(call: str) -> None:
    fixes.apply([SLUG])
    made = channel()
    if call == "bound":
        made.update([OW])
    elif call == "by keyword":
        made.update(values=[OW])
    else:
        BinaryOperatorAggregate.update(made, [OW])
    assert made.get() == {"k": 1}


def test_revert_gives_the_function_back() -> None:
    original = vars(BinaryOperatorAggregate)["update"]
    fixes.apply([SLUG])
    assert vars(BinaryOperatorAggregate)["update"] is not original or not mended(SLUG)
    fixes.revert([SLUG])
    assert vars(BinaryOperatorAggregate)["update"] is original


def test_a_graph_stores_the_value_and_reads_it_again() -> None:
    schema: Any = TypedDict("schema", {"goal": Annotated[dict | None, operator.or_]})
    builder: Any = StateGraph(schema)
    builder.add_node("set", lambda _state: {"goal": OW})
    builder.add_edge(START, "set")
    builder.add_edge("set", END)
    thread = {"configurable": {"thread_id": "1"}}
    fixes.apply([SLUG])
    graph = builder.compile(checkpointer=InMemorySaver())
    assert graph.invoke({}, thread) == {"goal": {"k": 1}}
    assert graph.get_state(thread).values == {"goal": {"k": 1}}
    assert fixes.status([SLUG])[0].presence in {Presence.FIXED, Presence.ABSENT}
