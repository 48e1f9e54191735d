use causeway_routing::*;
use std::hint::black_box;
fn main() {
    let sql = b"SELECT i.id, i.sku, count(*) AS n FROM shop.item i JOIN shop.ev e ON e.id = i.id WHERE i.parent_id = 42 AND i.sku LIKE 'bolt%' AND e.day >= '2024-01-01' GROUP BY i.id, i.sku ORDER BY n DESC, i.id LIMIT 10 OFFSET 0";
    let key = Key([5; 16]);
    if std::env::args().nth(1).unwrap() == "lex" {
        for _ in 0..10000 {
            black_box(lexer::Lexer::new(black_box(sql)).count());
        }
    } else {
        for _ in 0..10000 {
            black_box(fingerprint(black_box(sql), &key));
        }
    }
}
