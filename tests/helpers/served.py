"""What a server gives out, without a browser. The standard library only: the wheel is checked with it too."""

import re
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message

__all__ = ["Answer", "faults", "fetch", "free_port", "kernel_of"]


@dataclass(frozen=True)
class Answer:
    """What came back, whatever its status."""

    status: int
    headers: Message
    text: str
    url: str
    """Where it came from in the end."""


def fetch(url: str, *, post: bool = False) -> Answer:
    """Ask for an address and follow where it leads."""
    try:
        answer = urllib.request.urlopen(url, data=b"" if post else None, timeout=90)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return Answer(answer.status, answer.headers, answer.read().decode(), answer.url)


def faults(page: str) -> list[str]:
    """What is wrong with an explorable's page; nothing if all its cells ran and show something."""
    places, outputs = (re.findall(rf'data-attnlab-{name}="(\d+)"', page) for name in ("slot", "outputs"))
    found = {
        "it has no place for an output": not places,
        f"expected outputs of the cells {places}, got those of {outputs}": places != outputs,
        "no cell shows anything": "application/vnd.voila.cell-output+json" not in page,
        "a cell failed": "data-attnlab-failed" in page,
        "it has no end": "attnlab.end()" not in page,
    }
    return [fault for fault, there in found.items() if there]


def kernel_of(page: str) -> str:
    """The kernel that an explorable's page belongs to."""
    match = re.search(r'"kernelId": "([^"]+)"', page)
    if match is None:
        raise AssertionError(f"expected the page of an explorable, got {page[:500]!r}")
    return match[1]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
