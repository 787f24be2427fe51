"""The routes keep what their OpenAPI says, whatever is sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contrib.service import Service

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


@pytest.mark.parametrize("thread", ["an existing one", "any"])
def test_no_request_gets_an_answer_that_is_not_described(
    service: Service, thread: str, tmp_path: Path
) -> None:
    if thread == "any" and "postgres" not in service.case.name:
        pytest.skip("a thread's id is only text, and Postgres takes less of that")
    service.summarize = lambda asked: f"{len(asked.to_summarize)} messages"
    service.turns("1", "0", "1")
    settings = '[parameters]\n"path.thread_id" = "1"\n' if thread != "any" else ""
    (tmp_path / "schemathesis.toml").write_text(settings)
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            f"--config-file={tmp_path}/schemathesis.toml",
            "run",
            f"{service.client.base_url}/openapi.json",
            "--exclude-path-regex=turns",
            f"--checks={','.join(CHECKS)}",
            "--phases=examples,coverage,fuzzing",
            "--max-examples=20",
            "--no-color",
            "--seed=1",
            "--generation-database=none",
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
