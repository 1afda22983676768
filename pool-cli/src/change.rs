//! `firstlight pool resize` and `firstlight pool drain`: a daemon's stock changed
//! while it serves.

use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::output::Output;
use crate::text::{bytes, plural};
use clap::Args;
use firstlight_pool::launch::Need;
use firstlight_pool::protocol::{Drained, PageSize, Resize, Resized};
use serde::Serialize;

/// Keep more or fewer slabs of a size, until the daemon is started anew
#[derive(Args)]
#[command(after_help = RESIZE_EXAMPLES)]
pub struct ResizeOptions {
    #[command(flatten)]
    daemon: Daemon,
    /// Which slabs: their size, and their node where the pool is bound to one
    #[arg(long, value_name = "SIZE[@NODE]")]
    size: Need,
    /// Which slabs: their pages, 2M, 1G or thp
    #[arg(long, value_name = "SIZE", default_value_t = PageSize::Huge)]
    page: PageSize,
    /// How many to keep, allocated ones among them
    #[arg(long, value_name = "N")]
    slabs: u32,
}

const RESIZE_EXAMPLES: &str = "\
Examples:
  firstlight pool resize --size 8G --slabs 4
  firstlight pool resize --size 32G@1 --page 1G --slabs 0

Exit codes: see firstlight --help";

/// Allocate no more, give back what is not allocated; the daemon ends with the last lease
#[derive(Args)]
#[command(after_help = "Exit codes: see firstlight --help")]
pub struct DrainOptions {
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Serialize)]
struct Document<'d, D> {
    schema: &'static str,
    #[serde(flatten)]
    done: &'d D,
}

/// Runs `resize`.
pub(crate) fn resize(options: &ResizeOptions, output: &mut Output) -> Result<(), Failure> {
    let resize = Resize {
        page: options.page,
        node: options.size.node,
        size_class_bytes: options.size.bytes,
        slabs: options.slabs,
    };
    let done = options.daemon.connect()?.resize(resize);
    let document = Document {
        schema: "firstlight.pool-resize/1",
        done: &done.map_err(Failure::from)?,
    };
    output.print(&document, |document| {
        let Resized {
            slabs,
            before_slabs,
        } = document.done;
        let slabs = plural((*slabs).into(), "slab");
        format!("{}: {slabs} to keep, {before_slabs} before\n", options.size)
    })
}

/// Runs `drain`.
pub(crate) fn drain(options: &DrainOptions, output: &mut Output) -> Result<(), Failure> {
    let done = options.daemon.connect()?.drain();
    let document = Document {
        schema: "firstlight.pool-drain/1",
        done: &done.map_err(Failure::from)?,
    };
    output.print(&document, |document| {
        let Drained {
            released_bytes,
            lent_slabs,
        } = document.done;
        let lent = plural((*lent_slabs).into(), "slab");
        format!("{} given back, {lent} still lent\n", bytes(*released_bytes))
    })
}
