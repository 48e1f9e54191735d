//! Clients that are connected, have run a statement, and do nothing.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

use super::client::Client;

/// Descriptors that this process needs besides the clients'.
const OTHERS: u64 = 200;

/// Raises this process's limit of open files as far as it is allowed to, `wanted` at most, and that of what it starts;
/// returns how many clients it can hold.
pub fn raise_open_files(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wished = wanted + OTHERS;
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wished {
        return wanted;
    }
    let maximum = limit.maximum.map_or(wished, |maximum| maximum.max(wished));
    // The hard limit is for root to raise.
    for (current, maximum) in
        [(wished, Some(maximum)), (limit.maximum.unwrap_or(wished).min(wished), limit.maximum)]
    {
        let mut raised = limit;
        (raised.current, raised.maximum) = (Some(current), maximum);
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return current.saturating_sub(OTHERS).min(wanted);
        }
    }
    current.saturating_sub(OTHERS)
}

/// Connects clients through `connect` until there are so many. Each runs a statement: a client that has never done
/// anything may cost less than one that has.
///
/// # Errors
///
/// That of the first that is refused; those before it are let go.
pub fn connect(
    clients: &mut Vec<Client>,
    wanted: usize,
    connect: impl Fn() -> io::Result<Client>,
) -> io::Result<()> {
    let mut buffer = vec![0; 8192];
    while clients.len() < wanted {
        let mut client = connect()?;
        client.run("SELECT 1", &mut buffer)?;
        clients.push(client);
    }
    Ok(())
}
