//! `firstlight pool fill`: filling turned off and on, or to another rate, while the daemon serves.

use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::output::{Document, Output};
use crate::text::bytes;
use clap::{Args, ValueEnum};
use firstlight_pool::config::Size;
use firstlight_pool::protocol::FillChange;

/// Stop filling slabs, fill them again, or at another rate, until the daemon restarts
///
/// Filling also goes back to the configured rate when the daemon reads its configuration again.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[group(required = true, multiple = true, args = ["switch", "rate"])]
pub struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Whether slabs are filled
    #[arg(value_enum, value_name = "on|off")]
    switch: Option<Switch>,
    /// Bytes a second for each node; 0 is as fast as it goes
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool fill off            before a benchmark, say
  firstlight pool fill on --rate 512M

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let change = FillChange {
        on: options.switch.map(|switch| switch == Switch::On),
        rate: options.rate.map(Size::bytes),
    };
    let filling = options.daemon.connect()?.fill(change)?;
    let document = Document {
        schema: "firstlight.pool-fill/1",
        value: &filling,
    };
    output.print(&document, |document| {
        let switch = if document.value.on { "on" } else { "off" };
        let rate = match document.value.rate {
            0 => "as fast as it goes".into(),
            rate => format!("{} a second for each node", bytes(rate)),
        };
        format!("filling is {switch}, {rate}\n")
    })
}
