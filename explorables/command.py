"""The `attnlab` command: `attnlab serve` shows the pages, `attnlab lab` opens them as notebooks."""

import argparse
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from attnlab.explorables.catalogue import NOTEBOOKS
from attnlab.explorables.copies import fresh_copies

_MOST_MINUTES = 7 * 24 * 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "serve":
            return _serve(options)
        return _lab(options)
    except ValueError as error:
        print(f"attnlab: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnlab", description="Explorables of Transformer attention.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="serve|lab")

    serve = commands.add_parser("serve", help="show the explorables as web pages")
    serve.add_argument("--ip", default="localhost", help="address to listen on (0.0.0.0: the whole network)")
    serve.add_argument(
        "--base-url", default="/", type=_base_url, help="path behind a proxy, e.g. /attention/"
    )
    serve.add_argument(
        "--frame-ancestors",
        action="append",
        default=[],
        type=_origin,
        metavar="ORIGIN",
        help="a site that may show the pages in a frame, e.g. https://school.example; may be repeated",
    )
    serve.add_argument("--warm", type=_count, default=1, help="kernels that wait for visitors (default 1)")
    serve.add_argument(
        "--limit", type=_positive, default=20, help="visitors at once, each with a kernel (default 20)"
    )
    serve.add_argument(
        "--idle-minutes",
        type=_minutes,
        default=10,
        help="idle time before a left page's kernel ends (default 10)",
    )
    serve.add_argument(
        "--notebooks", type=Path, default=NOTEBOOKS, metavar="FOLDER", help="show your own notebooks instead"
    )
    serve.add_argument("--verbose", action="store_true", help="log every step")

    lab = commands.add_parser("lab", help="open copies of the notebooks in JupyterLab")
    lab.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("attnlab-notebooks"),
        help="where your copies live (default ./attnlab-notebooks); changed ones are never overwritten",
    )
    for command, port in ((serve, 8866), (lab, 8888)):
        command.add_argument("--port", type=_port, default=port, help=f"first port to try (default {port})")
        command.add_argument("--no-browser", action="store_true", help="don't open a browser")
    return parser


def _serve(options: argparse.Namespace) -> int:
    _require("voila")
    folder: Path = options.notebooks.resolve()
    if not folder.is_dir():
        raise ValueError(f"expected a folder of notebooks, got {options.notebooks}")
    from attnlab.explorables.server import serve

    serve(
        folder,
        ip=options.ip,
        port=options.port,
        base_url=options.base_url,
        frame_ancestors=tuple(options.frame_ancestors),
        warm=options.warm,
        limit=options.limit,
        idle_minutes=options.idle_minutes,
        open_browser=not options.no_browser,
        verbose=options.verbose,
    )
    return 0


def _lab(options: argparse.Namespace) -> int:
    _require("jupyterlab")
    report = fresh_copies(NOTEBOOKS, options.folder)
    print(report.text(options.folder), flush=True)
    from jupyterlab.labapp import main as jupyterlab

    folder = options.folder.resolve()
    arguments = [
        f"--ServerApp.root_dir={folder}",
        f"--ServerApp.port={options.port}",
        "--ServerApp.kernel_websocket_connection_class=attnlab.explorables.channels.PromptChannels",
    ]
    jupyterlab([*arguments, "--no-browser"] if options.no_browser else arguments)
    return 0


def _require(module: str) -> None:
    if find_spec(module) is None:
        raise ValueError(f"expected the package {module}, which isn't installed: pip install 'attnlab[app]'")


def _base_url(text: str) -> str:
    if not re.fullmatch(r"[\w./~-]*", text):
        raise argparse.ArgumentTypeError(f"expected a path like /attention/, got {text!r}")
    return "/" + "".join(f"{part}/" for part in text.split("/") if part)


def _origin(text: str) -> str:
    if not re.fullmatch(r"(https?://)?(\*\.)?[\w.-]+(:(\d+|\*))?", text):
        raise argparse.ArgumentTypeError(f"expected an origin like https://school.example, got {text!r}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, 0 or more, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if (number := _count(text)) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text!r}")
    return number


def _port(text: str) -> int:
    if (number := _count(text)) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return number


def _minutes(text: str) -> float:
    expected = f"expected minutes, more than 0 and at most {_MOST_MINUTES} (a week), got {text!r}"
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(expected) from None
    if not 0 < number <= _MOST_MINUTES:  # also not a number that is none
        raise argparse.ArgumentTypeError(expected)
    return number


if __name__ == "__main__":
    sys.exit(main())
