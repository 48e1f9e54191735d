//! Free TCP ports on the loopback address.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};

use crate::SandboxError;

/// Below the range from which Linux takes local ports for outgoing connections (32768 and up): a server that is
/// stopped and started again must not find its port in use by somebody's client.
const FIRST: u16 = 15_000;
const COUNT: u16 = 17_000;

/// As many different ports as asked for, on which nobody listens on 127.0.0.1 at this moment. They are not reserved:
/// whoever binds one must be ready to find it taken and ask again.
///
/// # Errors
///
/// [`SandboxError::Configuration`] when too few are free.
pub fn free_ports(count: usize) -> Result<Vec<u16>, SandboxError> {
    // A random place to begin keeps programs apart that look for ports at the same time.
    let start = RandomState::new().hash_one(std::process::id());
    let candidates = (0..u64::from(COUNT)).filter_map(|step| {
        let offset = (start % u64::from(COUNT) + step) % u64::from(COUNT);
        Some(FIRST + u16::try_from(offset).ok()?)
    });
    let ports: Vec<u16> = candidates
        .filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .take(count)
        .collect();
    if ports.len() < count {
        return Err(SandboxError::Configuration(format!("fewer than {count} free TCP ports on 127.0.0.1")));
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports = free_ports(5).unwrap();
        let listeners: Vec<_> =
            ports.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap()).collect();
        assert_eq!(listeners.len(), 5);
    }
}
