"""The suite's own tools do what the other tests rely on."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import redis
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from support.databases import empty_redis, numbered_redis
from support.docs import python_blocks, run_blocks
from support.savers import CASES, SaverCase, Storage, every_async_case, every_sync_case
from support.servers import POSTGRES_VARIABLE, REDIS_VARIABLE, Servers, redis_server

CONFIG: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def test_postgres_is_a_real_server(postgres_uri: str) -> None:
    with psycopg.connect(postgres_uri) as connection:
        assert connection.info.server_version >= 120000


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_a_postgres_of_its_own(turn: int, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE mine (turn int)")


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_starts_with_an_empty_redis(turn: int, redis_database: str) -> None:
    with redis.Redis.from_url(redis_database) as client:
        assert client.dbsize() == 0
        client.set("key", turn)


def test_a_redis_server_comes_back_empty_at_the_same_url() -> None:
    with redis_server() as server, redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
        server.stop()
        with pytest.raises(redis.ConnectionError):
            client.get("key")
        server.start()
        assert client.get("key") is None


def test_numbered_databases_do_not_share_keys(redis_url: str) -> None:
    with redis_server() as server:
        first, second = (numbered_redis(server.url, number) for number in (0, 1))
        with redis.Redis.from_url(first) as one, redis.Redis.from_url(second) as two:
            one.set("key", "value")
            assert two.get("key") is None
            empty_redis(second)
            assert one.get("key") == b"value"


def test_own_servers_are_used_and_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POSTGRES_VARIABLE, "postgresql://db.example/own")
    monkeypatch.setenv(REDIS_VARIABLE, "redis://db.example/3")
    servers = Servers()
    assert servers.postgres_uri == "postgresql://db.example/own"
    assert servers.redis_url == "redis://db.example/3"
    servers.close()


@every_sync_case
def test_a_sync_saver_finds_its_data_after_a_restart(case: SaverCase, storage: Storage) -> None:
    with case.open(storage) as saver:
        stored = saver.put(CONFIG, empty_checkpoint(), {"source": "input"}, {})
    with case.open(storage) as again:
        found = again.get_tuple(CONFIG)
        assert again is not saver
    assert found is not None
    assert found.config == stored


@every_async_case
async def test_an_async_saver_finds_its_data_after_a_restart(
    case: SaverCase, storage: Storage
) -> None:
    async with case.aopen(storage) as saver:
        stored = await saver.aput(CONFIG, empty_checkpoint(), {"source": "input"}, {})
    async with case.aopen(storage) as again:
        found = await again.aget_tuple(CONFIG)
        assert again is not saver
    assert found is not None
    assert found.config == stored


def test_an_async_saver_has_no_synchronous_face(storage: Storage) -> None:
    case = next(case for case in CASES if case.name == "async-sqlite")
    with pytest.raises(TypeError, match="async-sqlite has no synchronous face"):
        case.open(storage)


PAGE = """\
```python
total = 1
```
```console
$ not python
```
1. In a list, awaiting:

   ```python title="second"
   import asyncio
   total += await asyncio.sleep(0, 1)
   ```

<!-- no-run -->

```python
total = "never run"
```

```python
from pathlib import Path
Path("total").write_text(str(total))
```
"""


def test_blocks_of_a_page_share_one_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    run_blocks(page)
    assert (tmp_path / "total").read_text() == "2"


def test_blocks_know_their_lines_and_their_mark() -> None:
    assert [(block.line, block.run) for block in python_blocks(PAGE)] == [
        (2, True),
        (10, True),
        (17, False),
        (21, True),
    ]


def test_a_failing_block_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\nraise ValueError(x)\n```\n")
    with pytest.raises(ValueError, match="1") as caught:
        run_blocks(page)
    assert caught.traceback[-1].lineno + 1 == 5
    assert str(caught.traceback[-1].path) == str(page)


def test_an_unrun_block_must_still_compile(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- no-run -->\n```python\nx = = 1\n```\n")
    with pytest.raises(SyntaxError):
        run_blocks(page)
