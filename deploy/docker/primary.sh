#!/usr/bin/env bash
# Runs once, when the primary's data are made: the roles, the database, and who may replicate.
set -euo pipefail
psql -v ON_ERROR_STOP=1 -U postgres <<'SQL'
CREATE ROLE replicator REPLICATION LOGIN PASSWORD 'replicator';
CREATE ROLE causeway LOGIN PASSWORD 'causeway' IN ROLE pg_monitor;
CREATE ROLE app LOGIN PASSWORD 'app';
CREATE DATABASE app OWNER app;
SQL
echo 'host replication replicator all scram-sha-256' >> "$PGDATA/pg_hba.conf"
