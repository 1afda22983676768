//! What there is to see of a daemon, for Prometheus and for browsers.
//!
//! A process of its own that needs no privilege: it asks the daemon for its status over
//! the daemon's socket, as a user that may do nothing else (`observers` of the
//! configuration). The daemon itself speaks no HTTP.

mod ask;
mod http;
mod metrics;

use ask::{Answer, Asker};
use http::{Body, Made, Page};
use std::io;
use std::net::TcpListener;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Serves `/metrics` and `/status.json`, and `/` with `page`, on a listener; the daemon
/// is asked when one of these two is requested, and has 2 s to answer. `say` gets a line
/// when the daemon begins not to answer, with the reason, and one when it answers again.
///
/// # Errors
/// The operating system's refusal to accept connections, or of a thread.
pub fn serve(
    listener: &TcpListener,
    socket: &Path,
    page: bool,
    say: &dyn Fn(&str),
) -> io::Result<()> {
    let mut site = Site {
        asker: Asker::start(socket.into())?,
        page,
        status: Err("the daemon was not asked yet".into()),
        said: None,
        say,
    };
    http::serve(listener, &mut site)
}

struct Site<'s> {
    asker: Asker,
    /// Whether there is a page for people.
    page: bool,
    /// The last answer.
    status: Answer,
    /// Why the daemon does not answer, once that was said.
    said: Option<String>,
    say: &'s dyn Fn(&str),
}

impl http::Site for Site<'_> {
    fn page(&mut self, wanted: Page) -> io::Result<Made> {
        match wanted {
            Page::People if self.page => {
                let text = include_str!("page.html");
                Ok(Made::Page(("text/html; charset=utf-8", text.into())))
            }
            Page::People => Ok(Made::Missing),
            Page::Metrics | Page::Status => self.asker.ask().map(|()| Made::Later),
        }
    }

    fn wake(&self) -> BorrowedFd<'_> {
        self.asker.wake()
    }

    fn is_later(&mut self) -> bool {
        let Some(status) = self.asker.answer() else {
            return false;
        };
        let trouble = status.as_ref().err();
        if self.said.as_ref() != trouble {
            (self.say)(trouble.map_or("the daemon answers again", |trouble| trouble));
            self.said = trouble.cloned();
        }
        self.status = status;
        true
    }

    fn later(&self, wanted: Page) -> Result<Body, String> {
        if wanted == Page::Metrics {
            // Prometheus is to know that the daemon does not answer.
            let status = self.status.clone().ok();
            let text = metrics::text(status).map_err(|error| error.to_string())?;
            return Ok((metrics::KIND, text));
        }
        let status = self.status.as_ref().map_err(Clone::clone)?;
        let text = serde_json::to_string(status).map_err(|error| error.to_string())?;
        Ok(("application/json", text))
    }
}
