//! A few pages for a loopback port: metrics, the status as JSON, and, where it
//! is wanted, a page for people.
//!
//! One request a connection, `GET` only, heads of at most some KiB, each connection for a
//! few seconds. One thread waits for all of them, so that a request that is not finished
//! delays none that is; where there are too many, the oldest is closed for the newest.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Connections at the same time: fewer than the unit's descriptors.
const CONNECTIONS: usize = 32;
/// Connections that are accepted before those that are open have their turn.
const ACCEPTS_A_TURN: usize = 8;
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

/// Makes a page, or says what is in the way.
pub(super) type Make<'m> = dyn Fn(Page) -> Result<Option<Body>, String> + 'm;

/// A connection: what came of its request, then what of the answer is not sent yet.
struct Open {
    stream: TcpStream,
    until: Instant,
    head: Vec<u8>,
    answer: Option<Vec<u8>>,
}

/// Serves for as long as connections can be accepted.
pub(super) fn serve(listener: &TcpListener, make: &Make<'_>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        wait(listener, &open)?;
        // A browser that goes away is none of the others' business.
        open.retain_mut(|one| one.go_on(make).unwrap_or(false));
        for _ in 0..ACCEPTS_A_TURN {
            match accept(listener) {
                Ok(Some(new)) => {
                    if open.len() >= CONNECTIONS {
                        open.pop_front();
                    }
                    open.push_back(new);
                }
                Ok(None) => break,
                Err(error) if out_of_descriptors(&error) => {
                    open.pop_front();
                    thread::sleep(Duration::from_millis(10));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Until there is something to do, or a connection has taken too long.
fn wait(listener: &TcpListener, open: &VecDeque<Open>) -> io::Result<()> {
    let first = open.iter().map(|one| one.until).min();
    let left = first.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let mut files = vec![PollFd::new(listener, PollFlags::IN)];
    files.extend(open.iter().map(|one| {
        let flags = one
            .answer
            .as_ref()
            .map_or(PollFlags::IN, |_| PollFlags::OUT);
        PollFd::new(&one.stream, flags)
    }));
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut files, timeout.as_ref()))?;
    Ok(())
}

fn accept(listener: &TcpListener) -> io::Result<Option<Open>> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(true)?;
            Ok(Some(Open {
                stream,
                until: Instant::now() + PATIENCE,
                head: Vec::new(),
                answer: None,
            }))
        }
        Err(error) if is_passing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

fn out_of_descriptors(error: &io::Error) -> bool {
    let error = error.raw_os_error();
    error == Some(libc::EMFILE) || error == Some(libc::ENFILE)
}

impl Open {
    /// Reads or writes what can be without waiting; whether it stays open.
    fn go_on(&mut self, make: &Make<'_>) -> io::Result<bool> {
        if Instant::now() >= self.until {
            return Ok(false);
        }
        if self.answer.is_none() && !self.read(make)? {
            return Ok(false);
        }
        let Some(answer) = &mut self.answer else {
            return Ok(true);
        };
        while !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(count) => drop(answer.drain(..count)),
                Err(error) if is_passing(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads what is there of the request, and has it answered once that is whole; whether
    /// more is to be expected.
    fn read(&mut self, make: &Make<'_>) -> io::Result<bool> {
        let mut part = [0; 2048];
        while self.answer.is_none() {
            match self.stream.read(&mut part) {
                Ok(0) => return Ok(false),
                Ok(count) => self.head.extend(part.iter().take(count)),
                Err(error) if is_passing(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
            self.answer = match requested(&self.head) {
                Head::Unfinished if self.head.len() < MOST_HEAD_BYTES => None,
                Head::Unfinished => Some(failed("431 Request Header Fields Too Large")),
                Head::Other(status) => Some(failed(status)),
                Head::Page(page) => Some(match make(page) {
                    Ok(body) => body.map_or_else(|| failed("404 Not Found"), found),
                    Err(why) => answer("503 Service Unavailable", PLAIN, &format!("{why}\n")),
                }),
            };
        }
        Ok(true)
    }
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
