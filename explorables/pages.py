"""What the server answers: the front page, the explorables, and the pages for everything else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import nbformat
import tornado.web
from jupyter_server.utils import url_path_join
from tornado.iostream import StreamClosedError
from voila.handler import BaseVoilaHandler
from voila.notebook_renderer import NotebookRenderer
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.static_file_handler import MultiStaticFileHandler
from voila.utils import get_page_config

from attnlab.explorables.catalogue import Catalogue
from attnlab.explorables.kernels import BusyError

_QUICK = 0.02  # seconds; what comes this soon is sent together
_KEEP_ALIVE = 10.0  # seconds; proxies drop a connection that is silent for long
_STILL_WORKING = "<!-- still working -->"


class SiteHandler(BaseVoilaHandler):
    """Base of our pages: knows the catalogue and lets the browser fetch from this server only."""

    @property
    def catalogue(self) -> Catalogue:
        """The explorables that the site shows."""
        catalogue: Catalogue = self.settings["attnlab_catalogue"]
        return catalogue

    @property
    def content_security_policy(self) -> str:
        """Nothing from elsewhere is ever loaded, whatever a notebook or a widget tries."""
        host = self.request.host
        return "; ".join(
            (
                "default-src 'self' data: blob:",
                # Voilà's and the template's inline scripts; anywidget imports its modules from blobs.
                "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:",
                "style-src 'self' 'unsafe-inline' blob: data:",
                f"connect-src 'self' ws://{host} wss://{host} data: blob:",
                "object-src 'none'",
                "base-uri 'self'",
                f"frame-ancestors {self.settings['attnlab_frame_ancestors']}",
            )
        )

    def render_template(self, name: str, **ns: Any) -> str:
        """A page of ours, with the navigation."""
        return str(super().render_template(name, explorables=tuple(self.catalogue), **ns))


class FrontPage(SiteHandler):
    """The gallery of all explorables."""

    @tornado.web.authenticated
    async def get(self) -> None:
        self.finish(self.render_template("gallery.html"))


class Picture(SiteHandler):
    """The small picture of an explorable in the gallery."""

    @tornado.web.authenticated
    async def get(self, name: str) -> None:
        svg = await self.settings["attnlab_thumbnails"].svg(name) if self.catalogue.find(name) else None
        if svg is None:
            raise tornado.web.HTTPError(404)
        self.set_header("Content-Type", "image/svg+xml; charset=utf-8")
        self.finish(svg)


class Robots(SiteHandler):
    """Keeps crawlers, which read this first, from the pages that start a kernel; the gallery is for all."""

    @tornado.web.authenticated
    async def get(self) -> None:
        pages = [f"Disallow: {self.base_url}{explorable.address}" for explorable in self.catalogue]
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish("\n".join(("User-agent: *", *pages, "")))


class ErrorPage(SiteHandler):
    """Answers every request with one status, in our own style."""

    def initialize(self, status: int, **kwargs: Any) -> None:
        super().initialize(**kwargs)
        self.status = status

    async def prepare(self) -> None:
        await super().prepare()
        raise tornado.web.HTTPError(self.status)

    def get(self, *_: str) -> None:
        """Never reached; says that the method as such is allowed."""


class Forward(SiteHandler):
    """Sends Voilà's addresses and file names on to the address of the page, query included."""

    @tornado.web.authenticated
    async def get(self, name: str) -> None:
        explorable = self.catalogue.find(name)
        if explorable is None:
            raise tornado.web.HTTPError(404)
        query = f"?{self.request.query}" if self.request.query else ""
        self.redirect(url_path_join(self.base_url, explorable.address) + query)


class ExplorablePage(SiteHandler):
    """One notebook: its prose at once, its outputs as soon as a kernel has made them."""

    def initialize(self, template_paths: list[str], config: Any, **kwargs: Any) -> None:
        super().initialize(**kwargs)
        self.template_paths, self.traitlet_config = template_paths, config

    @tornado.web.authenticated
    async def get(self, name: str) -> None:
        explorable = self.catalogue.find(name)
        if explorable is None:
            raise tornado.web.HTTPError(404)
        try:
            kernel_id = await self.kernel_manager.start_kernel()
        except BusyError:
            self.set_status(503)
            self.set_header("Retry-After", "60")
            self.finish(self.render_template("503.html"))
            return
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")  # the page belongs to one kernel
        self.set_header("X-Accel-Buffering", "no")  # tells nginx to pass the page on piece by piece
        try:
            renderer = self._renderer(explorable.file)
            await renderer.initialize()
            before, after = self.catalogue.neighbours(explorable)
            renderer.resources |= {
                "explorable": explorable,
                "explorables": tuple(self.catalogue),
                "before": before,
                "after": after,
                "embed": self.get_query_argument("embed", "") == "1",
                "kernel_id": kernel_id,
            }
            kernel = self.kernel_manager.get_kernel(kernel_id)
            async for html in _in_pieces(renderer.generate_content_generator(kernel_id, kernel)):
                self.write(html)
                await self.flush()
            self.kernel_manager.page_sent(kernel_id)
        except StreamClosedError:
            await self._end(kernel_id)  # the visitor has left
        except Exception:
            await self._end(kernel_id)
            if not self._headers_written:
                raise
            # The page has begun and its script notices that the rest is missing.
            self.log.exception("The page %s could not be finished.", explorable.slug)

    async def _end(self, kernel_id: str) -> None:
        if kernel_id in self.kernel_manager:
            await self.kernel_manager.shutdown_kernel(kernel_id, now=True)

    def _renderer(self, notebook: str) -> NotebookRenderer:
        page_config = get_page_config(
            base_url=self.base_url,
            settings=self.settings,
            log=self.log,
            voila_configuration=self.voila_configuration,
        )
        return _Renderer(
            voila_configuration=self.voila_configuration,
            traitlet_config=self.traitlet_config,
            notebook_path=str(self.catalogue.folder / notebook),
            template_paths=self.template_paths,
            config_manager=self.config_manager,
            contents_manager=self.contents_manager,
            base_url=self.base_url,
            kernel_spec_manager=self.kernel_spec_manager,
            page_config=page_config,
        )


class _Renderer(NotebookRenderer):
    """Voilà's renderer, with the notebook read as it is (no contents manager, no question of trust)."""

    async def load_notebook(self, path: str) -> nbformat.NotebookNode:
        return await self.fix_notebook(nbformat.read(path, as_version=4))


class GiveBack(VoilaShutdownKernelHandler):
    """Ends the kernel of a page that is being left, at once: the next visitor may be waiting for it."""

    @tornado.web.authenticated
    async def post(self, kernel_id: str) -> None:
        if kernel_id in self.kernel_manager:
            await self.kernel_manager.shutdown_kernel(kernel_id, now=True)
        self.set_status(204)
        self.finish()

    def check_xsrf_cookie(self) -> None:
        """Not asked for: a page in another site's frame has no cookies, and to know the kernel is enough."""


class CachedFiles(MultiStaticFileHandler):
    """Voilà's scripts; they change with its version only, so a browser may keep them for an hour."""

    def get_cache_time(self, path: str, modified: Any, mime_type: str) -> int:
        return 3600


async def _in_pieces(snippets: AsyncIterator[tuple[str, Any]]) -> AsyncIterator[str]:
    """The snippets of a page: joined while they come quickly, a comment whenever the next one takes long."""
    piece = ""
    while True:
        coming = asyncio.ensure_future(anext(snippets, None))
        try:
            if not (await asyncio.wait({coming}, timeout=_QUICK))[0]:
                yield piece
                piece = ""
            while not (await asyncio.wait({coming}, timeout=_KEEP_ALIVE))[0]:
                yield _STILL_WORKING
        except BaseException:
            coming.cancel()
            raise
        snippet = coming.result()
        if snippet is None:
            yield piece
            return
        piece += snippet[0]
