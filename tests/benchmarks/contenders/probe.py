"""The command `agentrun`, in this process, with an account of what it used.

    python -m benchmarks.contenders.probe REPORT start job.toml …

REPORT gets, when the command ends: VmHWM; `write_bytes` and `wchar` of /proc/self/io (what reached the block layer, in
whole pages; what was handed to write(2), to whatever file); and of the writing of the results its seconds and VmHWM,
which is reset when it begins.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from agentrun.checkpoint.summary import WrittenOutput
from agentrun.outputs import output
from agentrun.outputs.results import write_results
from agentrun_cli.entry import main as command
from benchmarks.work import peak_memory_bytes


def io_counters() -> dict[str, int]:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def reset_peak_memory() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # the peak is then that of the whole run, which is no less


def main() -> None:
    report: dict[str, Any] = {}
    path, sys.argv = Path(sys.argv[1]), ["agentrun", *sys.argv[2:]]

    def timed(*arguments: Any) -> WrittenOutput:
        report["peak_bytes"] = peak_memory_bytes()
        reset_peak_memory()
        began = time.monotonic()
        written = write_results(*arguments)
        report["results_seconds"] = time.monotonic() - began
        report["results_peak_bytes"] = peak_memory_bytes()
        report["results_bytes"] = written.bytes
        return written

    output.write_results = timed  # type: ignore[assignment, attr-defined]
    try:
        command()
    finally:
        report["peak_bytes"] = max(report.get("peak_bytes", 0), peak_memory_bytes())
        report |= io_counters()
        path.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
