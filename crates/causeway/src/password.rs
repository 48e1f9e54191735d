//! `causeway hash-password`.

use std::io::{self, BufRead as _, IsTerminal as _};

use causeway_protocol::scram::Verifier;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::assemble::SCRAM_ITERATIONS;
use crate::cli::{complain, say};
use crate::exit::Exit;

/// Shows again what is typed, however the reading ends.
struct Hidden(Termios);

/// Reads one line and prints its verifier.
pub fn run() -> Exit {
    let password = match read() {
        Ok(password) => password,
        Err(error) => {
            complain(&format_args!("no password: {error}"));
            return Exit::Usage;
        }
    };
    let salt: [u8; 16] = rand::random();
    say(format_args!("{}\n", Verifier::derive(password.as_bytes(), &salt, SCRAM_ITERATIONS)));
    Exit::Done
}

fn read() -> io::Result<String> {
    let terminal = io::stdin().is_terminal();
    let hidden = if terminal {
        complain(&"Password (it is not shown):");
        Some(Hidden::start()?)
    } else {
        None
    };
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    drop(hidden);
    let password = line.trim_end_matches(['\n', '\r']).to_owned();
    if password.is_empty() {
        return Err(io::Error::other("standard input has none"));
    }
    Ok(password)
}

// === impl Hidden ===

impl Hidden {
    fn start() -> io::Result<Self> {
        let shown = tcgetattr(io::stdin())?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(shown))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // The terminal may be gone.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.0).ok();
    }
}
