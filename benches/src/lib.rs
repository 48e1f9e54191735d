//! The pieces of work that a proxied statement consists of, each by itself, to be measured.
//!
//! [`kernels`] lists them. `benches/micro.rs` measures their time, `src/bin/instructions.rs` counts their instructions.

#![forbid(unsafe_code)]

pub mod comparison;
pub mod lab;
mod statements;
mod text;
mod wire;

use std::fmt;

pub use statements::{INLINED, LISTED, PGBENCH, POINT_READ};

/// One piece of work, ready to be done again and again.
pub struct Kernel {
    /// Its name: words parted by slashes, the subject first.
    pub name: String,
    /// What is counted: a message, a statement, a unit.
    pub unit: &'static str,
    /// How many units one run is.
    pub units: u32,
    run: Box<dyn FnMut()>,
}

/// Every kernel. The first does nothing: its cost is the loop's, and part of that of all others.
pub fn kernels() -> Vec<Kernel> {
    let nothing = Kernel::new("nothing", "run", 1, || ());
    [vec![nothing], wire::kernels(), text::kernels(), statements::kernels()].into_iter().flatten().collect()
}

// === impl Kernel ===

impl Kernel {
    fn new(name: impl Into<String>, unit: &'static str, units: u32, run: impl FnMut() + 'static) -> Self {
        Self { name: name.into(), unit, units, run: Box::new(run) }
    }

    /// Does the work once. Never inlined: callgrind counts what happens in here.
    #[inline(never)]
    pub fn run(&mut self) {
        (self.run)();
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).field("units", &self.units).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kernel_runs_under_a_name_of_its_own() {
        let mut kernels = kernels();
        let names: BTreeSet<_> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
        assert_eq!(names.len(), kernels.len());
        assert_eq!(kernels[0].name, "nothing");
        for kernel in &mut kernels {
            assert!(kernel.units > 0, "{kernel:?}");
            kernel.run();
            kernel.run();
        }
    }
}
