//! `firstlight pool export`: a daemon's status for Prometheus and for browsers.

use crate::Program;
use crate::daemon::Daemon;
use crate::failure::Failure;
use clap::Args;
use firstlight_pool::export;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};

/// Serve metrics for Prometheus, and a page for browsers, from the daemon's status
///
/// Needs no privilege: any user that `observers` of the configuration names will do. All users
/// of this machine can read what it serves, sizes of leases, users and processes among it; names of leases are not.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Where to listen: a loopback address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9464", value_parser = loopback)]
    listen: SocketAddr,
    /// Serve a page for browsers too
    #[arg(long)]
    html: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool export                               http://127.0.0.1:9464/metrics
  firstlight pool export --html --listen '[::1]:8080'  and a page at http://[::1]:8080/

It serves until a signal ends it.

Exit codes: see firstlight --help";

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    address
        .filter(|address| address.ip().is_loopback())
        .ok_or_else(|| format!("{text:?}, expected a loopback address such as 127.0.0.1:9464"))
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, program: Program) -> Result<(), Failure> {
    // Readers that are gone are no reason to end.
    let say = |line: &str| drop(writeln!(io::stderr(), "{}: {line}", program.name()));
    let failed = |error: io::Error| Failure::pool(format!("listen at {}: {error}", options.listen));
    let listener = TcpListener::bind(options.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    say(&format!("metrics at http://{address}/metrics"));
    export::serve(&listener, &options.daemon.socket()?, options.html, &say).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::loopback;

    #[test]
    fn only_this_machine_may_connect() {
        assert!(loopback("127.0.0.1:0").is_ok());
        assert!(loopback("[::1]:9464").is_ok());
        for wrong in ["0.0.0.0:80", "localhost", "127.0.0.1", "192.0.2.1:80", ""] {
            assert!(loopback(wrong).is_err(), "{wrong}");
        }
    }
}
