"""Compacting, regenerating and branching over real HTTP, and what is refused there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from langgraph.types import interrupt

from contrib.service import Service, serving
from deerflow_saver.contrib.fastapi import state_router
from deerflow_saver.errors import InvalidConfigError
from deerflow_saver.state import ProcessThreadLock, aopen_state_accessor


def count(request: Any) -> str:
    return " ".join(message.id for message in request.to_summarize)


def ids(service: Service, thread_id: str = "1") -> list[str]:
    messages = service.get(thread_id).json()["values"]["messages"]
    return [message["id"] for message in messages]


@pytest.fixture
def compacting(service: Service) -> Service:
    service.summarize = count
    service.turns("1", "0", "1", "2")
    return service


def refused(service: Service, status: int, thread_id: str = "1", **body: Any) -> Any:
    """The answer's body; the thread is as before."""
    before = service.post("1", "history", limit=100).json()
    answer = service.post(thread_id, "compact", **{"keep": 2, **body})
    assert answer.status_code == status, answer.text
    assert service.post("1", "history", limit=100).json() == before
    return answer.json()


# -- compaction -----------------------------------------------------------------------------------


def test_a_thread_is_compacted(compacting: Service) -> None:
    before = compacting.get("1").json()
    answer = compacting.post("1", "compact", keep=2)
    assert answer.status_code == 200
    after = compacting.get("1").json()
    done = answer.json()
    assert done.pop("total_tokens") > 0
    assert done == {
        "thread_id": "1",
        "compacted": True,
        "reason": None,
        "removed_message_count": 4,
        "preserved_message_count": 2,
        "summary_updated": True,
        "checkpoint_id": after["checkpoint_id"],
    }
    assert after["parent_checkpoint_id"] == before["checkpoint_id"]
    assert after["values"] == {
        **before["values"],
        "messages": before["values"]["messages"][4:],
        "summary_text": "q-0 a-0 q-1 a-1",
    }
    assert (after["next"], after["metadata"]["deerflow_compacted"]) == ([], 4)
    compacting.turns("1", "3")
    assert ids(compacting) == ["q-2", "a-2", "q-3", "a-3"]


def test_where_there_is_too_little_nothing_is_done(compacting: Service) -> None:
    nothing = {
        "thread_id": "1",
        "compacted": False,
        "reason": "not_enough_messages",
        "removed_message_count": 0,
        "preserved_message_count": 0,
        "summary_updated": False,
        "checkpoint_id": None,
        "total_tokens": 0,
    }
    assert refused(compacting, 200, keep=6) == nothing
    answer = compacting.client.post("/threads/1/compact")  # a body may be left out
    assert (answer.status_code, answer.json()) == (200, nothing)


def test_the_request_reaches_the_summariser(compacting: Service) -> None:
    seen: list[Any] = []
    compacting.summarize = seen.append
    assert refused(compacting, 200, keep=3, force=False)["reason"] == "not_enough_messages"
    (asked,) = seen
    assert (asked.thread_id, asked.keep, asked.force) == ("1", 3, False)
    assert asked.context == {"thread_id": "1"}


def test_without_a_summariser_compaction_is_disabled(compacting: Service) -> None:
    compacting.summarize = None
    assert refused(compacting, 409) == {"detail": "Context compaction is disabled."}


def test_a_summariser_that_fails_is_a_server_error_that_tells_no_secrets(
    compacting: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Any) -> str:
        raise LookupError("key sk-123 is not valid")

    compacting.summarize = fails
    assert refused(compacting, 500) == {"detail": "Failed to compact thread context."}
    assert "sk-123" in caplog.text
    compacting.summarize = lambda _: 5
    assert refused(compacting, 500) == {"detail": "Failed to compact thread context."}


def test_a_thread_that_is_not_there_is_not_found(compacting: Service) -> None:
    assert refused(compacting, 404, "2") == {"detail": "Thread 2 checkpoint not found"}


def test_a_run_in_flight_is_a_conflict(compacting: Service) -> None:
    with pytest.raises(AssertionError):
        compacting.turns("1", "fail")
    text = "Thread has a run in flight. Compact after the run finishes."
    assert refused(compacting, 409) == {"detail": text}


def test_a_question_that_waits_is_a_conflict(compacting: Service) -> None:
    class Asking(list[str]):
        def append(self, _turn: str) -> None:
            interrupt("which?")

    compacting.answers = Asking()
    compacting.turns("1", "3")
    text = "Thread waits for the answer to an interrupt. Compact after it is answered."
    assert refused(compacting, 409) == {"detail": text}


def overtaken(service: Service, *turns: str) -> Any:
    """A summariser while which turns are taken, one at each call."""
    left = list(turns)

    async def summarize(request: Any) -> str:
        if left:
            async with httpx.AsyncClient(base_url=service.client.base_url, timeout=60) as other:
                assert (await other.post(f"/threads/1/turns/{left.pop(0)}")).status_code == 200
        return count(request)

    return summarize


def test_what_is_said_meanwhile_is_kept(compacting: Service) -> None:
    compacting.summarize = overtaken(compacting, "3")
    done = compacting.post("1", "compact", keep=2).json()
    assert (done["removed_message_count"], ids(compacting)) == (6, ["q-3", "a-3"])


def test_a_head_that_moves_twice_is_a_conflict(compacting: Service) -> None:
    compacting.summarize = overtaken(compacting, "3", "4")
    answer = compacting.post("1", "compact", keep=2)
    body = answer.json()
    assert (answer.status_code, body["error"], body["reason"]) == (409, "thread_moved_on", "fork")
    assert body["head_id"] == compacting.get("1").json()["checkpoint_id"]
    assert ids(compacting) == [f"{kind}-{turn}" for turn in range(5) for kind in "qa"]


@pytest.mark.parametrize("body", [{"keep": -1}, {"keep": "2"}, {"force": 1}, {"more": 1}])
def test_nonsense_is_refused(compacting: Service, body: Any) -> None:
    refused(compacting, 422, **body)


def test_a_full_process_compacts_full_threads_and_no_others(compacting: Service) -> None:
    with serving(replace(compacting, mode="full")) as full:
        mismatch = full.post("1", "compact", keep=2)
        assert (mismatch.status_code, "requires delta mode" in mismatch.text) == (409, True)
        full.turns("2", "0", "1", "2")
        assert full.post("2", "compact", keep=2).json()["removed_message_count"] == 4
        assert ids(full, "2") == ["q-2", "a-2"]

        def broken(service: Service) -> Any:
            def factory() -> Any:
                raise LookupError("no such model")

            return aopen_state_accessor(factory, service.saver, mode="full")

        full.broken = broken
        assert full.post("2", "compact").status_code == 503
    assert len(ids(compacting)) == 6


# -- going back and branching --------------------------------------------------------------------


def test_an_answer_is_regenerated_and_the_old_one_is_gone(compacting: Service) -> None:
    """In a branch as well, after a reload (#4458)."""
    branch = compacting.post("1", "branches", message_ids=["a-1"]).json()["thread_id"]
    compacting.turns(branch, "2")
    whole = ["q-0", "a-0", "q-1", "a-1", "q-2", "a-2"]
    for thread_id in ("1", branch):
        compacting.answers.clear()
        assert compacting.client.post(f"/threads/{thread_id}/regenerate").status_code == 200
        assert compacting.answers == ["2"]
        assert ids(compacting, thread_id) == whole
        with serving(replace(compacting)) as reloaded:
            assert ids(reloaded, thread_id) == whole


def test_a_question_is_edited_and_the_old_turn_is_gone(compacting: Service) -> None:
    states = compacting.post("1", "history", limit=100).json()
    older = next(s for s in states if not s["next"] and len(s["values"]["messages"]) == 4)
    url = f"/threads/1/edit/{older['checkpoint_id']}/turns/9"
    assert compacting.client.post(url).status_code == 200
    assert ids(compacting) == ["q-0", "a-0", "q-1", "a-1", "q-9", "a-9"]


def test_a_compacted_thread_is_branched_and_gone_back_in(compacting: Service) -> None:
    compacting.post("1", "compact", keep=2)
    compacting.turns("1", "3")
    for answer, expected in (
        ("a-1", ["q-0", "a-0", "q-1", "a-1"]),
        ("a-3", ["q-2", "a-2", "q-3", "a-3"]),
    ):
        made = compacting.post("1", "branches", message_ids=[answer])
        assert made.status_code == 201, made.text
        branch = made.json()["thread_id"]
        assert ids(compacting, branch) == expected
        summary = compacting.get(branch).json()["values"].get("summary_text")
        assert bool(summary) == (answer == "a-3")
    assert compacting.client.post("/threads/1/regenerate").status_code == 200
    assert ids(compacting) == ["q-2", "a-2", "q-3", "a-3"]


def test_a_checkpoint_that_cannot_be_gone_back_to_is_a_conflict(compacting: Service) -> None:
    before = compacting.post("1", "history", limit=100).json()
    nowhere = "1ef00000-0000-6000-8000-000000000000"
    answer = compacting.client.post(f"/threads/1/edit/{nowhere}/turns/9")
    body = answer.json()
    assert (answer.status_code, body["error"], body["checkpoint_id"]) == (
        409,
        "resume_refused",
        nowhere,
    )
    assert body["detail"] == f"Could not materialize resume checkpoint {nowhere}"
    assert "It is not stored" in body["reason"]
    assert compacting.post("1", "history", limit=100).json() == before


# -- locks, and how large a body may be ------------------------------------------------------------


@pytest.fixture
def limited(compacting: Service) -> Iterator[Service]:
    lock = ProcessThreadLock(timeout=0.01)
    with serving(replace(compacting, lock=lock, max_body_bytes=2000)) as running:
        yield running


def test_a_thread_that_is_locked_is_not_available(limited: Service) -> None:
    before = limited.post("1", "history", limit=100).json()
    older = before[-1]["checkpoint_id"]
    with limited.lock.hold("1", owner="worker-17"):
        for answer in (
            limited.post("1", "compact", keep=2),
            limited.client.post(f"/threads/1/edit/{older}/turns/9"),
        ):
            assert answer.status_code == 503
            assert answer.json() == {"detail": "Thread 1 is busy. Try again."}
            assert answer.headers["Retry-After"] == "1"
    assert limited.post("1", "history", limit=100).json() == before
    assert limited.post("1", "compact", keep=2).status_code == 200


def body_of(size: int) -> bytes:
    start = b'{"values": {"title": "'
    return start + b"x" * (size - len(start) - 3) + b'"}}'


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in chunks"])
def test_a_body_beyond_the_limit_is_refused_and_nothing_is_stored(
    limited: Service, announced: bool
) -> None:
    def sent(size: int, route: str = "state") -> httpx.Response:
        body = body_of(size)
        pieces = (body[at : at + 500] for at in range(0, size, 500))
        headers = {"Content-Type": "application/json"}
        content: Any = body if announced else pieces
        return limited.client.post(f"/threads/1/{route}", content=content, headers=headers)

    before = limited.get("1").json()
    for route in ("state", "history", "branches", "compact"):
        answer = sent(2001, route)
        assert (answer.status_code, answer.json()) == (
            413,
            {"detail": "The body may have 2000 bytes."},
        )
    assert limited.get("1").json() == before
    assert sent(2000).status_code == 200
    assert sent(2000, "compact").status_code == 422


def test_a_limit_is_a_number_of_bytes() -> None:
    for limit in (0, -1, True, 1.5, "1"):
        with pytest.raises(InvalidConfigError, match="max_body_bytes"):
            state_router(lambda *_: None, max_body_bytes=limit)  # type: ignore[arg-type]
