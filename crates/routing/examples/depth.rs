use causeway_routing::{Limits, classify};
fn main() {
    let shapes: Vec<(&str, fn(usize) -> String)> = vec![
        ("parens", |n| format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n))),
        ("where parens", |n| format!("SELECT 1 FROM t WHERE {}a = 1{}", "(".repeat(n), ")".repeat(n))),
        ("calls", |n| format!("SELECT {}1{}", "abs(".repeat(n), ")".repeat(n))),
        ("case", |n| format!("SELECT {}1{}", "CASE WHEN a THEN ".repeat(n), " END".repeat(n))),
        ("case2", |n| format!("SELECT {}1{}", "CASE ".repeat(n), " WHEN 1 THEN 1 END".repeat(n))),
        ("subq", |n| format!("SELECT {}1{}", "(SELECT ".repeat(n), ")".repeat(n))),
        ("from", |n| format!("SELECT 1 FROM {}t{}", "(SELECT 1 FROM ".repeat(n), ") x".repeat(n))),
        ("exists", |n| {
            format!("SELECT 1 WHERE {}true{}", "EXISTS (SELECT 1 WHERE ".repeat(n), ")".repeat(n))
        }),
        ("cte", |n| {
            format!("{}SELECT 1{} SELECT 1", "WITH a AS (".repeat(n), ") SELECT 1".repeat(n - 1) + ")")
        }),
        ("in", |n| format!("SELECT 1 WHERE {}1{}", "a IN (".repeat(n), ")".repeat(n))),
        ("array", |n| format!("SELECT {}1{}", "ARRAY[".repeat(n), "]".repeat(n))),
        ("cast", |n| format!("SELECT {}1{}", "CAST(".repeat(n), " AS int)".repeat(n))),
        ("joins", |n| format!("SELECT 1 FROM {}a{}", "(".repeat(n), " JOIN b ON true)".repeat(n))),
        ("qparens", |n| format!("{}SELECT 1{}", "(".repeat(n), ")".repeat(n))),
        ("not", |n| format!("SELECT {}a", "NOT ".repeat(n))),
        ("minus", |n| format!("SELECT {}a", "- ".repeat(n))),
        ("subscript", |n| format!("SELECT {}1{}", "a[".repeat(n), "]".repeat(n))),
        ("row", |n| format!("SELECT {}1{}", "ROW(1, ".repeat(n), ")".repeat(n))),
        ("extract", |n| format!("SELECT {}a{}", "extract(epoch from ".repeat(n), ")".repeat(n))),
        ("over", |n| format!("SELECT {}a{}", "sum(a) OVER (PARTITION BY ".repeat(n), ")".repeat(n))),
        ("filter", |n| format!("SELECT {}a{}", "sum(a) FILTER (WHERE ".repeat(n), ")".repeat(n))),
        ("between", |n| format!("SELECT a {}", "BETWEEN 1 AND b ".repeat(n))),
        ("between2", |n| format!("SELECT {}a{}", "a BETWEEN ".repeat(n), " AND 1".repeat(n))),
        ("like", |n| format!("SELECT a {}", "LIKE b ".repeat(n))),
        ("interval", |n| format!("SELECT {}a", "interval ".repeat(n))),
        ("grouping", |n| format!("SELECT 1 GROUP BY GROUPING SETS {}a{}", "(".repeat(n), ")".repeat(n))),
        ("lateral", |n| {
            format!("SELECT 1 FROM {}t{}", "a, LATERAL (SELECT 1 FROM ".repeat(n), ") x".repeat(n))
        }),
        ("or", |n| format!("SELECT {}", vec!["a"; n].join(" OR "))),
        ("plus", |n| format!("SELECT {}", vec!["a"; n].join(" + "))),
        ("isnull", |n| format!("SELECT a {}", "IS NULL ".repeat(n))),
        ("castcolon", |n| format!("SELECT a {}", "::int".repeat(n))),
        ("collate", |n| format!("SELECT a {}", "COLLATE c ".repeat(n))),
        ("attz", |n| format!("SELECT a {}", "AT TIME ZONE b ".repeat(n))),
        ("union", |n| vec!["SELECT a, b"; n].join(" UNION ")),
        ("intersect", |n| vec!["SELECT a, b"; n].join(" INTERSECT ")),
        ("mixedops", |n| vec!["SELECT a, b UNION SELECT c INTERSECT SELECT d"; n].join(" EXCEPT ")),
        ("pow", |n| format!("SELECT {}", vec!["a"; n].join(" ^ "))),
        ("andor", |n| format!("SELECT {}", vec!["a AND b = c"; n].join(" OR "))),
        ("joinlist", |n| format!("SELECT 1 FROM a{} {}", " JOIN b".repeat(n), "ON true ".repeat(n))),
        ("joinlist2", |n| format!("SELECT 1 FROM a{}", " JOIN b ON true".repeat(n))),
        ("dots", |n| format!("SELECT (a){}", ".b".repeat(n))),
        ("index", |n| format!("SELECT a{}", "[1]".repeat(n))),
        ("type", |n| format!("SELECT a::{}int{}", "a(".repeat(n), ")".repeat(n))),
        ("typearr", |n| format!("SELECT a::int{}", "[]".repeat(n))),
        ("all", |n| format!("SELECT 1 WHERE {}1{}", "a = ALL (".repeat(n), ")".repeat(n))),
        ("trim", |n| format!("SELECT {}1{}", "trim(both 'x' from ".repeat(n), ")".repeat(n))),
        ("position", |n| format!("SELECT {}1{}", "position('x' in ".repeat(n), ")".repeat(n))),
        ("prior", |n| format!("SELECT {}1", "prior ".repeat(n))),
        ("explain", |n| format!("{}SELECT 1", "explain ".repeat(n))),
        ("declare", |n| format!("{}SELECT 1", "declare c cursor for ".repeat(n))),
        ("copy", |n| format!("copy {}SELECT 1{} to stdout", "(".repeat(n), ")".repeat(n))),
    ];
    let shape: String = std::env::args().nth(1).unwrap();
    let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let limits = if std::env::args().nth(3).is_some() {
        Limits { bytes: 1 << 20, stack: 1 << 30 }
    } else {
        Limits { bytes: 1 << 20, ..Limits::default() }
    };
    if shape == "list" {
        for s in shapes {
            println!("{}", s.0.replace(' ', "_"));
        }
        return;
    }
    let f = shapes.iter().find(|s| s.0.replace(' ', "_") == shape).unwrap().1;
    let sql = f(n);
    let t = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            let start = std::time::SystemTime::now();
            let c = classify(sql.as_bytes(), &limits);
            println!("{shape} {n}: {:?} {:?} {:?}", c.kind, c.reason, start.elapsed().unwrap());
        })
        .unwrap();
    t.join().unwrap();
}
