use causeway_routing::*;
use std::hint::black_box;
fn main() {
    let sql = b"SELECT i.id, i.sku, count(*) AS n FROM shop.item i JOIN shop.ev e ON e.id = i.id WHERE i.parent_id = 42 AND i.sku LIKE 'bolt%' AND e.day >= '2024-01-01' GROUP BY i.id, i.sku ORDER BY n DESC, i.id LIMIT 10 OFFSET 0";
    println!("{} bytes", sql.len());
    let t = |name: &str, f: &mut dyn FnMut()| {
        let mut best = u128::MAX;
        for _ in 0..20 {
            let s = std::time::SystemTime::now();
            for _ in 0..2000 {
                f();
            }
            best = best.min(s.elapsed().unwrap().as_nanos() / 2000);
        }
        println!("{name}: {best} ns");
    };
    t("lex", &mut || {
        black_box(lexer::Lexer::new(black_box(sql)).count());
    });
    let key = Key([5; 16]);
    t("fingerprint", &mut || {
        black_box(fingerprint(black_box(sql), &key));
    });
    t("classify", &mut || {
        black_box(classify(black_box(sql), &Limits::default()));
    });
    let mut cache = StatementCache::new(CacheLimits::default(), Limits::default(), key);
    t("cache", &mut || {
        black_box(cache.classify(black_box(sql), SyntaxOptions::default()));
    });
    let c = classify(sql, &Limits::default());
    let mut b = CatalogueBuilder::new();
    for n in ["item", "ev"] {
        b.relation(catalogue::RelationRow {
            schema: "shop".into(),
            name: n.into(),
            kind: 'r',
            persistence: 'p',
            row_security: false,
            definition: None,
            foreign_safe: false,
        });
    }
    let cat = b.build();
    println!("{:?}", resolve(&c, Some(&cat)));
    t("resolve", &mut || {
        black_box(resolve(black_box(&c), Some(&cat)));
    });
}
