//! `firstlight pool grant` and `firstlight pool revoke`: rights to slabs that are held, and not a user's.

use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::output::{Document, Output};
use crate::text::{bytes, plural};
use clap::Args;
use firstlight_pool::config::Size;
use firstlight_pool::protocol::{GrantId, GrantRequest, Granted, Label, PageSize};

/// Make a socket that serves slabs of one size, to any client that can reach it
///
/// Mount its folder into a container, read-only: whichever user a client there is, it gets such slabs, and nothing else. A slab that is back counts until a clean one has taken its place. A restart of the
/// daemon changes nothing; the grant ends by `revoke`, or when its folder is removed.
#[derive(Args)]
#[command(after_help = GRANT_EXAMPLES)]
pub struct GrantOptions {
    #[command(flatten)]
    daemon: Daemon,
    /// Bytes of a slab
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// Which slabs: their pages, 2M, 1G or thp
    #[arg(long, value_name = "SIZE", default_value_t = PageSize::Huge)]
    page: PageSize,
    /// Which slabs: their node, where the pool is bound to one
    #[arg(long, value_name = "N")]
    node: Option<u32>,
    /// Slabs that may be out at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,
    /// What it is called in `status` and metrics
    #[arg(long, value_name = "TEXT")]
    label: Option<Label>,
}

const GRANT_EXAMPLES: &str = "\
Examples:
  firstlight pool grant --size 8G --label ns/pod
  firstlight pool grant --size 8G --page 1G --node 1 --uses 2

Exit codes: see firstlight --help";

/// End a grant: no slab is taken by it any more
///
/// Slabs that were taken by it stay out until their leases end.
#[derive(Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub struct RevokeOptions {
    #[command(flatten)]
    daemon: Daemon,
    /// Its name, as `grant` and `status` print it
    #[arg(value_name = "GRANT")]
    grant: GrantId,
}

const REVOKE_EXAMPLES: &str = "\
Examples:
  firstlight pool revoke grant-00000abc-17

Exit codes: see firstlight --help";

/// Runs `grant`.
pub(crate) fn grant(options: &GrantOptions, output: &mut Output) -> Result<(), Failure> {
    let request = GrantRequest {
        page: options.page,
        node: options.node,
        size_class_bytes: options.size.bytes(),
        uses: options.uses,
        label: options.label.clone(),
    };
    let granted = options.daemon.connect()?.grant(request)?;
    let document = Document {
        schema: "firstlight.pool-grant/1",
        value: &granted,
    };
    output.print(&document, |document| {
        let Granted {
            grant,
            folder,
            socket,
        } = document.value;
        let slabs = plural(options.uses.into(), "slab");
        let size = bytes(options.size.bytes());
        format!("{grant}: {slabs} of {size}, in {folder}\nFIRSTLIGHT_POOL={socket}\n")
    })
}

/// Runs `revoke`.
pub(crate) fn revoke(options: &RevokeOptions, output: &mut Output) -> Result<(), Failure> {
    let revoked = options.daemon.connect()?.revoke(options.grant)?;
    let document = Document {
        schema: "firstlight.pool-revoke/1",
        value: &revoked,
    };
    output.print(&document, |document| {
        let grant = options.grant;
        match document.value.held_slabs {
            0 => format!("{grant} has ended\n"),
            slabs => format!(
                "{grant} has ended; {} of it out, until the leases end\n",
                plural(slabs.into(), "slab")
            ),
        }
    })
}
