use causeway_routing::lexer::Lexer;
use causeway_routing::*;
#[path = "../tests/corpus.rs"]
#[allow(dead_code)]
mod corpus;
fn main() {
    let cat = corpus::catalogue();
    let frags = ["nextval('shop.ticket_seq')", "shop.f_touch()", "shop.nextval('x')", ", nextval('shop.ticket_seq')", "(nextval('shop.ticket_seq'))",
     "(i).bump", "i.bump", "FOR UPDATE", "FOR SHARE", "for key share", "INTO x", "INTO TEMP x", "OPERATOR(shop.<+>) 1", "::shop.logged_int", "shop.logged_int '5'", "5::shop.logged_int",
     "shop.v_touch", "shop.v_locked", "FROM shop.v_touch", ", shop.v_touch", "JOIN shop.v_touch ON true", "lateral shop.f_touch_rows(1) q", "ROWS FROM (shop.f_touch_rows(2))", "(", ")", ",", "AS", "*", "-", "x", "SELECT", "FROM", "WHERE", "UNION", "WITH x AS (", "delete from shop.audit", "insert into shop.audit(note) values ('x')", "update shop.item set qty = 1",
     "RETURNING 1)", ")", "'", "$$", "--", "/*", "*/", "\n", "\"", "E'", "U&'", "nextval", "\"nextval\"('shop.ticket_seq')", "pg_catalog.nextval('shop.ticket_seq')", "('shop.ticket_seq'::regclass).nextval", ".nextval", "OVER (ORDER BY nextval('shop.ticket_seq'))", "FILTER (WHERE nextval('shop.ticket_seq') > 0)", "[nextval('shop.ticket_seq')]", "[1:nextval('shop.ticket_seq')::int]", "LIMIT nextval('shop.ticket_seq')", "ORDER BY nextval('shop.ticket_seq')", "GROUP BY nextval('shop.ticket_seq')", "(SELECT nextval('shop.ticket_seq'))", "EXISTS (SELECT nextval('shop.ticket_seq'))", "ARRAY[nextval('shop.ticket_seq')]",
     "VARIADIC", "ARRAY", "ROW(nextval('shop.ticket_seq'))", "XMLFOREST(nextval('shop.ticket_seq') AS b)", "exclude", "search", "cycle", "symmetric", "name", "escape", "similar", "content", "document", "read only", "only", "ties", ";", "collate", "set", "using", "by", "id"];
    let mut s = 0x1234_5678_9abc_u64 + std::env::args().nth(1).map_or(0, |a| a.parse::<u64>().unwrap());
    let mut rnd = |n: usize| { s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); ((s >> 33) as usize) % n };
    let rows: Vec<String> = corpus::corpus().into_iter().filter(|r| r.expected == "read" || rnd(3) == 0).map(|r| r.sql).filter(|q| !q.contains("pg_sleep") && !q.contains("COPY") && q.len() < 600).collect();
    let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..n {
        let base = &rows[rnd(rows.len())];
        let toks: Vec<_> = Lexer::new(base.as_bytes()).collect();
        if toks.is_empty() { continue; }
        let mut parts: Vec<String> = toks.iter().map(|t| base[t.start..t.end].to_string()).collect();
        for _ in 0..1 + rnd(3) {
            let at = rnd(parts.len() + 1);
            match rnd(6) {
                0 if at < parts.len() => { parts.remove(at); }
                1 => { let other = &rows[rnd(rows.len())]; let o: Vec<_> = Lexer::new(other.as_bytes()).collect(); if o.is_empty() { continue; } let st = rnd(o.len()); let en = (st + 1 + rnd(8)).min(o.len()); parts.insert(at, other[o[st].start..o[en-1].end].to_string()); }
                2 if at < parts.len() => { parts[at] = frags[rnd(frags.len())].to_string(); }
                _ => parts.insert(at, frags[rnd(frags.len())].to_string()),
            }
        }
        let sql = parts.join(" ");
        let c = classify(sql.as_bytes(), &Limits::default());
        let v = resolve(&c, Some(&cat));
        if v.kind == Kind::Read && seen.insert(sql.clone()) && !sql.contains('\0') {
            println!("{}", sql.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t"));
        }
    }
}
