"""What the server gives out and to whom, without a browser: as a link preview or an attacker sees it."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.robotparser import RobotFileParser

import pytest
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from tornado.websocket import WebSocketClientConnection, websocket_connect

from helpers.loops import Run, in_a_loop, one_loop
from helpers.own_notebooks import write
from helpers.served import Answer, faults, fetch, kernel_of
from helpers.servers import Server, attnlab_pages, until

pytestmark = pytest.mark.browser  # whole processes: beside the pages, not among the unit tests

SCHOOL = "https://school.example"
PLACES = 2
CONNECT_SECONDS = 5
SECONDS = 30
SOON = f"""
from attnlab.explorables import kernels, server
kernels._CONNECT_SECONDS = {CONNECT_SECONDS}
server._LOOK_SECONDS = 1
"""
NAMES = ("plain", "mit Leerzeichen", "v1.5", "für-alle", "注意")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    for name in NAMES:
        write(notebooks, name, f"This is {name}", "'shown'")
    write(notebooks, "failing", "Failing", "'shown'", "1 / 0")
    arguments = ("--notebooks", str(notebooks), "--limit", str(PLACES), "--warm", "0")
    frames = ("--frame-ancestors", SCHOOL, "--frame-ancestors", "https://other.example")
    with attnlab_pages(folder, *arguments, *frames, base_url="/school/", prelude=SOON) as server:
        yield server


@contextmanager
def visit(server: Server, address: str) -> Iterator[Answer]:
    """A page, whose kernel is given back as a browser does."""
    answer = fetch(server.url + address)
    assert answer.status == 200, answer.text
    try:
        yield answer
    finally:
        fetch(f"{server.url}voila/api/shutdown/{kernel_of(answer.text)}", post=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_of_any_name_has_an_address(server: Server, name: str) -> None:
    address = quote(name)
    assert f'<h2><a href="/school/{address}">' in fetch(server.url).text
    with visit(server, address) as page:
        assert f"This is {name}</h1>" in page.text
        assert faults(page.text) == []
        assert f'href="/school/{address}" aria-current="page"' in page.text
    for other in (f"{address}/?q=1", f"{address}.ipynb?q=1", f"voila/render/{address}.ipynb?q=1"):
        with visit(server, other) as page:
            assert page.url == f"{server.url}{address}?q=1"


def test_a_page_that_failed_is_told_from_one_that_ended_well(server: Server) -> None:
    with visit(server, "failing") as page:
        assert faults(page.text) == ["a cell failed"]
        assert faults(page.text[: page.text.index("<template data-attnlab-outputs")]) != ["a cell failed"]


def test_who_comes_when_all_places_are_taken_is_told_so_and_may_come_later(server: Server) -> None:
    with visit(server, "plain"), visit(server, "plain"):
        busy = fetch(server.url + "plain")
        assert busy.status == 503
        assert busy.headers["Retry-After"] == "60"
        assert "All places are taken" in busy.text
        assert "As many people as this site has room for are using it just now." in busy.text
        assert "Try again" in busy.text
        assert fetch(server.url).status == 200
    with visit(server, "plain") as page:
        assert faults(page.text) == []


def test_only_named_sites_may_show_the_pages_in_a_frame(server: Server) -> None:
    with visit(server, "plain") as page:
        for answer in (page, fetch(server.url), fetch(f"{server.url}nothing")):
            policy = answer.headers["Content-Security-Policy"].split("; ")
            assert f"frame-ancestors 'self' {SCHOOL} https://other.example" in policy
            assert answer.headers["X-Frame-Options"] is None


def test_crawlers_are_kept_from_what_starts_kernels(server: Server) -> None:
    answer = fetch(f"{server.url}robots.txt")
    assert answer.headers["Content-Type"].startswith("text/plain")
    robots = RobotFileParser()
    robots.parse(answer.text.splitlines())
    gallery = fetch(server.url).text
    pages = re.findall(r'<h2><a href="(/school/[^"]*)">', gallery)
    assert len(pages) == len(NAMES) + 1
    assert not any(robots.can_fetch("Crawler", page) for page in pages)
    assert robots.can_fetch("Crawler", "/school/")
    assert all(robots.can_fetch("Crawler", image) for image in re.findall(r'<img src="([^"]*)"', gallery))


# ---------------------------------------------------------------- with a connection to a kernel


async def connected(server: Server, kernel: str) -> WebSocketClientConnection:
    address = server.url.replace("http", "ws", 1)
    return await websocket_connect(f"{address}api/kernels/{kernel}/channels")


async def send(connection: WebSocketClientConnection, kind: str, content: dict[str, object]) -> str:
    message = {**Session().msg(kind, content), "channel": "shell"}
    await connection.write_message(json.dumps(message, default=json_default))
    return str(message["header"]["msg_id"])


async def replied(connection: WebSocketClientConnection, request: str) -> None:
    async with asyncio.timeout(SECONDS):
        while message := await connection.read_message():
            told = json.loads(message)
            if told["parent_header"].get("msg_id") == request and told["channel"] == "shell":
                return
    raise AssertionError("the connection was closed")


async def close(connection: WebSocketClientConnection) -> None:
    connection.close()
    async with asyncio.timeout(SECONDS):
        while await connection.read_message() is not None:
            pass  # said before it heard of it


def test_no_code_of_a_visitor_is_run(server: Server, tmp_path: Path) -> None:
    written = tmp_path / "written"

    async def attack(kernel: str) -> None:
        connection = await connected(server, kernel)
        code = f"open({str(written)!r}, 'w').close()"
        await send(connection, "execute_request", {"code": code, "silent": False, "allow_stdin": False})
        # Answered after whatever came before it.
        await replied(connection, await send(connection, "kernel_info_request", {}))
        await close(connection)

    with visit(server, "plain") as page:
        in_a_loop(attack(kernel_of(page.text)))
    assert not written.exists()
    assert "execute_request" in server.log.read_text()  # it came, and was refused


@pytest.fixture
def in_loop() -> Iterator[Run]:
    with one_loop() as run:
        yield run


def test_a_page_that_never_connects_gives_its_place_back(server: Server, in_loop: Run) -> None:
    with visit(server, "plain") as page:
        kernel = kernel_of(page.text)
        connection = in_loop(connected(server, kernel))
        silent = kernel_of(fetch(f"{server.url}plain").text)
        assert {kernel, silent} <= set(server.kernels())
        until(
            lambda: silent not in server.kernels(),
            seconds=CONNECT_SECONDS + SECONDS,
            what="the place of the page that never connected is free",
        )
        assert kernel in server.kernels()
        in_loop(close(connection))
