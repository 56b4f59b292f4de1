#!/usr/bin/env bash
# Says how long a text is, and which is its longest word, in three steps.
#
# `agentrun step NAME -- COMMAND…` prints what COMMAND printed when this item did the step before. If it has not, it
# runs COMMAND, and prints its output once that is on disk. A COMMAND that fails is not remembered, and its exit code
# is passed on: with `set -e` the script ends with it, and the item is tried again from there.
set -euo pipefail
export LC_ALL=C # the same everywhere

path=${1:?usage: digest.sh FILE}

text=$(agentrun step tidy -- ./slowly tr -cs '[:alnum:]' ' ' <"$path")
count=$(agentrun step count -- ./slowly wc -w <<<"$text")
longest=$(agentrun step longest -- ./slowly awk '
    { for (i = 1; i <= NF; i++) if (length($i) > length(best)) best = $i }
    END { print best }
' <<<"$text")

agentrun log "$count words" # a line in the item's log; so is what goes to standard error
echo "$((count)) words, the longest is $longest"
