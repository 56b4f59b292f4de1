"""Which page an address is, and what becomes of errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from agentrun.errors import AgentrunError, UsageError
from agentrun.report.page import STYLE
from agentrun.views.jobs import JobView
from agentrun.views.place import Place
from agentrun_cli.page import acting, review
from agentrun_cli.page.asking import NAME_CHARACTERS
from agentrun_cli.page.failures import failures_page
from agentrun_cli.page.frame import document, tabs
from agentrun_cli.page.item import item_page
from agentrun_cli.page.items import items_page
from agentrun_cli.page.job import job_page, standing
from agentrun_cli.page.jobs import jobs_page
from agentrun_cli.page.markup import h, url
from agentrun_cli.page.report import report_page
from agentrun_cli.page.results import download_csv, download_jsonl, results_page
from agentrun_cli.page.visit import Visit, read_form

HERE = Path(__file__).parent
LOOK_SECONDS = 1.0
"""How often an open page of a job looks for changes."""

PAGES: Mapping[str, Callable[[Visit], Response]] = {
    "/": jobs_page,
    "/jobs/{job}": job_page,
    "/jobs/{job}/items": items_page,
    "/jobs/{job}/items/{index}": item_page,
    "/jobs/{job}/failures": failures_page,
    "/jobs/{job}/review": review.review_page,
    "/jobs/{job}/results": results_page,
    "/jobs/{job}/results.csv": download_csv,
    "/jobs/{job}/results.jsonl": download_jsonl,
    "/jobs/{job}/report": report_page,
}
ACTIONS: Mapping[str, Callable[[Visit], Response]] = {
    "/jobs/{job}/answer": review.answer,
    "/jobs/{job}/take-back": review.take_back,
    "/jobs/{job}/redo": acting.redo,
    "/jobs/{job}/skip": acting.skip,
    "/jobs/{job}/resume": acting.resume,
}


class Page:
    """The routes over a place of jobs. `is_closing` tells pages that stay open to end; `say_bug` is told of ours."""

    def __init__(
        self, place: Place, *, port: int, is_closing: Callable[[], bool], say_bug: Callable[[Exception], object]
    ) -> None:
        self._place = place
        self._name_cookie = f"agentrun-name-{port}"
        self._is_closing = is_closing
        self._say_bug = say_bug

    def app(self) -> Starlette:
        style = STYLE.read_text() + (HERE / "style.css").read_text()
        script = (HERE / "page.js").read_text()
        return Starlette(
            routes=[
                *(Route(path, self._page(page), methods=["GET"]) for path, page in PAGES.items()),
                *(Route(path, self._page(act), methods=["POST"]) for path, act in ACTIONS.items()),
                Route("/jobs/{job}/live", self._live, methods=["GET"]),
                Route("/name", self._name, methods=["POST"]),
                Route("/style.css", _fixed(style, "text/css"), methods=["GET"]),
                Route("/page.js", _fixed(script, "text/javascript"), methods=["GET"]),
            ],
            exception_handlers={HTTPException: _http_error},
        )

    def _page(self, page: Callable[[Visit], Response]) -> Callable[[Request], object]:
        async def endpoint(request: Request) -> Response:
            form = await read_form(request) if request.method == "POST" else {}
            visit = Visit(self._place, request.path_params, request.query_params, form, self._by(request))
            return await run_in_threadpool(self._shown, page, visit)

        return endpoint

    def _shown(self, page: Callable[[Visit], Response], visit: Visit) -> Response:
        try:
            return page(visit)
        except UsageError as error:
            return _problem("That is not possible", error.message, 409 if visit.form else 404)
        except AgentrunError as error:
            return _problem("That did not work", error.message, 500)
        except Exception as error:
            self._say_bug(error)
            words = "This is a bug in agentrun; the terminal says more. Nothing that is finished is lost."
            return _problem("That did not work", words, 500)

    async def _live(self, request: Request) -> Response:
        """The parts of a job's page that change, by their ids, whenever they have changed, until the tab is closed."""
        try:
            known = await run_in_threadpool(self._place.known, request.path_params["job"])
        except AgentrunError as error:
            raise HTTPException(404, error.message) from None

        async def events() -> AsyncIterator[str]:
            seen = None
            # A stream that has nothing to send does not notice by itself that nobody listens any more.
            while not (self._is_closing() or await request.is_disconnected()):
                view = await run_in_threadpool(self._place.view, known)
                if (now := _what_changes(view)) != seen:
                    seen = now
                    yield f"data: {json.dumps({'live': standing(known, view), 'tabs': tabs(view, '')})}\n\n"
                await asyncio.sleep(LOOK_SECONDS)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _name(self, request: Request) -> Response:
        """Who answers from this browser; then on with the review where it was."""
        form = await read_form(request)
        name = " ".join(form.get("name", "").split())[:NAME_CHARACTERS]
        at = {one: form[one] for one in ("from", "answered", "later") if form.get(one)}
        response = RedirectResponse(url("jobs", form.get("job", ""), "review", **at), 303)
        response.set_cookie(
            self._name_cookie, quote(name), max_age=365 * 86_400, httponly=True, samesite="strict", path="/"
        )
        return response

    def _by(self, request: Request) -> str:
        return unquote(request.cookies.get(self._name_cookie, ""))[:NAME_CHARACTERS]


def _what_changes(view: JobView) -> object:
    """What the page shows changes with these, and not with the time of day."""
    running = [(one.key, one.since) for one in view.running]
    return (
        view.status, view.run_id, view.launches, view.seq, view.updated_at, running, dict(view.posted), view.paused,
        view.stopped, view.problem, dict(view.counts),
    )  # fmt: skip


def _fixed(text: str, media_type: str) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        return Response(text, media_type=media_type)

    return endpoint


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is no such page.", 405: "That cannot be asked for in this way."}
    return _problem("That is not possible", words.get(error.status_code, str(error.detail)), error.status_code)


def _problem(title: str, words: str, status: int) -> HTMLResponse:
    body = h(
        '<h1>{title}</h1><p class="card blank" role="alert">{words}</p><p>'
        '<a class="button" href="/">To the jobs</a></p>',
        title=title,
        words=words,
    )
    return document(title, body, status=status)
