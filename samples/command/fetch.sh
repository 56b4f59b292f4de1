#!/bin/sh
# "Fetches" one address of urls.txt. Offline: only file: addresses, relative to this folder.
# A real one would end in: exec curl --fail --silent --show-error --max-time 60 "$url"
#
#     agentrun start --name fetch --items urls.txt --as lines -- ./fetch.sh {}
set -u

url=${1:?usage: fetch.sh URL}
case $url in
    '#'*) exit 77 ;; # a comment: skipped on purpose
    file:*) path=${url#file:} ;;
    *) echo "only file: addresses here: $url" >&2; exit 65 ;;
esac

if [ ! -e "$path" ]; then
    echo "not found: $path" >&2
    exit 65 # like a 404: asking again will not help
fi
cat -- "$path" || exit 75 # like a 503: it may work later
