//! Just enough HTTP to ask Causeway how it is.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wire::PATIENCE;

/// What an HTTP server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// 200 and so on.
    pub status: u16,
    /// The head, as it came.
    pub head: String,
    /// The body as text.
    pub body: String,
}

/// GET of a path on 127.0.0.1.
pub(crate) async fn get(port: u16, path: &str) -> io::Result<Response> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        Ok::<_, io::Error>(bytes)
    };
    let bytes = timeout(PATIENCE, exchange).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    parse(&String::from_utf8_lossy(&bytes))
        .ok_or_else(|| io::Error::other(format!("no HTTP answer: {bytes:?}")))
}

fn parse(text: &str) -> Option<Response> {
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { dechunk(rest)? } else { rest.to_owned() };
    Some(Response { status, head: head.to_owned(), body })
}

fn dechunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_chunked_bodies_are_read() {
        let whole = parse("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno").unwrap();
        assert_eq!((whole.status, whole.body.as_str()), (503, "no"));
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).unwrap().body, "abcde");
        assert_eq!(parse("nonsense"), None);
        assert_eq!(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc\r\n"), None);
    }
}
