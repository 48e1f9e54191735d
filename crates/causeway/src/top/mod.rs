//! `causeway top`: the status page in a terminal.

mod draw;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::draw::Style;
use crate::cli::{complain, say};
use crate::config::HostPort;
use crate::exit::Exit;
use crate::serve::{self, Options};

/// A process that does not answer for so long is said to be silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// The document of a process with thousands of pools is far smaller.
const MOST: u64 = 64 << 20;

/// The other screen of the terminal, so that what was there comes back at the end; the cursor is hidden.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H\x1b[J";

/// What the command line says about `causeway top`.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// `host:port` of the HTTP port; `None`: that of the configuration.
    pub address: Option<String>,
    /// From one look to the next.
    pub interval: Duration,
    /// Draws once and ends.
    pub once: bool,
}

/// Draws until Ctrl-C; once if standard output is no terminal.
pub fn run(options: &Options, wishes: &Wishes) -> Exit {
    let address = match &wishes.address {
        Some(address) => address.trim_start_matches("http://").trim_end_matches('/').to_owned(),
        None => match serve::load(&options.file) {
            Ok(config) => reachable(&config.http),
            Err(error) => {
                complain(&error);
                return Exit::Config;
            }
        },
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&error);
            return Exit::Unavailable;
        }
    };
    let terminal = io::stdout().is_terminal();
    let style = Style::new(terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
    if wishes.once || !terminal {
        return runtime.block_on(once(&address, style));
    }
    say(ENTER);
    let exit = runtime.block_on(async {
        tokio::select! {
            never = follow(&address, wishes.interval, style) => match never {},
            _ = tokio::signal::ctrl_c() => Exit::Done,
        }
    });
    say(LEAVE);
    exit
}

/// A wildcard address is none that can be asked.
fn reachable(http: &HostPort) -> String {
    let host = match http.host.as_str() {
        "0.0.0.0" => "127.0.0.1",
        "::" | "[::]" => "::1",
        host => host,
    };
    HostPort { host: host.to_owned(), port: http.port }.to_string()
}

async fn once(address: &str, style: Style) -> Exit {
    match ask(address).await {
        Ok(document) => {
            say(draw::screen(&document, style, size()));
            Exit::Done
        }
        Err(error) => {
            complain(&format_args!("{address} does not answer: {error}"));
            Exit::Unavailable
        }
    }
}

async fn follow(address: &str, interval: Duration, style: Style) -> std::convert::Infallible {
    loop {
        let text = match ask(address).await {
            Ok(document) => draw::screen(&document, style, size()),
            Err(error) => format!("{address} does not answer: {error}\n"),
        };
        say(format_args!("{HOME}{text}"));
        tokio::time::sleep(interval).await;
    }
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
        // A file or a pipe has room for everything.
        _ => (120, usize::MAX),
    }
}

async fn ask(address: &str) -> io::Result<Value> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        // Of HTTP/1.0, the answer comes in one piece and ends with the connection.
        let request = format!("GET /status.json HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer =
        timeout(PATIENCE, exchange).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("it speaks no HTTP"))?;
    if head.split_whitespace().nth(1) != Some("200") {
        let line = head.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("it has no status page: {line}")));
    }
    serde_json::from_str(body).map_err(io::Error::other)
}
