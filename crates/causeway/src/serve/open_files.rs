//! How many sockets the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Server connections, listeners, monitors, HTTP and the runtimes' own: what is open besides clients.
const OTHERS: u64 = 1024;

/// Raises the soft limit of open files to the hard one, and warns if that is too low for `clients`. Login shells and service managers leave the soft limit at 1,024 for the sake of
/// `select(2)`, which is not used here.
pub(super) fn raise_limit(clients: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None is without limit.
    let limit = if current == maximum {
        current
    } else if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(event = "open_files", %error, "cannot raise the limit of open files");
        current
    } else {
        maximum
    };
    let wanted = u64::try_from(clients).unwrap_or(u64::MAX).saturating_add(OTHERS);
    if let Some(limit) = limit.filter(|limit| *limit < wanted) {
        tracing::warn!(
            event = "open_files",
            limit,
            wanted,
            "the limit of open files is too low for limits.max_clients; raise it with ulimit -Hn or systemd's LimitNOFILE="
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_limit(1);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
