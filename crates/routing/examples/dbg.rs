fn main() {
    for sql in std::env::args().skip(1) {
        let c = causeway_routing::classify(sql.as_bytes(), &causeway_routing::Limits::default());
        println!(
            "{sql}\n  {:?} {:?} {:?}\n  f={:?}\n r={:?} t={:?} a={:?}",
            c.kind,
            c.reason,
            c.commands,
            c.symbols
                .functions
                .iter()
                .map(|f| (&f.name.schema, &f.name.name, f.arguments))
                .collect::<Vec<_>>(),
            c.symbols.relations.iter().map(|f| (&f.schema, &f.name)).collect::<Vec<_>>(),
            c.symbols.types.iter().map(|f| (&f.schema, &f.name)).collect::<Vec<_>>(),
            c.symbols.attributes
        );
    }
}
