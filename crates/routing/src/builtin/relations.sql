-- Prints relations.tsv: schema.name and verdict of every relation of PostgreSQL itself, sorted bytewise.
--   psql -XAt -F $'\t' -f relations.sql postgres
-- scripts/builtin-tables joins what several versions print.
-- Verdicts: r replicated or computed from what is, n belongs to one node, s belongs to one server session.
\set QUIET on
WITH listed(verdict, names) AS (VALUES
  ('n', 'pg_locks pg_prepared_xacts pg_replication_slots pg_replication_origin_status pg_file_settings
         pg_hba_file_rules pg_ident_file_mappings pg_backend_memory_contexts pg_shmem_allocations
         pg_shmem_allocations_numa pg_available_extensions pg_available_extension_versions pg_sequences
         pg_timezone_names pg_timezone_abbrevs pg_config pg_wait_events pg_aios pg_dsm_registry_allocations'),
  ('s', 'pg_cursors pg_prepared_statements pg_settings')
), override AS (
  SELECT verdict, 'pg_catalog.' || name AS name FROM listed, regexp_split_to_table(names, '\s+') AS name
), found AS (
  SELECT n.nspname || '.' || c.relname AS name,
    CASE WHEN c.relname ~ '^pg_stat(io)?_' AND c.relname !~ '^pg_statistic' THEN 'n' ELSE 'r' END AS verdict
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')
)
SELECT name, coalesce(o.verdict, f.verdict) FROM found f FULL JOIN override o USING (name) ORDER BY name COLLATE "C";
