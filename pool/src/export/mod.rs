//! What there is to see of a daemon, for Prometheus and for browsers.
//!
//! A process of its own that needs no privilege: it asks the daemon for its status over
//! the daemon's socket, as a user that may do nothing else (`observers` of the
//! configuration). The daemon itself speaks no HTTP.

mod http;
mod metrics;

use crate::client::Client;
use crate::protocol::Status;
use http::{Body, Page};
use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::path::Path;

/// Serves `/metrics` and `/status.json`, and `/` with `page`, on a listener; the daemon
/// is asked each time. `say` gets a line when the daemon begins not to answer, with the
/// reason, and one when it answers again.
///
/// # Errors
/// The operating system's refusal to accept connections.
pub fn serve(
    listener: &TcpListener,
    socket: &Path,
    page: bool,
    say: &dyn Fn(&str),
) -> io::Result<()> {
    let seen = RefCell::new(None);
    http::serve(listener, &|wanted| {
        make(wanted, page, &|| status(socket, &seen, say))
    })
}

/// The daemon's status; why there is none is said once for as long as it lasts.
fn status(
    socket: &Path,
    seen: &RefCell<Option<String>>,
    say: &dyn Fn(&str),
) -> Result<Status, String> {
    let status = Client::connect(socket)
        .and_then(|mut client| client.status())
        .map_err(|error| error.to_string());
    let trouble = status.as_ref().err().cloned();
    if *seen.borrow() != trouble {
        say(trouble.as_deref().unwrap_or("the daemon answers again"));
        seen.replace(trouble);
    }
    status
}

fn make(
    wanted: Page,
    page: bool,
    status: &dyn Fn() -> Result<Status, String>,
) -> Result<Option<Body>, String> {
    Ok(match wanted {
        // Prometheus is to know that the daemon does not answer.
        Page::Metrics => {
            let text = metrics::text(status().ok()).map_err(|error| error.to_string())?;
            Some((metrics::KIND, text))
        }
        Page::Status => {
            let text = serde_json::to_string(&status()?).map_err(|error| error.to_string())?;
            Some(("application/json", text))
        }
        Page::People => {
            page.then(|| ("text/html; charset=utf-8", include_str!("page.html").into()))
        }
    })
}
