-- Prints types.tsv: every type of PostgreSQL itself that a statement may name, sorted bytewise; all are harmless.
--   psql -XAt -f types.sql postgres
-- scripts/builtin-tables joins what several versions print.
\set QUIET on
SELECT t.typname FROM pg_type t
WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype <> 'c' AND t.typname !~ '^_pg_'
ORDER BY t.typname::text COLLATE "C";
