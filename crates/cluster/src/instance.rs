//! Which server it is that answers.

use std::fmt;
use std::net::IpAddr;

use tokio_postgres::Row;

/// One run of one server.
///
/// Behind one name there may be several servers of one system identifier; what one of them has shown says nothing
/// about the others. Not even a crash restart changes it: that is noticed by the end of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// `pg_control_system().system_identifier`.
    pub system_id: u64,
    /// `pg_postmaster_start_time()`, in microseconds since 1970.
    pub started: i64,
    /// The address and the port at which the server itself accepted the connection, whatever relays are in between.
    /// `None` for a Unix socket.
    pub server: Option<(IpAddr, u16)>,
}

/// Everything is named in full: it runs where somebody else set the search path.
macro_rules! columns {
    () => {
        "(SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c), \
         CAST(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000 AS bigint), \
         pg_catalog.host(pg_catalog.inet_server_addr()), \
         pg_catalog.inet_server_port()"
    };
}

// === impl Instance ===

impl Instance {
    /// The expressions that tell a connection's instance. They can be appended to any list of columns.
    pub const COLUMNS: &str = columns!();

    /// The query whose one row is [`Instance::COLUMNS`].
    pub const QUERY: &str = concat!("SELECT ", columns!());

    /// The instance of a connection that answered with these four columns, in the text format. `None` if they are
    /// not what [`Instance::COLUMNS`] gives.
    pub fn from_row<T: AsRef<str>>(columns: &[Option<T>]) -> Option<Self> {
        let [system_id, started, address, port] = columns else { return None };
        let system_id = system_id.as_ref()?.as_ref().parse::<i64>().ok()?.cast_unsigned();
        let started = started.as_ref()?.as_ref().parse().ok()?;
        let server = match (address, port) {
            (None, None) => None,
            (Some(address), Some(port)) => {
                Some((address.as_ref().parse().ok()?, port.as_ref().parse().ok()?))
            }
            _ => return None,
        };
        Some(Self { system_id, started, server })
    }

    /// The same from a row in the binary format that begins with the four columns. `Ok(None)` if they make no sense.
    pub(crate) fn read(row: &Row) -> Result<Option<Self>, tokio_postgres::Error> {
        let system_id = row.try_get::<_, i64>(0)?.cast_unsigned();
        let started = row.try_get(1)?;
        let address = row.try_get::<_, Option<String>>(2)?.map(|text| text.parse::<IpAddr>());
        let port = row.try_get::<_, Option<i32>>(3)?.map(u16::try_from);
        let server = match (address, port) {
            (None, None) => None,
            (Some(Ok(address)), Some(Ok(port))) => Some((address, port)),
            _ => return Ok(None),
        };
        Ok(Some(Self { system_id, started, server }))
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.started.div_euclid(1_000_000), self.started.rem_euclid(1_000_000));
        write!(f, "system {}", self.system_id)?;
        match self.server {
            Some((address, port)) => write!(f, " at {address} port {port}")?,
            None => f.write_str(" at a Unix socket")?,
        }
        write!(f, ", started at {seconds}.{micros:06}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_or_refused_whole() {
        let read = |columns: [Option<&str>; 4]| Instance::from_row(&columns);
        let server = Some(("10.0.0.7".parse().unwrap(), 5432));
        let known = Instance { system_id: 7, started: 1_700_000_000_000_001, server };
        assert_eq!(read([Some("7"), Some("1700000000000001"), Some("10.0.0.7"), Some("5432")]), Some(known));
        assert_eq!(known.to_string(), "system 7 at 10.0.0.7 port 5432, started at 1700000000.000001");
        let socket = Instance { server: None, ..known };
        assert_eq!(read([Some("7"), Some("1700000000000001"), None, None]), Some(socket));
        assert_ne!(socket, known);
        let high = read([Some("-1"), Some("1"), None, None]).unwrap();
        assert_eq!(high.system_id, u64::MAX, "the server prints it as a signed number");
        for wrong in [
            [None, Some("1"), None, None],
            [Some("7"), Some("x"), None, None],
            [Some("7"), Some("1"), Some("10.0.0.7"), None],
            [Some("7"), Some("1"), Some("name"), Some("1")],
            [Some("7"), Some("1"), Some("10.0.0.7"), Some("70000")],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(Instance::from_row(&[Some("7")]), None);
    }
}
