//! A server whose rows cost it nothing: it runs ahead of whoever reads them, as a real one seldom does on the same
//! machine.
//!
//! It stands before a real primary and passes everything through, logins and the questions of Causeway's monitors
//! included, except [`query`]s: those it answers itself.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// What PostgreSQL writes at a time: `PQ_SEND_BUFFER_SIZE` in `pqcomm.c`.
const WRITE: usize = 8192;
/// The code of the packet after which messages begin: protocol 3.0.
const PROTOCOL: u32 = 196_608;
/// Rows are made once, about so many bytes of them, and sent again and again.
const BLOCK: usize = 512 * 1024;
/// Bytes of a `DataRow` of one column, its value apart.
const ROW_OVERHEAD: usize = 11;

/// A listening server; its threads end with the process.
#[derive(Debug)]
pub struct FastServer {
    port: u16,
}

impl FastServer {
    /// Listens on a free port, before the primary at `primary`.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub fn start(primary: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || {
                    // Whoever leaves in whatever way has left.
                    drop(serve(client, primary));
                });
            }
        });
        Ok(Self { port })
    }

    /// Where it listens on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The statement that is answered with so many rows, each of so many bytes as a `DataRow` message.
pub fn query(row_bytes: usize, rows: usize) -> String {
    format!("SELECT * FROM rows_{row_bytes}_{rows}")
}

fn serve(mut client: TcpStream, primary: u16) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, primary))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
    let done = forward(&mut client, &mut server);
    server.shutdown(Shutdown::Both)?;
    done
}

/// Passes the client's messages on. While it asks, the server says nothing: what is written here does not come between.
fn forward(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    loop {
        let mut packet = vec![0; 4];
        message(client, &mut packet)?;
        server.write_all(&packet)?;
        if packet.get(4..8) == Some(&PROTOCOL.to_be_bytes()) {
            break;
        }
    }
    let mut block = Arc::default();
    loop {
        let mut frame = vec![0; 5];
        message(client, &mut frame)?;
        match rows_asked_for(&frame) {
            Some((row_bytes, rows)) => answer(client, &mut block, row_bytes, rows)?,
            None => server.write_all(&frame)?,
        }
    }
}

/// Reads a message whose head, its length last, is as long as the vector is.
fn message(stream: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<()> {
    stream.read_exact(into)?;
    let head = into.len();
    let length = into.last_chunk::<4>().map_or(0, |length| u32::from_be_bytes(*length));
    let length = usize::try_from(length).map_err(io::Error::other)?;
    into.resize(head.max(head - 4 + length), 0);
    stream.read_exact(into.get_mut(head..).unwrap_or_default())
}

fn rows_asked_for(frame: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(frame.strip_prefix(b"Q")?.get(4..)?).ok()?;
    let numbers = text.trim_end_matches('\0').strip_prefix("SELECT * FROM rows_")?;
    let (row_bytes, rows) = numbers.split_once('_')?;
    Some((row_bytes.parse().ok()?, rows.parse().ok()?))
}

/// Sends the rows in pieces as PostgreSQL does: its buffer is full in the middle of a message.
fn answer(
    client: &mut TcpStream,
    block: &mut Arc<(usize, Vec<u8>)>,
    row_bytes: usize,
    rows: usize,
) -> io::Result<()> {
    if block.0 != row_bytes {
        *block = Arc::new((row_bytes, make(row_bytes)));
    }
    // A row description of one column "v" of type text, type length -1, no modifier.
    client.write_all(b"T\0\0\0\x1a\0\x01v\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0")?;
    let whole = block.1.len() - WRITE;
    let (mut at, mut left) = (0, row_bytes * rows);
    while left > 0 {
        let piece = block.1.get(at..at + left.min(WRITE)).unwrap_or_default();
        client.write_all(piece)?;
        left -= piece.len();
        at = (at + piece.len()) % whole;
    }
    let tag = format!("SELECT {rows}\0");
    let length = u32::try_from(tag.len() + 4).map_err(io::Error::other)?;
    client.write_all(&[b"C", &length.to_be_bytes()[..], tag.as_bytes(), b"Z\0\0\0\x05I"].concat())
}

/// Whole rows, and the beginning of them once more, so that a piece can reach over the end.
fn make(row_bytes: usize) -> Vec<u8> {
    let mut row = Vec::with_capacity(row_bytes);
    let value = row_bytes.saturating_sub(ROW_OVERHEAD);
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or_default().to_be_bytes();
    row.extend([&b"D"[..], &length(row_bytes - 1), &[0, 1], &length(value)].concat());
    row.resize(row_bytes, b'x');
    let mut block = row.repeat(BLOCK.div_ceil(row_bytes));
    block.extend_from_within(..WRITE);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::client::Client;

    #[test]
    fn rows_come_from_here_and_all_else_from_the_server() {
        let real = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = real.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = real.accept().unwrap();
            let mut request = [0; 256];
            assert!(stream.read(&mut request).unwrap() > 8);
            stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].ends_with(b"SELECT 1\0"));
            stream.write_all(b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I").unwrap();
        });
        let fast = FastServer::start(port).unwrap();
        let mut client = Client::connect(fast.port()).unwrap();
        let mut buffer = vec![0; 65536];
        // The ends of row description and rows: 27, 11 each, the tag and ReadyForQuery.
        let received = client.run(&query(11, 100_000), &mut buffer).unwrap();
        assert_eq!(received.bytes, 27 + 1_100_000 + 5 + 14 + 6);
        assert_eq!(client.run("SELECT 1", &mut buffer).unwrap().bytes, 20);
        server.join().unwrap();
    }

    #[test]
    fn rows_are_messages() {
        let block = make(20);
        assert_eq!(block[..20], *b"D\0\0\0\x13\0\x01\0\0\0\x09xxxxxxxxx");
        assert_eq!((block.len() - WRITE) % 20, 0);
        assert_eq!(block[block.len() - WRITE..], block[..WRITE]);
    }
}
