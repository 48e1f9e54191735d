//! The time each kernel takes: `cargo bench -p causeway-benches`, with a part of a name behind it to choose.

use causeway_benches::kernels;
use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for mut kernel in kernels() {
        let mut group = criterion.benchmark_group(kernel.name.clone());
        group.throughput(Throughput::Elements(u64::from(kernel.units)));
        group.bench_function(kernel.unit, |bencher| bencher.iter(|| kernel.run()));
        group.finish();
    }
    criterion.final_summary();
}
