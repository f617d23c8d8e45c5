"""The server behind `attnlab serve`: Voilà with our pages, our kernels and nothing else in the open."""

import errno
import logging
import os
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Any

import tornado.ioloop
from jupyter_server.utils import url_path_join
from jupyterlab_server.themes_handler import ThemesHandler
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from traitlets import Instance, Unicode
from traitlets.config import Config
from voila.app import Voila
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.static_file_handler import MultiStaticFileHandler
from voila.tornado.contentshandler import VoilaContentsHandler
from voila.tornado.handler import TornadoVoilaHandler
from voila.tornado.treehandler import TornadoVoilaTreeHandler

from attnlab.explorables.catalogue import Catalogue
from attnlab.explorables.channels import PromptChannels
from attnlab.explorables.kernels import ThisPython, WarmKernels
from attnlab.explorables.pages import (
    CachedFiles,
    ErrorPage,
    ExplorablePage,
    Forward,
    FrontPage,
    GiveBack,
    Picture,
    Robots,
)
from attnlab.explorables.thumbnails import Thumbnails

TEMPLATES = Path(__file__).parent / "template"
"""Laid out as a Jupyter data folder, the only place where Voilà looks for templates."""

_PORT_TRIES = 50
_LAST_PORT = 65535
_LOOK_SECONDS = 15  # how often, at most, kernels are looked for whose time is over
_DROPPED = (TornadoVoilaHandler, TornadoVoilaTreeHandler, VoilaContentsHandler, ThemesHandler)
_REPLACED = {MultiStaticFileHandler: CachedFiles, VoilaShutdownKernelHandler: GiveBack}
_MESSAGES = ("comm_open", "comm_msg", "comm_close", "comm_info_request", "kernel_info_request")
"""All that a page may send to its kernel: what its widgets say."""
# What the widgets need of JupyterLab; other extensions that happen to be installed stay out of the pages.
_EXTENSIONS = ["@jupyter-widgets/jupyterlab-manager", "@voila-dashboards/widgets-manager8", "anywidget"]


class Server(Voila):
    """Voilà, reduced to the pages of one catalogue."""

    port: int
    catalogue = Instance(Catalogue)
    frame_ancestors = Unicode("'self'")

    def init_settings(self) -> dict[str, Any]:
        """Voilà's settings and ours; replies are compressed for visitors from afar."""
        settings: dict[str, Any] = super().init_settings()
        # Voilà has a list of its own; that no visitor's code is run must not rest on somebody else's default.
        self.kernel_manager.allowed_message_types = list(_MESSAGES)
        self.thumbnails = Thumbnails(self.catalogue)
        return settings | {
            "attnlab_catalogue": self.catalogue,
            "attnlab_thumbnails": self.thumbnails,
            "attnlab_frame_ancestors": self.frame_ancestors,
            "compress_response": True,
        }

    def init_handlers(self) -> list[Any]:
        """Our addresses, and those of Voilà that the widgets of a page need."""
        site = {"voila_configuration": self.voila_configuration}
        page = {**site, "template_paths": self.template_paths, "config": self.config}

        def at(pattern: str) -> str:
            return str(url_path_join(self.server_url, pattern))

        kept = []
        for pattern, handler, *arguments in super().init_handlers():
            if handler in _DROPPED or "/voila/files/" in pattern:
                continue
            kept.append((pattern, _REPLACED.get(handler, handler), *arguments))
        return [
            *kept,
            (at(r"/"), FrontPage, site),
            (at(r"/robots\.txt"), Robots, site),
            (at(r"/pictures/([^/]+)\.svg"), Picture, site),
            (at(r"/voila/files/.*"), ErrorPage, {**site, "status": 403}),
            (at(r"/(?:voila/render/)?([^/]+\.ipynb)"), Forward, site),
            (at(r"/([^/]+)/"), Forward, site),
            (at(r"/([^/]+)"), ExplorablePage, page),
            (r".*", ErrorPage, {**site, "status": 404}),
        ]

    def listen(self) -> None:
        """Take the first free port from `port` on, say the address, serve until stopped."""
        sockets = self._free_port()
        server = HTTPServer(self.app)
        server.add_sockets(sockets)
        self.kernel_manager.fill()
        print(f"attnlab is at {self.display_url}  (stop it with Ctrl+C)", flush=True)
        if self.open_browser:
            self.launch_browser()
        self.ioloop = tornado.ioloop.IOLoop.current()
        try:
            self.ioloop.start()
        except KeyboardInterrupt:
            print("\nStopping …", flush=True)
        finally:
            server.stop()
            self.thumbnails.close()
            # In the loop that started them; Voilà's own `stop` uses another one.
            self.ioloop.run_sync(self.kernel_manager.shutdown_all)
            self.stop()

    def _free_port(self) -> list[socket.socket]:
        first = self.port
        last = min(first + _PORT_TRIES - 1, _LAST_PORT)
        for port in range(first, last + 1):
            try:
                sockets = bind_sockets(port, self.ip)
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise ValueError(f"expected an address of this machine, got {self.ip!r}") from error
                continue
            self.port = sockets[0].getsockname()[1]
            return sockets
        raise ValueError(f"expected a free port from {first} on at {self.ip}, found none up to {last}")

    def launch_browser(self) -> None:
        """Open the front page in the user's browser."""
        threading.Thread(target=webbrowser.open, args=(self.connection_url,), daemon=True).start()


def serve(
    folder: Path,
    *,
    ip: str = "localhost",
    port: int = 8866,
    base_url: str = "/",
    frame_ancestors: tuple[str, ...] = (),
    warm: int = 1,
    limit: int = 20,
    idle_minutes: float = 10,
    open_browser: bool = True,
    verbose: bool = False,
) -> None:
    """Serve the notebooks of a folder until Ctrl+C or SIGTERM.

    Args:
        folder: the notebooks.
        ip: the address to listen on; `0.0.0.0` for the whole network.
        port: the first port to try; 0 for any free one.
        base_url: path under which a proxy shows the site, e.g. `/attention/`.
        frame_ancestors: origins whose pages may show ours in a frame, besides our own.
        warm: how many kernels wait for visitors.
        limit: how many visitors may have a kernel at once; the next one gets a "busy" page.
        idle_minutes: after how many idle minutes a kernel whose page is closed ends.
        open_browser: whether to open the front page.
        verbose: whether to log every step, not just what goes wrong.

    Raises:
        ValueError: if the folder can't be served.
    """
    os.environ["JUPYTER_PATH"] = os.pathsep.join(
        filter(None, (str(TEMPLATES), os.environ.get("JUPYTER_PATH", "")))
    )
    if not verbose:
        # Otherwise tornado complains about the unit of a setting in jupyter_server.
        logging.getLogger("tornado.general").setLevel(logging.ERROR)
    # The one application of this process: Voilà's parts look it up to find the log.
    server = Server.instance(
        catalogue=Catalogue.of(folder),
        frame_ancestors=" ".join(("'self'", *frame_ancestors)),
        root_dir=str(folder),
        ip=ip,
        port=port,
        base_url=base_url,
        open_browser=open_browser,
        config_file_paths=[],  # what a visitor sees must not depend on the folder we are started in
        log_level=logging.INFO if verbose else logging.WARNING,
        kernel_websocket_connection_class=PromptChannels,
        config=_config(warm, limit, idle_minutes),
    )
    server.initialize([])
    server.start()


def _config(warm: int, limit: int, idle_minutes: float) -> Config:
    return Config(
        VoilaConfiguration={
            "template": "attnlab",
            "allow_template_override": "NO",
            "allow_theme_override": "NO",
            "show_tracebacks": False,
            "strip_sources": True,
            "file_allowlist": [],
            "extension_allowlist": _EXTENSIONS,
            "multi_kernel_manager_class": WarmKernels,
            "kernel_spec_manager_class": ThisPython,
        },
        VoilaExporter={"markdown_renderer_class": "attnlab.explorables.prose.ProseRenderer"},
        VoilaExecutor={"timeout": 120, "startup_timeout": 60},
        WarmKernels={
            "warm": warm,
            "limit": limit,
            "cull_idle_timeout": max(1, round(60 * idle_minutes)),
            "cull_interval": min(_LOOK_SECONDS, max(1, round(30 * idle_minutes))),
        },
        # Against floods of printed text; it counts by reading every message once more, and no visitor prints.
        PromptChannels={"limit_rate": False},
        # A restarted kernel would know nothing of the page; the page offers to load itself anew instead.
        KernelRestarter={"restart_limit": 0},
    )
