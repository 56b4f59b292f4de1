#!/usr/bin/env bash
# Says how long a text is, and which is its longest word; one item after the other, until the input ends.
#
#   in    {"type":"item","id":"9f86d081884c7d65","key":"texts/a.txt","path":"/…/a.txt", …}
#   out   {"type":"done","id":"9f86d081884c7d65","output":…}  or failed, skipped, stop
#
# Every line out repeats the item's id. Before the outcome it may send messages, each answered by a line. What it says
# for people goes to standard error.
set -uo pipefail
export LC_ALL=C
exec 3>&1 # the way to the runner, also where standard output is caught by $(…)

# A step whose result is one JSON value: the one remembered, or what the command prints.
step() {
    local name=$1 answer value
    shift
    printf '{"type":"step_get","id":"%s","name":"%s"}\n' "$id" "$name" >&3
    IFS= read -r answer || exit
    if [[ $answer == *'"found":true,"value":'* ]]; then
        value=${answer#*\"value\":}
        value=${value%\}}
    else
        value=$("$@") || return
        printf '{"type":"step_put","id":"%s","name":"%s","value":%s}\n' "$id" "$name" "$value" >&3
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
    [[ $item =~ \"id\":\"([0-9a-f]+)\" ]]
    id=${BASH_REMATCH[1]}
    if ! [[ $item =~ \"path\":\"([^\"\\]+)\" ]]; then # bash has no JSON; this takes paths without quotes in them
        printf '{"type":"failed","id":"%s","message":"its path is too odd","retry":false}\n' "$id"
    elif path=${BASH_REMATCH[1]} && words=$(step count count) && longest=$(step longest find_longest); then
        longest=${longest//\"/}
        printf '{"type":"done","id":"%s","output":"%d words, the longest is %s"}\n' "$id" "$words" "$longest"
    else
        printf '{"type":"failed","id":"%s","message":"a step failed"}\n' "$id"
    fi
done
