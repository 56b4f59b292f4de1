"""The files that run a job every night, by cron or by a systemd timer, filled in for one folder."""

from __future__ import annotations

import re
import shlex

from agentrun_cli.drafts.draft import DraftFile

_SCRIPT = """\
#!/bin/sh
# What cron and systemd call.
#
#     nightly.sh          start tonight's run, or resume one that was not finished
#     nightly.sh resume   resume an unfinished run; does nothing if there is none
#     nightly.sh stop     the morning has come: checkpoint and stop
set -u
cd @FOLDER@ || exit 2
agentrun=@AGENTRUN@

# -q            prints nothing on exit 0, so that cron sends mail only when there is something to say
# --if-free     a run that is still at work is not an error: exit 0
# --allow-gone  items of an unfinished run may have been removed since
#
# exec: signals reach agentrun itself, and its exit code is ours.
case ${1:-start} in
    start | resume) exec "$agentrun" "${1:-start}" job.toml -q --if-free --allow-gone ;;
    stop) exec "$agentrun" stop job.toml ;;
    *)
        echo "nightly.sh: $1 is not one of start, resume, stop" >&2
        exit 2
        ;;
esac
"""
_CRONTAB = """\
# Add these lines to your own with: crontab -e
# Cron knows no exit codes: it mails what is printed, and with -q nothing is printed on exit 0.
MAILTO=you@example.com

# min hour day month weekday
  10  1    *   *     *        @SCRIPT@

# Cron restarts nothing by itself. After exit 75 and after a reboot: resume what is unfinished.
  10  2-6  *   *     *        @SCRIPT@ resume
@reboot                       sleep 120; @SCRIPT@ resume

# The machine is needed at seven. What is left is done the next night.
  0   7    *   *     *        @SCRIPT@ stop >/dev/null 2>&1
"""
_SERVICE = """\
[Unit]
Description=@NAME@, every night
# At most 20 tries a night, then it waits for the next one.
StartLimitIntervalSec=8h
StartLimitBurst=20

[Service]
Type=oneshot
ExecStart=@SCRIPT@

# 3: waiting for a person. 129, 130, 143: stopped by a signal, checkpointed. Neither is a failure.
SuccessExitStatus=3 129 130 143

# 75, try again later, and a runner that was killed: resume in a quarter of an hour ...
Restart=on-failure
RestartSec=15min
# ... but not where a second try would end like the first. 143 is here for TimeoutStartSec below.
RestartPreventExitStatus=1 2 4 65 74 129 130 143

# For a oneshot service "start" is the whole run: at most six hours, then SIGTERM.
TimeoutStartSec=6h
# SIGTERM goes to agentrun alone, which ends its agents in order; longer than grace in job.toml.
KillMode=mixed
TimeoutStopSec=60
"""
_TIMER = """\
[Unit]
Description=@NAME@, at ten past one

[Timer]
OnCalendar=*-*-* 01:10
# Switched off at ten past one? Then after the next boot.
Persistent=true
RandomizedDelaySec=5min

[Install]
WantedBy=timers.target
"""


def draft_nightly(folder: str, agentrun: str) -> list[DraftFile]:
    """The script, the lines for cron, and the units for systemd, of the job in `folder` (absolute)."""
    name, script = unit_name(folder), f"{folder}/nightly.sh"

    def fill(text: str, quoted_script: str) -> str:
        return text.replace("@SCRIPT@", quoted_script).replace("@NAME@", name)

    text = _SCRIPT.replace("@FOLDER@", shlex.quote(folder)).replace("@AGENTRUN@", shlex.quote(agentrun))
    return [
        DraftFile("nightly.sh", text, 0o755),
        DraftFile("crontab", fill(_CRONTAB, _for_cron(script))),
        DraftFile(f"{name}.service", fill(_SERVICE, _for_systemd(script))),
        DraftFile(f"{name}.timer", fill(_TIMER, "")),
    ]


def unit_name(folder: str) -> str:
    """The name of the systemd units, which all the user's units share."""
    return f"agentrun-{re.sub(r'[^A-Za-z0-9_.-]+', '-', folder.rpartition('/')[2]).strip('.-') or 'job'}"


def _for_cron(path: str) -> str:
    # To cron, a % is the end of the command.
    return shlex.quote(path).replace("%", r"\%")


def _for_systemd(path: str) -> str:
    for sign, written in (("\\", r"\\"), ('"', r"\""), ("%", "%%"), ("$", "$$")):
        path = path.replace(sign, written)
    return f'"{path}"'
