#!/bin/sh
# Counts the lines and words of one text and names its five most frequent longer words, as JSON.
#
# What goes to standard output is the output; what goes to standard error is the item's log.
# The exit code says how the item ends: 0 done, 65 failed for good, 75 try again later, 77 skipped.
set -u
LC_ALL=C # bytes, the same everywhere; a letter outside ASCII stays part of its word
export LC_ALL

path=${1:?usage: wordcount.sh FILE}
echo "counting ${AGENTRUN_ITEM_KEY:-$path}, attempt ${AGENTRUN_ATTEMPT:-1}" >&2

if [ ! -r "$path" ]; then
    echo "cannot read it now; it may be on its way" >&2
    exit 75
fi
if [ ! -s "$path" ]; then
    echo "it is empty, and will be the next time too" >&2
    exit 65
fi

exec awk '
    function json(text) {
        gsub(/[[:cntrl:]]/, " ", text)
        gsub(/[\\"]/, "\\\\&", text)
        return "\"" text "\""
    }
    NR == 1 { title = $0 }
    {
        gsub(/[[:space:][:punct:][:cntrl:]]+/, " ")
        $0 = tolower($0)
        words += NF
        for (i = 1; i <= NF; i++) if (length($i) > 3) count[$i]++
    }
    END {
        printf "{\"title\": %s, \"lines\": %d, \"words\": %d, \"frequent\": {", json(title), NR, words
        for (rank = 1; rank <= 5; rank++) {
            best = ""
            for (word in count)
                if (best == "" || count[word] > count[best] || (count[word] == count[best] && word < best)) best = word
            if (best == "") break
            printf "%s%s: %d", (rank > 1 ? ", " : ""), json(best), count[best]
            delete count[best]
        }
        print "}}"
    }
' <"$path"
