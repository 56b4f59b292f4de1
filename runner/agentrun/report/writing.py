"""Where a report goes: beside the job, or where its job file or a person says."""

from __future__ import annotations

from pathlib import Path

from agentrun.errors import AgentrunError, UsageError
from agentrun.job.job import Job
from agentrun.report.markdown import MARK as MARKDOWN_MARK
from agentrun.report.markdown import markdown_page
from agentrun.report.page import MARK, html_page
from agentrun.report.reading import read_report
from agentrun.report.report import Report
from agentrun.system.disk import Disk, disk_errors, make_folders, open_to_read, replace_file
from agentrun.views.finding import KnownJob
from agentrun.views.jobs import view_job

_BEGINNING_BYTES = 1024


def is_markdown(path: Path) -> bool:
    return path.suffix.lower() in (".md", ".markdown")


def report_text(report: Report, *, markdown: bool) -> str:
    return markdown_page(report) if markdown else html_page(report)


def write_report(report: Report, path: Path, *, markdown: bool | None = None) -> Path:
    """Write it, replacing only a report. The form is that of the file's name, unless it is given."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; write the path of a file, such as {path / 'report.html'}")
    _refuse_other(path)
    text = report_text(report, markdown=is_markdown(path) if markdown is None else markdown)
    with disk_errors(path):
        make_folders(path.parent)
        # It holds keys and causes: for its owner, like the state that it is made from.
        replace_file(Disk(), path, [text.encode()])
    return path


def _refuse_other(path: Path) -> None:
    """UsageError if a file is there that is not a report: `-o job.toml` must not destroy the job."""
    try:
        with open_to_read(path) as file:
            begins = file.read(_BEGINNING_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: cannot be replaced by a report: {error.strerror}; choose another path") from None
    if begins and MARK.encode() not in begins and not begins.startswith(MARKDOWN_MARK.encode()):
        raise UsageError(f"{path}: already exists and is not a report, so it is not replaced; choose another path")


def report_after(job: Job, known: KnownJob, *, here: Path | None = None) -> tuple[Path | None, str]:
    """Write the report that the job asks for after a launch: its path, and what went wrong instead.

    Never raises for it: a report that cannot be written is no fault of the run.
    """
    if job.report is None:
        return None, ""
    try:
        if view_job(known.store, known.name).status == "new":
            return None, ""  # nothing was run, and why is said already
        report = read_report(known, here=here)
        path = job.report_path(run_id=report.view.run_id, date=report.date)
        return write_report(report, path), ""
    except (AgentrunError, OSError) as error:
        return None, error.message if isinstance(error, AgentrunError) else str(error)
