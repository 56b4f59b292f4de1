#!/bin/sh
# What cron and systemd call.
#
#     nightly.sh          start tonight's run, or resume one that was not finished
#     nightly.sh resume   resume an unfinished run; does nothing if there is none
#     nightly.sh stop     the morning has come: checkpoint and stop
#
# AGENTRUN names the program where it is not on the PATH.
set -u
cd "$(dirname "$0")" || exit 2
PATH=$PATH${HOME:+:$HOME/.local/bin} # cron's own PATH is short

# -q            not a word on exit 0, so that cron sends mail only when there is something to say
# --if-free     a run that is still at work is not an error: exit 0
# --allow-gone  logs of an unfinished run may have been rotated away since
#
# exec: signals reach agentrun itself, and its exit code is ours.
case ${1:-start} in
    start | resume) exec "${AGENTRUN:-agentrun}" "${1:-start}" job.toml -q --if-free --allow-gone ;;
    stop) exec "${AGENTRUN:-agentrun}" stop job.toml ;;
    *)
        echo "nightly.sh: $1 is not one of start, resume, stop" >&2
        exit 2
        ;;
esac
