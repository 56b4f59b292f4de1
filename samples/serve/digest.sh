#!/usr/bin/env bash
# Says how long a text is, and which is its longest word; one item after the other, until the input ends.
#
#   in    {"type":"item","index":0,"key":"texts/a.txt","path":"/…/a.txt", …}
#   out   {"type":"done","index":0,"output":…}  or failed, skipped, stop
#
# Before the outcome it may send messages, each answered by a line. What it says for people goes to standard error.
set -uo pipefail
export LC_ALL=C
exec 3>&1 # the way to the runner, also where standard output is caught by $(…)

# A step whose result is one JSON value: the one remembered, or what the command prints.
step() {
    local name=$1 answer value
    shift
    printf '{"type":"step_get","name":"%s"}\n' "$name" >&3
    IFS= read -r answer || exit
    if [[ $answer == *'"found":true,"value":'* ]]; then
        value=${answer#*\"value\":}
        value=${value%\}}
    else
        value=$("$@") || return
        printf '{"type":"step_put","name":"%s","value":%s}\n' "$name" "$value" >&3
        IFS= read -r answer || exit
    fi
    printf '%s' "$value"
}

count() {
    echo "counting $path" >&2
    tr -cs '[:alnum:]' ' ' <"$path" | awk '{ words += NF } END { print words + 0 }'
}

find_longest() {
    echo "searching $path" >&2
    tr -cs '[:alnum:]' '\n' <"$path" | awk 'length > length(best) { best = $0 } END { print "\"" best "\"" }'
}

while IFS= read -r item; do
    [[ $item =~ \"index\":([0-9]+) ]]
    index=${BASH_REMATCH[1]}
    if ! [[ $item =~ \"path\":\"([^\"\\]+)\" ]]; then # bash has no JSON; this takes paths without quotes in them
        printf '{"type":"failed","index":%d,"message":"its path is too odd","retry":false}\n' "$index"
    elif path=${BASH_REMATCH[1]} && words=$(step count count) && longest=$(step longest find_longest); then
        longest=${longest//\"/}
        printf '{"type":"done","index":%d,"output":"%d words, the longest is %s"}\n' "$index" "$words" "$longest"
    else
        printf '{"type":"failed","index":%d,"message":"a step failed"}\n' "$index"
    fi
done
