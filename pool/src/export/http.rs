//! A few pages for a loopback port: metrics, the status as JSON, and, where it
//! is wanted, a page for people.
//!
//! One request a connection, `GET` only, heads of at most some KiB, a few
//! connections at a time and each for a few seconds; what is more waits to be accepted.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Connections at the same time.
const CONNECTIONS: usize = 8;
/// Bytes of a request's head.
const MOST_HEAD_BYTES: usize = 8 << 10;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// `/metrics`
    Metrics,
    /// `/status.json`
    Status,
    /// `/`
    People,
}

/// A page's kind and text.
pub(super) type Body = (&'static str, String);

/// Serves for as long as connections can be accepted; `make` makes pages, or says what
/// is in the way.
pub(super) fn serve(
    listener: &TcpListener,
    make: impl Fn(Page) -> Result<Option<Body>, String> + Sync,
) -> io::Result<()> {
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..CONNECTIONS {
            let worker = thread::Builder::new().name("export".into());
            workers.push(worker.spawn_scoped(scope, || accept(listener, &make))?);
        }
        for worker in workers {
            worker
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a page ended its thread")))?;
        }
        Ok(())
    })
}

fn accept(
    listener: &TcpListener,
    make: &impl Fn(Page) -> Result<Option<Body>, String>,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            // A browser that goes away is none of the others' business.
            Ok((stream, _)) => drop(answer_one(stream, make)),
            Err(error) if out_of_descriptors(&error) => thread::sleep(Duration::from_millis(100)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn out_of_descriptors(error: &io::Error) -> bool {
    let error = error.raw_os_error();
    error == Some(libc::EMFILE) || error == Some(libc::ENFILE)
}

fn answer_one(
    mut stream: TcpStream,
    make: &impl Fn(Page) -> Result<Option<Body>, String>,
) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut head, mut part) = (Vec::new(), [0; 2048]);
    let answer = loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend(part.iter().take(count)),
        }
        match requested(&head) {
            Head::Unfinished if head.len() < MOST_HEAD_BYTES => {}
            Head::Unfinished => break failed("431 Request Header Fields Too Large"),
            Head::Other(status) => break failed(status),
            Head::Page(page) => match make(page) {
                Ok(body) => break body.map_or_else(|| failed("404 Not Found"), found),
                Err(why) => break answer("503 Service Unavailable", PLAIN, &format!("{why}\n")),
            },
        }
    };
    stream.write_all(&answer)
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// What a head says so far.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    Unfinished,
    Page(Page),
    Other(&'static str),
}

fn requested(head: &[u8]) -> Head {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(status) if status.is_partial() => Head::Unfinished,
        Err(_) => Head::Other("400 Bad Request"),
        Ok(_) if request.method != Some("GET") => Head::Other("405 Method Not Allowed"),
        Ok(_) if !is_local(request.headers) => Head::Other("403 Forbidden"),
        Ok(_) => match request.path {
            Some("/metrics") => Head::Page(Page::Metrics),
            Some("/status.json") => Head::Page(Page::Status),
            Some("/") => Head::Page(Page::People),
            _ => Head::Other("404 Not Found"),
        },
    }
}

/// Whether the request names this machine: a page from elsewhere whose name was
/// made to point here must not read anything.
fn is_local(fields: &[httparse::Header<'_>]) -> bool {
    let host = fields
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("host"));
    let Some(host) = host.and_then(|field| std::str::from_utf8(field.value).ok()) else {
        // HTTP/1.0 has none, and browsers do not speak it.
        return host.is_none();
    };
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.split(':').next().unwrap_or_default();
    name == "localhost"
        || name
            .parse()
            .is_ok_and(|ip: std::net::Ipv4Addr| ip.is_loopback())
}

fn found((kind, text): Body) -> Vec<u8> {
    answer("200 OK", kind, &text)
}

fn failed(status: &str) -> Vec<u8> {
    answer(status, PLAIN, &format!("{status}\n"))
}

fn answer(status: &str, kind: &str, text: &str) -> Vec<u8> {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_served_is_found() {
        let host = "Host: 127.0.0.1:9464\r\n\r\n";
        for (head, seen) in [
            (
                format!("GET /metrics HTTP/1.1\r\n{host}"),
                Head::Page(Page::Metrics),
            ),
            (
                format!("GET / HTTP/1.1\r\n{host}"),
                Head::Page(Page::People),
            ),
            (
                "GET /status.json HTTP/1.0\r\n\r\n".into(),
                Head::Page(Page::Status),
            ),
            (
                "GET / HTTP/1.1\r\nHost: localhost:80\r\n\r\n".into(),
                Head::Page(Page::People),
            ),
            (
                "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n".into(),
                Head::Page(Page::People),
            ),
            (
                "GET / HTTP/1.1\r\nHost: evil.example:80\r\n\r\n".into(),
                Head::Other("403 Forbidden"),
            ),
            (
                "GET / HTTP/1.1\r\nHost: \u{fffd}\r\n\r\n".into(),
                Head::Other("403 Forbidden"),
            ),
            (
                format!("POST / HTTP/1.1\r\n{host}"),
                Head::Other("405 Method Not Allowed"),
            ),
            (
                format!("GET /../etc HTTP/1.1\r\n{host}"),
                Head::Other("404 Not Found"),
            ),
            ("GET / HTTP/1.1\r\nHo".into(), Head::Unfinished),
            ("\0\0\0".into(), Head::Other("400 Bad Request")),
        ] {
            assert_eq!(requested(head.as_bytes()), seen, "{head}");
        }
    }
}
