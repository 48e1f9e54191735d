//! A server that is farther away than it is.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::pause;

/// Relays a free port to this port on 127.0.0.1, whatever passes being so long under way in each direction. Threads do it,
/// whose sleep is finer than a runtime's timers; they end with their connections, and the last with the process.
///
/// # Errors
///
/// When no port is free.
pub fn put_away(port: u16, one_way: Duration) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let relayed = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for (from, to) in [(&client, &server), (&server, &client)] {
                if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                    thread::spawn(move || carry(from, to, one_way));
                }
            }
        }
    });
    Ok(relayed)
}

fn carry(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    // Where Nagle's algorithm stays on, the way is only longer.
    drop(to.set_nodelay(true));
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        pause(one_way);
        if to.write_all(buffer.get(..count).unwrap_or_default()).is_err() {
            break;
        }
    }
    // The other direction may have ended it already.
    drop(to.shutdown(Shutdown::Write));
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn both_ways_take_their_time() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = put_away(server.local_addr().unwrap().port(), Duration::from_millis(5)).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        let (begun, mut byte) = (Instant::now(), [7]);
        client.write_all(&byte).unwrap();
        accepted.read_exact(&mut byte).unwrap();
        accepted.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(10));
        drop(client);
        assert_eq!(accepted.read(&mut byte).unwrap(), 0);
    }
}
