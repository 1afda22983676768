//! A few pages for a loopback port: metrics, the status as JSON, and, where it
//! is wanted, a page for people.
//!
//! One request a connection, `GET` only, heads of at most some KiB, each connection for a
//! few seconds. One thread waits for all of them, and for pages that can't be made at once, so
//! that a request that is not finished delays none that is. Where there are too many, the oldest
//! that is not finished is closed for the newest, without such the oldest.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
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

/// What becomes of a request for a page.
pub(super) enum Made {
    Page(Body),
    /// There is none.
    Missing,
    /// It can be made once [`Site::is_later`].
    Later,
}

/// What is served.
pub(super) trait Site {
    /// A page, without waiting for anything.
    fn page(&mut self, wanted: Page) -> io::Result<Made>;

    /// Readable when pages that were not there at once may be.
    fn wake(&self) -> BorrowedFd<'_>;

    /// Whether they are.
    fn is_later(&mut self) -> bool;

    /// Such a page, or what is in the way.
    fn later(&self, wanted: Page) -> Result<Body, String>;
}

/// What a connection waits for.
enum State {
    /// The rest of its request's head.
    Head(Vec<u8>),
    /// A page.
    Page(Page),
    /// That this can be sent.
    Answer(Vec<u8>),
}

struct Open {
    stream: TcpStream,
    until: Instant,
    state: State,
}

/// Serves for as long as connections can be accepted.
pub(super) fn serve(listener: &TcpListener, site: &mut impl Site) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        wait(listener, site, &open)?;
        if site.is_later() {
            open.iter_mut().for_each(|one| one.answer_later(site));
        }
        // A browser that goes away is none of the others' business.
        open.retain_mut(|one| one.go_on(site).unwrap_or(false));
        for _ in 0..ACCEPTS_A_TURN {
            match accept(listener) {
                Ok(Some(new)) => {
                    if open.len() >= CONNECTIONS {
                        close_one(&mut open);
                    }
                    open.push_back(new);
                }
                Ok(None) => break,
                Err(error) if out_of_descriptors(&error) => {
                    close_one(&mut open);
                    thread::sleep(Duration::from_millis(10));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn close_one(open: &mut VecDeque<Open>) {
    let is_unfinished = |one: &Open| matches!(one.state, State::Head(_));
    drop(open.remove(open.iter().position(is_unfinished).unwrap_or(0)));
}

/// Until there is something to do, or a connection has taken too long.
fn wait(listener: &TcpListener, site: &impl Site, open: &VecDeque<Open>) -> io::Result<()> {
    let first = open.iter().map(|one| one.until).min();
    let left = first.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let wake = site.wake();
    let mut files = vec![
        PollFd::new(listener, PollFlags::IN),
        PollFd::new(&wake, PollFlags::IN),
    ];
    files.extend(open.iter().filter_map(|one| {
        let flags = match one.state {
            State::Head(_) => PollFlags::IN,
            // One that hung up would wake us until its page is there.
            State::Page(_) => return None,
            State::Answer(_) => PollFlags::OUT,
        };
        Some(PollFd::new(&one.stream, flags))
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
                state: State::Head(Vec::new()),
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
    fn go_on(&mut self, site: &mut impl Site) -> io::Result<bool> {
        if Instant::now() >= self.until || !self.read(site)? {
            return Ok(false);
        }
        let State::Answer(answer) = &mut self.state else {
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
    /// it stays open.
    fn read(&mut self, site: &mut impl Site) -> io::Result<bool> {
        let mut part = [0; 2048];
        while let State::Head(head) = &mut self.state {
            match self.stream.read(&mut part) {
                Ok(0) => return Ok(false),
                Ok(count) => head.extend(part.iter().take(count)),
                Err(error) if is_passing(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
            self.state = match requested(head) {
                Head::Unfinished if head.len() < MOST_HEAD_BYTES => continue,
                Head::Unfinished => State::Answer(failed("431 Request Header Fields Too Large")),
                Head::Other(status) => State::Answer(failed(status)),
                Head::Page(page) => match site.page(page)? {
                    Made::Page(body) => State::Answer(found(body)),
                    Made::Missing => State::Answer(failed("404 Not Found")),
                    Made::Later => State::Page(page),
                },
            };
        }
        Ok(true)
    }

    /// The page that it waits for can be made.
    fn answer_later(&mut self, site: &impl Site) {
        if let State::Page(page) = self.state {
            let unavailable = |why| answer("503 Service Unavailable", PLAIN, &format!("{why}\n"));
            self.state = State::Answer(site.later(page).map_or_else(unavailable, found));
        }
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
        Ok(_) if !is_by_address(request.headers) => Head::Other("403 Forbidden"),
        Ok(_) => match request.path {
            Some("/metrics") => Head::Page(Page::Metrics),
            Some("/status.json") => Head::Page(Page::Status),
            Some("/") => Head::Page(Page::People),
            _ => Head::Other("404 Not Found"),
        },
    }
}

/// Whether the request names this machine by an address, or as `localhost`: a page from elsewhere whose name was
/// made to point here must not read anything.
fn is_by_address(fields: &[httparse::Header<'_>]) -> bool {
    let host = fields
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("host"));
    let Some(host) = host.and_then(|field| std::str::from_utf8(field.value).ok()) else {
        // HTTP/1.0 has none, and browsers do not speak it.
        return host.is_none();
    };
    let name = host.split(':').next().unwrap_or_default();
    host.parse::<SocketAddr>().is_ok() || name == "localhost" || name.parse::<Ipv4Addr>().is_ok()
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
                "GET /metrics HTTP/1.1\r\nHost: 10.8.0.7:9464\r\n\r\n".into(),
                Head::Page(Page::Metrics),
            ),
            (
                "GET / HTTP/1.1\r\nHost: 10.8.0.7.evil.example\r\n\r\n".into(),
                Head::Other("403 Forbidden"),
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
