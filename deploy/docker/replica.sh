#!/usr/bin/env bash
# A streaming replica: a copy of the primary, made when there is none yet.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    pg_basebackup -h primary -U replicator -D "$PGDATA" -R -X stream
    chmod 0700 "$PGDATA"
fi
exec postgres -c hot_standby=on -c hot_standby_feedback=on -c max_connections=200
