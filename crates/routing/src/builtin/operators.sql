-- Prints operators.tsv: every operator of PostgreSQL itself, sorted bytewise; the functions behind all of them are
-- immutable or stable.
--   psql -XAt -f operators.sql postgres
-- scripts/builtin-tables joins what several versions print.
\set QUIET on
SELECT DISTINCT o.oprname::text COLLATE "C" FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode
WHERE o.oprnamespace = 'pg_catalog'::regnamespace GROUP BY 1 HAVING bool_and(p.provolatile <> 'v') ORDER BY 1;
