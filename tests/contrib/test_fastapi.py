"""Thread state over real HTTP, on SQLite and Postgres."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from langgraph.channels.binop import _get_overwrite

from contrib.service import Service, serving
from deerflow_saver.errors import CheckpointModeReconfigurationError
from deerflow_saver.state import CheckpointStateAccessor, aopen_state_accessor
from deerflow_saver.state.beginning import begins_badly

MISMATCH = (
    "Thread 1: Thread requires delta mode; materialize and convert its checkpoints before "
    "using full mode."
)


def ids(values: dict[str, Any]) -> list[str]:
    return [message["id"] for message in values["messages"]]


def test_the_state_is_read_at_the_head_and_at_a_checkpoint(service: Service) -> None:
    service.turns("1", "0", "1")
    state = service.get("1").json()
    assert ids(state["values"]) == ["q-0", "a-0", "q-1", "a-1"]
    assert state["values"]["title"] == "1"
    assert (state["thread_id"], state["next"], state["tasks_known"]) == ("1", [], True)
    assert state["metadata"] == {"step": 4}
    parent = service.get("1", checkpoint_id=state["parent_checkpoint_id"]).json()
    assert parent["checkpoint_id"] == state["parent_checkpoint_id"]
    assert [task["name"] for task in parent["tasks"]] == parent["next"] == ["answer"]


def test_what_is_not_there_is_not_found(service: Service) -> None:
    service.turns("1", "0")
    cases = {
        "Checkpoint 1f0 not found": service.get("1", checkpoint_id="1f0"),
        "Checkpoint x' OR 1 not found": service.get("1", checkpoint_id="x' OR 1"),
        "Checkpoint not found": service.get("1", checkpoint_id=""),
        "Thread 2 not found": service.get("2"),
        "Checkpoint 1f1 not found": service.post("1", "history", before="1f1"),
        "Checkpoint 1f2 not found": service.post("1", "state", values={}, checkpoint_id="1f2"),
        "Thread 3 not found": service.post("3", "state", values={"title": "t"}),
        "Thread 4 not found": service.post("4", "branches", message_ids=["a-0"]),
    }
    assert dict.fromkeys(cases, 404) == {
        answer.json()["detail"]: answer.status_code for answer in cases.values()
    }
    assert service.post("2", "history", limit=5).json() == []
    assert len(service.post("1", "history", limit=100).json()) == 3


def test_the_history_is_paged_newest_first(service: Service) -> None:
    service.turns("1", "0", "1", "2")
    every = service.post("1", "history", limit=100).json()
    assert len(every) == 9
    paged: list[Any] = []
    while page := service.post(
        "1", "history", limit=4, before=paged[-1]["checkpoint_id"] if paged else None
    ).json():
        paged += page
    assert paged == every
    assert every[0] == service.get("1").json()
    titles = service.post("1", "history", channels=["title"]).json()
    assert titles[0]["values"] == {"title": "2"}


@pytest.mark.parametrize("limit", [0, 101, -1, "10", 1.5, True, None])
def test_a_page_has_a_size(service: Service, limit: Any) -> None:
    assert service.post("1", "history", limit=limit).status_code == 422


def test_setting_channels_replaces_what_reducers_gathered(service: Service) -> None:
    service.turns("1", "0", "1")
    before = service.get("1").json()
    kept = before["values"]["messages"][:2]
    changed = service.post(
        "1", "state", values={"messages": kept, "artifacts": ["a", "b"], "title": "T"}
    )
    assert changed.status_code == 200
    state = changed.json()
    assert state["values"]["messages"] == kept
    assert (state["values"]["artifacts"], state["values"]["title"]) == (["a", "b"], "T")
    assert state["parent_checkpoint_id"] == before["checkpoint_id"]
    assert state == service.get("1").json()
    again = service.post("1", "state", values={"title": "T"}).json()
    assert again["checkpoint_id"] != state["checkpoint_id"]
    assert again["values"] == state["values"]
    service.turns("1", "2")
    assert ids(service.get("1").json()["values"]) == ["q-0", "a-0", "q-2", "a-2"]


def test_a_message_may_come_in_any_form(service: Service) -> None:
    service.turns("1", "0")
    forms = ["hello", {"role": "assistant", "content": "hi", "id": "x"}]
    answer = service.post("1", "state", values={"messages": forms})
    found = answer.json()["values"]["messages"]
    assert [(message["type"], message["content"]) for message in found] == [
        ("human", "hello"),
        ("ai", "hi"),
    ]
    assert all(message["id"] for message in found)
    assert service.get("1").json()["values"]["messages"] == found


def test_unknown_fields_and_nonsense_are_refused_and_nothing_is_stored(service: Service) -> None:
    service.turns("1", "0")
    before = service.get("1").json()
    answer = service.post("1", "state", values={"b": 1, "a": 2, "title": "t"})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "Unknown thread-state field(s): a, b",
    )
    for values in ({"messages": 5}, {"messages": [{"nonsense": 1}]}, {"todos": [2**70]}):
        refused = service.post("1", "state", values=values)
        assert refused.status_code == 422, refused.text
        assert refused.json()["detail"].startswith(next(iter(values)))
    assert service.post("1", "state", values={}, more=1).status_code == 422
    assert service.get("1").json() == before


def test_an_update_that_would_fork_a_delta_thread_is_a_conflict(service: Service) -> None:
    service.turns("1", "0", "1")
    head = service.get("1").json()
    older = service.post("1", "history", limit=4).json()[-1]["checkpoint_id"]
    answer = service.post("1", "state", values={"title": "t"}, checkpoint_id=older)
    assert answer.status_code == 409
    body = answer.json()
    assert (body["error"], body["reason"]) == ("thread_moved_on", "fork")
    assert (body["checkpoint_id"], body["head_id"]) == (older, head["checkpoint_id"])
    assert service.get("1").json() == head


# Branches.


def test_a_branch_ends_with_the_turn_and_begins_before_it(service: Service) -> None:
    service.turns("1", "0", "1", "2")
    before = service.post("1", "history", limit=100).json()
    answer = service.post("1", "branches", message_ids=["a-1"], thread_id="branch")
    assert answer.status_code == 201
    made = answer.json()
    assert (made["thread_id"], made["parent_thread_id"]) == ("branch", "1")
    states = {state["checkpoint_id"]: state for state in before}
    assert ids(states[made["parent_checkpoint_id"]]["values"])[-1] == "a-1"
    assert ids(states[made["base_checkpoint_id"]]["values"])[-1] == "a-0"
    end, base, *root = service.post("branch", "history").json()
    assert_beginning(root)
    assert end["checkpoint_id"] == made["checkpoint_id"]
    assert ids(end["values"]) == ["q-0", "a-0", "q-1", "a-1"]
    assert end["values"]["title"] == "1"
    assert ids(base["values"]) == ["q-0", "a-0"]
    assert end["metadata"]["deerflow_branch"] is True
    assert end["metadata"]["branch_parent_message_id"] == "a-1"
    service.turns("branch", "9")
    assert ids(service.get("branch").json()["values"])[-2:] == ["q-9", "a-9"]
    assert service.post("1", "history", limit=100).json() == before


def test_the_first_turn_has_no_base(service: Service) -> None:
    service.turns("1", "0")
    made = service.post("1", "branches", message_ids=["a-0"]).json()
    assert made["base_checkpoint_id"] is None
    end, *root = service.post(made["thread_id"], "history").json()
    assert ids(end["values"]) == ["q-0", "a-0"]
    assert_beginning(root)


def assert_beginning(root: list[Any]) -> None:
    """What a thread begins with where LangGraph would lose its first write: an empty checkpoint."""
    assert [state["values"]["messages"] for state in root] == [[]] * begins_badly()


def test_what_a_thread_owns_is_not_inherited(service: Service) -> None:
    service.turns("1", "0")
    owned = {"sandbox": {"sandbox_id": "s"}, "thread_data": {"workspace_path": "/w"}}
    service.post("1", "state", values={**owned, "artifacts": ["f"]})
    made = service.post("1", "branches", message_ids=["a-0"]).json()
    values = service.get(made["thread_id"]).json()["values"]
    assert values["artifacts"] == ["f"]
    assert not values.get("sandbox")
    assert not values.get("thread_data")


@pytest.mark.parametrize("message_ids", [["q-0"], ["nowhere"], ["a-0", "a-9"]])
def test_a_turn_that_cannot_be_told_is_a_conflict(service: Service, message_ids: list[str]) -> None:
    service.turns("1", "0", "1")
    answer = service.post("1", "branches", message_ids=message_ids)
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "This turn can no longer be branched from.",
    )


def test_a_node_that_cannot_be_is_refused_and_nothing_is_stored(service: Service) -> None:
    service.turns("1", "0")
    before = service.get("1").json()
    for name in ("__start__", "__end__", "__input__", "__copy__", "__error__", "__interrupt__"):
        answer = service.post("1", "state", values={"title": "t"}, as_node=name)
        assert (answer.status_code, name in answer.text) == (422, True), answer.text
    assert service.get("1").json() == before


def test_an_overwrite_in_json_sets_what_it_holds(service: Service) -> None:
    service.turns("1", "0")
    forms: list[Any] = [{"__overwrite__": ["a"]}, {"type": "__overwrite__", "value": ["a"]}]
    known = [form for form in forms if _get_overwrite(form)[0]]  # releases differ
    assert forms[0] in known
    for value in known:
        answer = service.post("1", "state", values={"artifacts": value})
        assert answer.json()["values"]["artifacts"] == ["a"]


def test_requests_for_one_new_thread_make_it_once(service: Service) -> None:
    service.turns("1", "0", "1", "2")
    inside: list[int] = []

    class Racing(CheckpointStateAccessor):
        async def areplace(self, config: Any, values: Any, **options: Any) -> Any:
            if not inside:
                inside.append(0)
                body = {"message_ids": ["a-1"], "thread_id": "new"}
                async with httpx.AsyncClient(base_url=service.client.base_url, timeout=60) as other:
                    inside[0] = (await other.post("/threads/1/branches", json=body)).status_code
            return await super().areplace(config, values, **options)

    service.broken = lambda s: Racing.bind(s.graph(), s.saver, mode="delta")
    answer = service.post("1", "branches", message_ids=["a-2"], thread_id="new")
    assert (answer.status_code, inside) == (201, [409])
    end, base, *root = service.post("new", "history", limit=100).json()
    assert [ids(state["values"])[-1] for state in (end, base)] == ["a-2", "a-1"]
    assert_beginning(root)


def test_a_branch_never_writes_into_a_thread_that_exists(service: Service) -> None:
    service.turns("1", "0")
    service.turns("2", "5")
    before = service.get("2").json()
    answer = service.post("1", "branches", message_ids=["a-0"], thread_id="2")
    assert (answer.status_code, answer.json()["detail"]) == (409, "Thread 2 exists already.")
    assert service.get("2").json() == before


# Modes.


@pytest.fixture
def full(service: Service) -> Any:
    """A process in full mode on the database of one in delta mode, which has a thread 1."""
    service.turns("1", "0")
    with serving(replace(service, mode="full")) as running:
        yield running


def test_a_delta_thread_is_a_conflict_for_a_full_process(full: Service) -> None:
    answers = [
        full.get("1"),
        full.post("1", "history", limit=5),
        full.post("1", "state", values={"title": "t"}),
        full.post("1", "branches", message_ids=["a-0"]),
    ]
    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (409, {"detail": MISMATCH})
    ] * 4


def test_full_threads_are_served_alike(full: Service) -> None:
    full.turns("2", "0", "1")
    assert ids(full.get("2").json()["values"]) == ["q-0", "a-0", "q-1", "a-1"]
    made = full.post("2", "branches", message_ids=["a-1"]).json()
    assert ids(full.get(made["thread_id"]).json()["values"]) == ["q-0", "a-0", "q-1", "a-1"]
    older = full.post("2", "history", limit=4).json()[-1]["checkpoint_id"]
    forked = full.post("2", "state", values={"title": "t"}, checkpoint_id=older)
    assert forked.json()["parent_checkpoint_id"] == older


def test_without_its_graph_a_full_thread_is_read_and_not_written(full: Service) -> None:
    full.turns("2", "0", "1")
    whole = full.post("2", "history", limit=100).json()

    def broken(service: Service) -> Any:
        def factory() -> Any:
            raise LookupError("no such model")

        return aopen_state_accessor(factory, service.saver, mode="full")

    full.broken = broken
    state = full.get("2").json()
    assert ids(state["values"]) == ["q-0", "a-0", "q-1", "a-1"]
    assert state["tasks_known"] is False
    page = full.post("2", "history", limit=2, before=whole[1]["checkpoint_id"]).json()
    assert [s["checkpoint_id"] for s in page] == [s["checkpoint_id"] for s in whole[2:4]]
    assert full.post("2", "state", values={"title": "t"}).status_code == 503
    assert full.post("2", "branches", message_ids=["a-0"]).status_code == 503


def test_a_process_that_changes_its_mode_is_not_available(service: Service) -> None:
    text = "checkpoint_channel_mode is restart-required and cannot change in a running process"

    def broken(_: Service) -> Any:
        raise CheckpointModeReconfigurationError(text)

    service.broken = broken
    answer = service.get("1")
    assert (answer.status_code, answer.json()) == (503, {"detail": text})


def test_the_extra_is_named_where_it_is_missing() -> None:
    script = "import sys; sys.modules['fastapi'] = None; import deerflow_saver.contrib.fastapi"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert 'pip install "deerflow-saver[fastapi]"' in done.stderr


AWKWARD = (
    r'{"title": "a\u0000b"}',
    r'{"title": "\ud800"}',
    r'{"messages": [{"type": "human", "content": "\ud800"}]}',
    '{"title": NaN}',
    '{"title": 1e999}',
    r'{"todos": [{"\u0000": "\u0000"}]}',
    r'{"title": {"\ud800": 1}}',
    '{"todos": ' + "[" * 500 + "]" * 500 + "}",
    '{"title": 123456789012345678901234567890}',
    '{"__root__": 1}',
    '{"messages": [{"type": "ai", "content": "x", "tool_calls": "no"}]}',
    '{"title": {"value": 1, "type": "__overwrite__"}}',
    '{"title": {"__overwrite__": [1]}}',
)


def test_awkward_json_is_stored_as_it_is_or_refused(service: Service) -> None:
    service.turns("1", "0")
    stored = 0
    for values in AWKWARD:
        before = service.get("1").json()
        answer = service.client.post(
            "/threads/1/state",
            content=f'{{"values": {values}}}',
            headers={"Content-Type": "application/json"},
        )
        after = service.get("1")
        assert after.status_code == 200, (values, after.text)
        if answer.status_code == 200:
            stored += 1
            assert after.json() == answer.json()
        else:
            assert answer.status_code in {400, 422}, (values, answer.text)
            assert after.json() == before
    assert 0 < stored < len(AWKWARD)


UNREPEATABLE = (
    "NaN",
    '{"limit": NaN, "keep": NaN, "values": NaN, "message_ids": NaN}',
    r'{"limit": "\ud800", "keep": "\ud800", "values": "\ud800", "message_ids": "\ud800"}',
    r'{"\ud800": 1}',
    r'{"before": "\ud800"}',
    r'{"values": {}, "checkpoint_id": "\ud800"}',
    r'{"values": {"\ud800": 1}}',
    r'{"message_ids": ["a-0"], "thread_id": "\ud800"}',
    '{"limit": ' + "[" * 900 + "]" * 900 + "}",
    '{"limit": ' + '{"a": ' * 900 + "1" + "}" * 900 + "}",
)


@pytest.mark.parametrize("route", ["state", "history", "branches", "compact"])
def test_what_an_answer_cannot_repeat_is_refused_all_the_same(service: Service, route: str) -> None:
    service.turns("1", "0")
    before = service.get("1").json()
    for body in UNREPEATABLE:
        answer = service.client.post(
            f"/threads/1/{route}", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in {400, 404, 409, 422}, (body[:60], answer.text)
        assert answer.json()["detail"]
    answer = service.client.post(
        f"/threads/1/{route}", content=b"\xff", headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code in {415, 422}, answer.text
    assert service.get("1").json() == before


def test_a_refusal_says_what_it_refuses(service: Service) -> None:
    service.turns("1", "0")
    answer = service.client.post(
        "/threads/1/history",
        content=r'{"limit": NaN, "before": {"\ud800": [Infinity, "\ud800b"]}}',
        headers={"Content-Type": "application/json"},
    )
    found = {problem["loc"][-1]: problem["input"] for problem in answer.json()["detail"]}
    assert found == {"limit": "nan", "before": {"?": ["inf", "?b"]}}


def test_a_turn_many_pages_back_is_found(service: Service) -> None:
    service.turns("1", *map(str, range(9)))
    made = service.post("1", "branches", message_ids=["a-1"]).json()
    values = service.get(made["thread_id"]).json()["values"]
    assert ids(values) == ["q-0", "a-0", "q-1", "a-1"]


def test_half_a_branch_is_taken_back(service: Service) -> None:
    service.turns("1", "0", "1")

    class Failing(CheckpointStateAccessor):
        async def areplace(self, config: Any, values: Any, **options: Any) -> Any:
            if len(values["messages"]) > 2:
                raise HTTPException(500, "gone")
            return await super().areplace(config, values, **options)

    service.broken = lambda s: Failing.bind(s.graph(), s.saver, mode="delta")
    answer = service.post("1", "branches", message_ids=["a-1"], thread_id="half")
    assert answer.status_code == 500
    assert service.get("half").status_code == 404
    assert ids(service.get("1").json()["values"]) == ["q-0", "a-0", "q-1", "a-1"]
