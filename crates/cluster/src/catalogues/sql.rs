//! What is read of a database's system catalogues. Versions 14 and later have all of it; see [`for_version`].

use std::borrow::Cow;

/// What version 13 has not, and what stands for it there: multiranges, and bodies of functions that are no text.
const SINCE_14: [(&str, &str); 2] = [
    ("    UNION ALL SELECT r.rngmultitypid, r.rngtypid FROM pg_range AS r WHERE r.rngtypid >= 16384\n", ""),
    ("coalesce(pg_get_function_sqlbody(p.oid), p.prosrc)", "p.prosrc"),
];

/// A query as a server of this version (`server_version_num`) has it.
pub(super) fn for_version(query: &str, version: i32) -> Cow<'_, str> {
    if version >= 140_000 {
        return Cow::Borrowed(query);
    }
    SINCE_14.iter().fold(Cow::Borrowed(query), |query, (new, old)| Cow::Owned(query.replace(new, old)))
}

/// A text that changes with any definition below, and how many objects there are.
///
/// Every change of a definition writes a new row version under its transaction's id; statistics are updated in
/// place and leave that alone. Count and sum notice removals too. Temporary tables come and go unnoticed.
pub(super) const FINGERPRINT: &str = "\
WITH versions (number, count, sum, newest) AS (
    SELECT 1, count(*), sum(xmin::text::int8), max(xmin::text::int8)
      FROM pg_class WHERE relpersistence <> 't' AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c')
    UNION ALL
    SELECT 2, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_namespace WHERE nspname !~ '^pg_'
    UNION ALL SELECT 3, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_proc
    UNION ALL SELECT 4, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_aggregate
    UNION ALL SELECT 5, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_operator
    UNION ALL SELECT 6, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_cast
    UNION ALL SELECT 7, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_rewrite
    UNION ALL SELECT 8, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_inherits
    UNION ALL SELECT 9, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_range
    UNION ALL SELECT 10, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_foreign_table
    UNION ALL SELECT 11, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_foreign_server
    UNION ALL SELECT 12, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_foreign_data_wrapper
    UNION ALL
    SELECT 13, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_constraint WHERE contypid <> 0 OR contype = 'f'
    UNION ALL
    SELECT 14, count(*), sum(xmin::text::int8), max(xmin::text::int8)
      FROM pg_type WHERE typnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_temp_')
    UNION ALL
    SELECT 15, count(*), sum(a.xmin::text::int8), max(a.xmin::text::int8)
      FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid WHERE c.relkind = 'c' AND c.relpersistence <> 't'
    UNION ALL
    SELECT 16, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 17, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_policy
    UNION ALL SELECT 18, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_attrdef
    UNION ALL SELECT 19, count(*), sum(xmin::text::int8), max(xmin::text::int8) FROM pg_event_trigger
)
SELECT md5(string_agg(v::text, ',' ORDER BY number)), sum(count)::int8, current_setting('server_version_num')::int4
  FROM versions AS v";

/// Relations that a statement may name, other sessions' temporary ones and PostgreSQL's own left out.
pub(super) const RELATIONS: &str = "\
SELECT n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relrowsecurity,
       CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END,
       coalesce(w.fdwname = 'postgres_fdw', false)
  FROM pg_class AS c
  JOIN pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_foreign_table AS t ON t.ftrelid = c.oid
  LEFT JOIN pg_foreign_server AS s ON s.oid = t.ftserver
  LEFT JOIN pg_foreign_data_wrapper AS w ON w.oid = s.srvfdw
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't'
   AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')";

/// Tables with their partitions and heirs; indexes inherit as well and are left out.
pub(super) const INHERITANCE: &str = "\
SELECT pn.nspname, p.relname, cn.nspname, c.relname
  FROM pg_inherits AS i
  JOIN pg_class AS p ON p.oid = i.inhparent
  JOIN pg_namespace AS pn ON pn.oid = p.relnamespace
  JOIN pg_class AS c ON c.oid = i.inhrelid
  JOIN pg_namespace AS cn ON cn.oid = c.relnamespace
 WHERE p.relkind IN ('r', 'p', 'f') AND p.relpersistence <> 't'";

/// `i` < `s` < `v`: the greatest is the worst. An aggregate's own volatility is always `i`. A default that calls something
/// is evaluated by the caller, whatever the function's own label.
pub(super) const FUNCTIONS: &str = "\
SELECT n.nspname, p.proname, p.pronargs, p.pronargdefaults, p.provariadic <> 0,
       CASE WHEN pg_get_expr(p.proargdefaults, 0) ~ '[(]' THEN 'v' ELSE coalesce((SELECT max(f.provolatile::text COLLATE \"C\")
                   FROM pg_aggregate AS a
                   JOIN pg_proc AS f ON f.oid IN (a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn,
                                                  a.aggdeserialfn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn)
                  WHERE a.aggfnoid = p.oid AND p.prokind = 'a'),
                p.provolatile::text) END
  FROM pg_proc AS p
  JOIN pg_namespace AS n ON n.oid = p.pronamespace
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_temp_'";

/// A shell operator has no function yet.
pub(super) const OPERATORS: &str = "\
SELECT n.nspname, o.oprname, coalesce(f.provolatile::text, 'v')
  FROM pg_operator AS o
  JOIN pg_namespace AS n ON n.oid = o.oprnamespace
  LEFT JOIN pg_proc AS f ON f.oid = o.oprcode
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_temp_'";

/// Types, arrays left out, with what making a value of them checks, and the types they are made of, arrays of those
/// counting as their elements. A table's row type is listed if it has parts that users have made.
///
/// A volatile function that makes or prints the values of a base type or a range is written as a check that calls it.
pub(super) const TYPES: &str = "\
WITH part (whole, type) AS (
    SELECT t.oid, a.atttypid FROM pg_type AS t JOIN pg_attribute AS a ON a.attrelid = t.typrelid
     WHERE t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION ALL SELECT t.oid, t.typbasetype FROM pg_type AS t WHERE t.typtype = 'd' AND t.typbasetype >= 16384
    UNION ALL SELECT r.rngtypid, r.rngsubtype FROM pg_range AS r WHERE r.rngsubtype >= 16384
    UNION ALL SELECT r.rngmultitypid, r.rngtypid FROM pg_range AS r WHERE r.rngtypid >= 16384
), parts (whole, schemas, names) AS (
    SELECT p.whole, array_agg(n.nspname::text), array_agg(t.typname::text)
      FROM part AS p
      LEFT JOIN pg_type AS e ON e.typarray = p.type
      JOIN pg_type AS t ON t.oid = coalesce(e.oid, p.type)
      JOIN pg_namespace AS n ON n.oid = t.typnamespace
     GROUP BY p.whole
), caller (type, called) AS (
    SELECT t.oid, unnest(ARRAY[t.typinput, t.typoutput, t.typreceive, t.typsend, t.typmodin]::oid[])
      FROM pg_type AS t WHERE t.typtype = 'b' AND t.oid >= 16384
    UNION ALL SELECT r.rngtypid, r.rngcanonical FROM pg_range AS r WHERE r.rngtypid >= 16384
), checked (type, text) AS (
    SELECT c.contypid, pg_get_constraintdef(c.oid)
      FROM pg_constraint AS c WHERE c.contypid <> 0 AND c.contype = 'c'
    UNION ALL
    SELECT c.type, format('CHECK (%I.%I(VALUE))', n.nspname, f.proname)
      FROM caller AS c
      JOIN pg_proc AS f ON f.oid = c.called AND f.provolatile NOT IN ('i', 's')
      JOIN pg_namespace AS n ON n.oid = f.pronamespace
), checks (type, texts) AS (
    SELECT type, array_agg(text) FROM checked GROUP BY type
)
SELECT n.nspname, t.typname, coalesce(h.texts, '{}'), coalesce(p.schemas, '{}'), coalesce(p.names, '{}')
  FROM pg_type AS t
  JOIN pg_namespace AS n ON n.oid = t.typnamespace
  LEFT JOIN pg_class AS c ON c.oid = t.typrelid
  LEFT JOIN parts AS p ON p.whole = t.oid
  LEFT JOIN checks AS h ON h.type = t.oid
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname !~ '^pg_temp_'
   AND (c.relkind IS NULL OR c.relkind = 'c' OR p.whole IS NOT NULL)
   AND c.relpersistence IS DISTINCT FROM 't'
   AND NOT EXISTS (SELECT FROM pg_type AS e WHERE e.typarray = t.oid)";

/// Casts that users have made and that call something.
pub(super) const CASTS: &str = "\
SELECT n.nspname, coalesce(e.typname, t.typname), c.castcontext = 'i', f.provolatile::text
  FROM pg_cast AS c
  JOIN pg_proc AS f ON f.oid = c.castfunc
  JOIN pg_type AS t ON t.oid = c.casttarget
  JOIN pg_namespace AS n ON n.oid = t.typnamespace
  LEFT JOIN pg_type AS e ON e.typarray = t.oid
 WHERE c.oid >= 16384";

/// What functions consist of, and the extensions that they belong to.
pub(super) const CODE: &str = "\
SELECT p.proname, l.lanname, CASE WHEN length(b.source) <= 65536 THEN b.source END, p.provolatile::text, e.extname
  FROM pg_proc AS p
  JOIN pg_namespace AS n ON n.oid = p.pronamespace
  JOIN pg_language AS l ON l.oid = p.prolang
 CROSS JOIN LATERAL (SELECT coalesce(pg_get_function_sqlbody(p.oid), p.prosrc)) AS b (source)
  LEFT JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                          AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
  LEFT JOIN pg_extension AS e ON e.oid = d.refobjid
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_temp_' AND p.prokind <> 'a'";

/// Whatever runs when a relation is used: the functions of triggers, defaults, rules, policies, constraints and indexes, and
/// the relations behind views, partitioned tables and foreign keys. Nobody names operators, casts, types, aggregates and event
/// triggers by the functions behind them: those stand under no name.
pub(super) const REACH: &str = "\
SELECT coalesce(r.relname, ''), p.proname, NULL
  FROM pg_depend AS d
  JOIN pg_proc AS p ON p.oid = d.refobjid
  JOIN pg_namespace AS n ON n.oid = p.pronamespace
  LEFT JOIN pg_trigger AS t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
  LEFT JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
  LEFT JOIN pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
  LEFT JOIN pg_policy AS y ON d.classid = 'pg_policy'::regclass AND y.oid = d.objid
  LEFT JOIN pg_constraint AS c ON d.classid = 'pg_constraint'::regclass AND c.oid = d.objid
  LEFT JOIN pg_index AS i ON d.classid = 'pg_class'::regclass AND i.indexrelid = d.objid
  LEFT JOIN pg_proc AS a ON d.classid = 'pg_proc'::regclass AND a.oid = d.objid AND a.prokind = 'a'
  LEFT JOIN pg_class AS r
    ON r.oid = coalesce(t.tgrelid, f.adrelid, w.ev_class, y.polrelid, nullif(c.conrelid, 0), i.indrelid)
 WHERE d.refclassid = 'pg_proc'::regclass AND n.nspname NOT IN ('pg_catalog', 'information_schema')
   AND (r.oid IS NOT NULL OR c.contypid <> 0 OR a.oid IS NOT NULL
        OR d.classid IN ('pg_operator'::regclass, 'pg_cast'::regclass, 'pg_type'::regclass,
                         'pg_event_trigger'::regclass))
UNION
SELECT p.relname, NULL, c.relname
  FROM pg_inherits AS i
  JOIN pg_class AS p ON p.oid = i.inhparent
  JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE p.relkind IN ('r', 'p', 'f') AND p.relpersistence <> 't'
UNION
SELECT p.relname, NULL, c.relname
  FROM pg_constraint AS f
  JOIN pg_class AS p ON p.oid = f.confrelid
  JOIN pg_class AS c ON c.oid = f.conrelid
 WHERE f.contype = 'f' AND (f.confdeltype NOT IN ('a', 'r') OR f.confupdtype NOT IN ('a', 'r'))
UNION
SELECT v.relname, NULL, t.relname
  FROM pg_rewrite AS w
  JOIN pg_class AS v ON v.oid = w.ev_class
  JOIN pg_namespace AS n ON n.oid = v.relnamespace
  JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass
  JOIN pg_class AS t ON t.oid = d.refobjid
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND v.oid <> t.oid";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_13_is_asked_for_what_it_has() {
        for (query, new) in [(TYPES, "rngmultitypid"), (CODE, "pg_get_function_sqlbody")] {
            assert!(for_version(query, 140_000).contains(new));
            assert!(!for_version(query, 130_023).contains(new), "{new}");
        }
        assert_eq!(for_version(RELATIONS, 130_023), RELATIONS);
    }
}
