#!/bin/sh
# A Postgres for the sample, on loopback, with files of its own; `make postgres` and `make postgres-stop` call it.
#
#     server.sh start | stop
#
# PORT (54329) is where it listens, FOLDER where its data is. As root it runs as the user postgres, because Postgres
# refuses root. Its password is made anew for each folder, and is in .pgpass beside this script.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
port=${PORT:-54329}
folder=${FOLDER:-${TMPDIR:-/tmp}/agentrun-postgres-$(id -u)-$port}
pgpass=$here/.pgpass

programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
PATH=$PATH${programs:+:$programs}
command -v initdb >/dev/null || {
    echo "initdb is not installed; install PostgreSQL, on Debian with: make system" >&2
    exit 1
}

# Everything that the server does is done by the same user.
if [ "$(id -u)" = 0 ]; then
    as() { runuser -u postgres -- "$@"; }
    owner=postgres
else
    as() { "$@"; }
    owner=$(id -un)
fi

start() {
    if [ ! -d "$folder" ]; then
        # Nobody else can have made it: mkdir fails where it exists.
        mkdir -m 700 "$folder"
        password=$(od -An -N 16 -tx1 /dev/urandom | tr -d ' \n')
        secret=$(mktemp)
        printf '%s\n' "$password" >"$secret"
        (umask 077 && printf '127.0.0.1:%s:*:agentrun:%s\n' "$port" "$password" >"$pgpass")
        [ "$owner" = "$(id -un)" ] || chown "$owner" "$folder" "$secret"
        as initdb --pgdata "$folder/data" --username agentrun --pwfile "$secret" --auth scram-sha-256 >/dev/null
        rm -f "$secret"
    fi
    [ "$(stat -c %U "$folder" 2>/dev/null || stat -f %Su "$folder")" = "$owner" ] || {
        echo "$folder: belongs to somebody else; choose another with FOLDER=" >&2
        exit 1
    }
    as pg_ctl --pgdata "$folder/data" status >/dev/null 2>&1 ||
        as pg_ctl --pgdata "$folder/data" --wait --log "$folder/log" --options \
            "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=''" start >/dev/null
    PGPASSFILE=$pgpass psql --quiet --host 127.0.0.1 --port "$port" --username agentrun --dbname postgres \
        --tuples-only --command "select 1 from pg_database where datname = 'agentrun'" | grep -q 1 ||
        PGPASSFILE=$pgpass createdb --host 127.0.0.1 --port "$port" --username agentrun agentrun
    echo "Postgres listens on 127.0.0.1:$port; its password is in $pgpass:"
    echo "  export PGPASSFILE=$pgpass"
}

stop() {
    [ ! -d "$folder" ] || as pg_ctl --pgdata "$folder/data" --wait --mode fast stop >/dev/null || true
    rm -rf "$folder" "$pgpass"
    echo "Postgres on port $port is stopped, and its data is removed"
}

case ${1:-} in
start) start ;;
stop) stop ;;
*) echo "say start or stop" >&2 && exit 2 ;;
esac
