"""A wheel, built and installed elsewhere, works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_a_wheel_installed_elsewhere_runs_a_job(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(REPOSITORY)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("agentrun_batch-*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)

    def call(*command: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout + done.stderr

    where = "import agentrun, agentrun_cli; print(agentrun.__file__, *agentrun_cli.__path__)"
    assert all(Path(path).is_relative_to(site) for path in call(sys.executable, "-c", where).split())
    command = str(site / "bin/agentrun")
    call(command, "init", "mine")
    assert "3 of 3" in call(command, "start", "mine/job.toml")
    # Its style is a file of the package that is no Python.
    call(command, "report", "mine/job.toml", "-o", "report.html")
    style = (REPOSITORY / "runner/agentrun/report/page.css").read_text()
    assert style.split("{", 1)[0].strip() in (tmp_path / "report.html").read_text()
