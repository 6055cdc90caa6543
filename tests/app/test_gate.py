"""What may come in: paths, tokens, sizes, hosts. The whole application behind its gate, without a browser."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from selfcal.app.asking import LARGEST_UPLOAD
from selfcal.app.gate import COOKIE, Gate
from selfcal.app.server import application

TOKEN = "abcdefghijklmnopqrstuvwx"
HERE = "http://127.0.0.1:7860"


@pytest.fixture(scope="module")
def served(guided, told, tmp_path_factory):
    before = dict(os.environ)
    yield application({"guided": guided, "told": told}, None, tmp_path_factory.mktemp("uploads"))
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def client(served):
    return TestClient(served, base_url=HERE)


@pytest.fixture
def guarded(served):
    return TestClient(Gate(served.inner, TOKEN, LARGEST_UPLOAD), base_url="http://example.org", follow_redirects=False)


def test_the_page_is_there_and_fetches_nothing_from_elsewhere(client):
    answer = client.get("/")
    assert answer.status_code == 200
    assert "selfcal" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy, "nobody else's address is allowed"
    assert client.get("/config").json()["analytics_enabled"] is False


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=../../etc/passwd",
        "/file=/etc/passwd",
        "/file/etc/passwd",
        "/gradio_api/file/etc/passwd",
        "/static/../../../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/svelte/..%5c..%5cetc",
        "/assets//etc/passwd",
        "/../etc/passwd",
        "/gradio_api/proxy=http://example.org/",
        "/gradio_api/info",
        "/gradio_api/openapi.json",
        "/gradio_api/stream/a/b/c/playlist-file",
        "/gradio_api/custom_component/a/b/c/d",
        "/gradio_api/vibe-code/",
        "/gradio_api/deep_link",
        "/gradio_api/runs",
        "/monitoring",
        "/docs",
        "/openapi.json",
        "/login",
        "/config.json",
    ],
)
def test_no_other_path_is_served(client, path):
    answer = client.get(path)
    assert answer.status_code == 404, answer.text
    assert "root:" not in answer.text


def test_the_runs_own_files_are_not_served_either(client, guided):
    for path in (guided.path / "config.json", guided.path / "checkpoints"):
        assert client.get(f"/gradio_api/file={path}").status_code == 404


@pytest.mark.parametrize("path", ["/gradio_api/call/draw", "/gradio_api/run/predict", "/gradio_api/api/draw", "/login"])
def test_what_is_no_button_of_the_page_cannot_be_called(client, path):
    assert client.post(path, json={"data": []}).status_code == 404
    assert client.put("/").status_code == 404


def test_huge_uploads_are_refused(client, tmp_path):
    small = client.post("/gradio_api/upload", files={"files": ("a.png", b"x" * 1000)})
    assert small.status_code == 200
    assert client.post("/gradio_api/upload", files={"files": ("a.png", b"x" * (LARGEST_UPLOAD + 1))}).status_code in (
        413,
        400,
    )
    much = b"x" * (LARGEST_UPLOAD + 2**17)
    answer = client.post("/gradio_api/upload", files={"files": ("a.png", much)})
    assert answer.status_code == 413
    assert "MiB" in answer.text

    def without_a_length():
        for _ in range(0, len(much), 2**16):
            yield b"x" * 2**16

    head = {"content-type": "multipart/form-data; boundary=b"}
    assert client.post("/gradio_api/upload", content=without_a_length(), headers=head).status_code == 413
    assert client.post("/gradio_api/queue/join", content=b"x" * (2**20 + 1)).status_code == 413
    assert client.post("/gradio_api/upload", content=b"", headers={"content-length": "-5"}).status_code == 413


def test_an_upload_cannot_be_named_into_another_folder(client, served, tmp_path):
    answer = client.post("/gradio_api/upload", files={"files": ("../../../../tmp/selfcal-evil.png", b"x")})
    assert not Path("/tmp/selfcal-evil.png").exists()
    for path in answer.json() if answer.status_code == 200 else []:
        assert ".." not in path


def test_other_names_and_other_sites_are_refused(client):
    assert client.get("/", headers={"host": "rebound.example.org"}).status_code == 403
    assert client.get("/", headers={"host": "localhost:7860"}).status_code == 200
    for origin in ("http://example.org", "null", "http://127.0.0.1:8888"):
        assert client.post("/gradio_api/queue/join", json={}, headers={"origin": origin}).status_code == 403
    assert client.get("/config", headers={"origin": HERE}).status_code == 200


def test_a_token_opens_and_a_wrong_one_does_not(guarded):
    for path in ("/", "/config", "/gradio_api/queue/data", f"/?token={TOKEN[:-1]}", "/?token=", f"/?token={TOKEN}x"):
        answer = guarded.get(path)
        assert answer.status_code == 401, path
        assert "token is wrong or missing" in answer.text
    assert guarded.post("/gradio_api/upload", files={"files": ("a.png", b"x")}).status_code == 401
    assert guarded.get("/config", headers={"cookie": f"{COOKIE}=wrong"}).status_code == 401
    opened = guarded.get(f"/?token={TOKEN}&__theme=dark")
    assert opened.status_code == 303
    assert opened.headers["location"] == "/?__theme=dark", "the token leaves the address"
    assert "HttpOnly" in opened.headers["set-cookie"]
    assert "SameSite=Strict" in opened.headers["set-cookie"]
    assert guarded.get("/config").status_code == 200, "the cookie opens"
    away = guarded.get(f"//evil.example.org?token={TOKEN}")
    assert not away.headers.get("location", "/").startswith("//"), "the token leads to no other site"


def called(client, name, data, session="s"):
    """An event of the page, as its script sends it; the data of its last message."""
    config = client.get("/config").json()
    wanted = [d for d in config["dependencies"] if name in d["api_name"]]
    assert wanted, [d["api_name"] for d in config["dependencies"]]
    body = {"data": data, "fn_index": wanted[0]["id"], "session_hash": session, "event_data": None}
    joined = client.post("/gradio_api/queue/join", json=body)
    if joined.status_code != 200:
        return {"success": False, "refused": joined.status_code}
    last = {}
    with client.stream("GET", f"/gradio_api/queue/data?session_hash={session}") as stream:
        for line in stream.iter_lines():
            if line.startswith("data:"):
                message = json.loads(line[5:])
                if message["msg"] == "process_completed":
                    last = message
                if message["msg"] == "close_stream":
                    break
    return last


def test_a_file_that_was_not_uploaded_cannot_be_asked_about(served, capfd):
    """Whoever writes a request by hand may name any file; gradio takes only those that came in by an upload."""
    with TestClient(served, base_url=HERE) as client:
        for file in ("/etc/passwd", "../../etc/passwd"):
            value = {"path": file, "meta": {"_type": "gradio.FileData"}}
            answer = called(client, "read", ["guided", value])
            assert answer["success"] is False
            assert "root:" not in json.dumps(answer)
