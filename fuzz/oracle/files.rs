//! Holds the statements of files against PostgreSQL's own parser: `cargo run --features oracle --example oracle FILE...`
//!
//! A statement ends with a semicolon at the end of a line. What is called a read and is none is printed, and the run fails.

mod check;

fn main() {
    std::panic::set_hook(Box::new(|panic| println!("{panic}")));
    let (mut statements, mut wrong) = (0, 0);
    for path in std::env::args().skip(1) {
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        for sql in String::from_utf8_lossy(&text).split(";\n") {
            statements += 1;
            wrong += usize::from(std::panic::catch_unwind(|| check::check(sql.as_bytes())).is_err());
        }
    }
    println!("{statements} statements, {wrong} of them wrongly called reads");
    assert_eq!(wrong, 0);
}
