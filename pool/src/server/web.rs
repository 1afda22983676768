//! A few pages for a loopback port: metrics, the status as JSON, and, where it
//! is wanted, a page for people.
//!
//! One request a connection, `GET` only, heads of at most some KiB, and few
//! connections: nothing here can keep borrowers waiting.

use super::events::{Events, Source};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Browsers at the same time.
const MOST_CONNECTIONS: usize = 32;
/// Bytes of a request's head.
const MOST_HEAD_BYTES: usize = 8 << 10;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// `/metrics`
    Metrics,
    /// `/status.json`
    Status,
    /// `/`
    People,
}

/// An answer's kind and text.
pub(super) type Body = (&'static str, String);

/// A browser.
#[derive(Debug)]
struct Browser {
    stream: TcpStream,
    head: Vec<u8>,
    answer: Option<(Vec<u8>, usize)>,
    since: Instant,
}

/// The port and who is connected.
#[derive(Debug)]
pub(super) struct Web {
    listener: TcpListener,
    next: u64,
    browsers: BTreeMap<u64, Browser>,
}

impl Web {
    pub(super) fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            next: 0,
            browsers: BTreeMap::new(),
        })
    }

    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Where it listens: the port that was found where 0 was asked for.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) fn accept(&mut self, events: &Events) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        // Out of descriptors, most likely: whoever waits goes on waiting.
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return;
                }
            };
            if self.browsers.len() >= MOST_CONNECTIONS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let id = self.next;
            self.next += 1;
            if events.add(Source::Web(id), &stream, true).is_ok() {
                let browser = Browser {
                    stream,
                    head: Vec::new(),
                    answer: None,
                    since: Instant::now(),
                };
                self.browsers.insert(id, browser);
            }
        }
    }

    /// Something can be read from or written to a browser; `make` makes pages.
    pub(super) fn serve(
        &mut self,
        id: u64,
        events: &Events,
        make: impl FnMut(Page) -> Option<Body>,
    ) {
        let Some(browser) = self.browsers.get_mut(&id) else {
            return;
        };
        let done = browser.read(make).and_then(|()| browser.write());
        match done {
            Ok(true) => {
                self.browsers.remove(&id);
            }
            Ok(false) => {
                let writes = browser.answer.is_some();
                let _ = events.change(Source::Web(id), &browser.stream, !writes, writes);
            }
            Err(_) => {
                self.browsers.remove(&id);
            }
        }
    }

    /// Hangs up on whoever takes too long.
    pub(super) fn tick(&mut self, now: Instant) {
        self.browsers
            .retain(|_, browser| now.saturating_duration_since(browser.since) < PATIENCE);
    }
}

impl Browser {
    fn read(&mut self, mut make: impl FnMut(Page) -> Option<Body>) -> io::Result<()> {
        let mut part = [0; 2048];
        while self.answer.is_none() {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.head.extend(part.iter().take(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            let answer = match requested(&self.head) {
                Head::Unfinished if self.head.len() < MOST_HEAD_BYTES => continue,
                Head::Page(page) => make(page).map_or_else(|| failed("404 Not Found"), found),
                Head::Other(status) => failed(status),
                Head::Unfinished => failed("431 Request Header Fields Too Large"),
            };
            self.answer = Some((answer, 0));
        }
        Ok(())
    }

    /// Whether all of the answer is on its way.
    fn write(&mut self) -> io::Result<bool> {
        let Some((answer, sent)) = &mut self.answer else {
            return Ok(false);
        };
        while let Some(rest) = answer.get(*sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

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
    answer(status, "text/plain; charset=utf-8", &format!("{status}\n"))
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
