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
use std::io;
use std::net::TcpListener;
use std::path::Path;

/// Serves `/metrics` and `/status.json`, and `/` with `page`, on a listener; the daemon
/// is asked anew each time.
///
/// # Errors
/// The operating system's refusal to accept connections.
pub fn serve(listener: &TcpListener, socket: &Path, page: bool) -> io::Result<()> {
    http::serve(listener, |wanted| make(wanted, socket, page))
}

fn make(wanted: Page, socket: &Path, page: bool) -> Result<Option<Body>, String> {
    let status = || -> Result<Status, String> {
        let mut client = Client::connect(socket).map_err(|error| error.to_string())?;
        client.status().map_err(|error| error.to_string())
    };
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
