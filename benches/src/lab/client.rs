//! A client that does as little as it can, so that what is measured is the other side.

use std::fmt::{self, Debug};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{DATABASE, USER, tls};

/// A receive asks for this much.
const RECEIVE: usize = 1024 * 1024;
/// What ends every answer: `ReadyForQuery`, outside a transaction.
const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'I'];
/// A server that is silent for this long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// A byte stream to a server.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// What came for a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes, those of `ReadyForQuery` included.
    pub bytes: u64,
    /// How many receives they took.
    pub receives: u64,
}

/// A logged-in client on a socket that blocks.
pub struct Client {
    stream: Box<dyn Stream>,
}

impl Client {
    /// Logs in at the port, where no password is asked for.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`ErrorKind::Other`] with what the server said.
    pub fn connect(port: u16) -> io::Result<Self> {
        Self::log_in(Box::new(open(port)?))
    }

    /// Logs in at the port by TLS, whatever certificate is shown.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and those of TLS.
    pub fn connect_encrypted(port: u16) -> io::Result<Self> {
        let mut stream = open(port)?;
        // SSLRequest.
        stream.write_all(&[length(8), 80_877_103_u32.to_be_bytes()].concat())?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        if answer != *b"S" {
            return Err(io::Error::other("the server speaks no TLS"));
        }
        Self::log_in(Box::new(tls::over(stream)?))
    }

    fn log_in(mut stream: Box<dyn Stream>) -> io::Result<Self> {
        let body = [
            &196_608_u32.to_be_bytes()[..],
            b"user\0",
            USER.as_bytes(),
            b"\0database\0",
            DATABASE.as_bytes(),
        ];
        let body = [&body.concat()[..], b"\0\0"].concat();
        stream.write_all(&[&length(body.len() + 4)[..], &body].concat())?;
        let mut client = Self { stream };
        client.until_ready(&mut vec![0; 8192])?;
        Ok(client)
    }

    /// Runs a statement by the simple protocol and receives all that comes of it, looking at the end only.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); an error of the server's is one here if it is all that came.
    pub fn run(&mut self, sql: &str, buffer: &mut [u8]) -> io::Result<Received> {
        let query = [b"Q", &length(sql.len() + 5)[..], sql.as_bytes(), b"\0"].concat();
        self.stream.write_all(&query)?;
        self.until_ready(buffer)
    }

    fn until_ready(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let (mut received, mut tail) = (Received::default(), Vec::new());
        loop {
            let count = self.stream.read(buffer)?;
            let fresh = buffer.get(..count).unwrap_or_default();
            if count == 0 {
                let said = String::from_utf8_lossy(&tail).into_owned();
                return Err(io::Error::new(ErrorKind::UnexpectedEof, format!("the server left: {said}")));
            }
            if received.bytes == 0 && fresh.first() == Some(&b'E') {
                return Err(io::Error::other(format!("the server: {}", String::from_utf8_lossy(fresh))));
            }
            received.bytes += u64::try_from(count).unwrap_or_default();
            received.receives += 1;
            tail.extend_from_slice(fresh.get(count.saturating_sub(READY.len())..).unwrap_or_default());
            tail.drain(..tail.len().saturating_sub(READY.len()));
            if tail == READY {
                return Ok(received);
            }
        }
    }
}

impl Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A connection to the port on which nothing is ever waited for without end.
fn open(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A buffer for [`Client::run`] that takes much at a time.
pub fn large_buffer() -> Vec<u8> {
    vec![0; RECEIVE]
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_end_is_seen_however_the_bytes_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut request = [0; 256];
            assert!(stream.read(&mut request).unwrap() > 8);
            stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
            assert!(stream.read(&mut request).unwrap() > 5);
            for byte in *b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I" {
                stream.write_all(&[byte]).unwrap();
            }
            assert!(stream.read(&mut request).unwrap() > 5);
            stream.write_all(b"E\0\0\0\x05\0Z\0\0\0\x05I").unwrap();
        });
        let mut client = Client::connect(port).unwrap();
        let mut buffer = vec![0; 16];
        let received = client.run("SELECT 1", &mut buffer).unwrap();
        assert_eq!(received.bytes, 20);
        assert!(client.run("SELECT 1", &mut buffer).is_err());
        server.join().unwrap();
    }
}
