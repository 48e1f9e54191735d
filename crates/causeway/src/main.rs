//! The `causeway` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use causeway::cli;
use causeway::exit::Exit;

fn main() -> ExitCode {
    // The panic itself has been reported by the hook.
    std::panic::catch_unwind(|| cli::main(std::env::args_os())).unwrap_or(Exit::Panicked).into()
}
