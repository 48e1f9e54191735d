//! Counts the instructions of each kernel under callgrind and prints them as a Markdown table.
//!
//! `instructions [PART]...` counts the kernels whose names have one of the parts, or all. It runs itself under valgrind as
//! `instructions --run KERNEL TIMES`, twice for each kernel with different numbers of times: what the first runs do
//! once is in both counts and cancels out. What the kernel that does nothing costs is the call's, and is taken off. The
//! figures are the same on every run of the same binary, however busy the machine is.

use std::error::Error;
use std::io::{self, Write};
use std::process::{Command, ExitCode};

use causeway_benches::{Kernel, kernels};

/// How often a kernel runs in the first of its two counts.
const WARM: u32 = 50;
/// How much more often it runs in the second.
const COUNTED: u32 = 200;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &*arguments {
        [flag, name, times] if flag == "--run" => run(name, times),
        parts => table(parts),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, times: &str) -> Result<(), Failure> {
    let mut kernels = kernels();
    let kernel = kernels.iter_mut().find(|kernel| kernel.name == name).ok_or("there is no such kernel")?;
    for _ in 0..times.parse::<u32>()? {
        kernel.run();
    }
    Ok(())
}

fn table(parts: &[String]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let kernels = kernels();
    let Some((nothing, kernels)) = kernels.split_first() else { return Ok(()) };
    let chosen = |kernel: &&Kernel| parts.is_empty() || parts.iter().any(|part| kernel.name.contains(part));
    let overhead = run_cost(nothing)?;
    writeln!(out, "| kernel | instructions | per |")?;
    writeln!(out, "|---|---:|---|")?;
    for kernel in kernels.iter().filter(chosen) {
        let instructions = (run_cost(kernel)? - overhead) / f64::from(kernel.units);
        writeln!(out, "| {} | {instructions:.1} | {} |", kernel.name, kernel.unit)?;
        out.flush()?;
    }
    Ok(())
}

/// Instructions of one run, the loop's included.
fn run_cost(kernel: &Kernel) -> Result<f64, Failure> {
    let few = count(kernel, WARM)?;
    let more = count(kernel, WARM + COUNTED)?;
    let difference = more.checked_sub(few).ok_or("running more often took fewer instructions")?;
    Ok(f64::from(u32::try_from(difference)?) / f64::from(COUNTED))
}

/// Instructions of a process that runs the kernel so often.
fn count(kernel: &Kernel, times: u32) -> Result<u64, Failure> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        // The start of a process reads its memory map, which is never of the same length.
        .arg("--toggle-collect=causeway_benches::Kernel::run*")
        .arg(std::env::current_exe()?)
        // Arguments and environment of one size: they lie on the stack, and how that is aligned decides how memory is
        // copied.
        .args(["--run", &kernel.name, &format!("{times:08}")])
        .env_clear()
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{} failed under valgrind:\n{report}", kernel.name).into());
    }
    let collected = report.lines().find_map(|line| line.split_once("Collected :"));
    let (_, number) = collected.ok_or_else(|| format!("callgrind gives no count:\n{report}"))?;
    Ok(number.trim().parse()?)
}
