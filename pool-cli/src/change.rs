//! `firstlight pool resize` and `firstlight pool drain`: a daemon's stock changed
//! while it serves.

use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::output::Output;
use crate::text::{bytes, plural};
use clap::Args;
use firstlight_pool::config::Config;
use firstlight_pool::launch::Need;
use firstlight_pool::protocol::{Drained, PageSize, Resize, Resized};
use firstlight_pool::store::Key;
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Keep more or fewer slabs of a size, until the daemon is started anew or for good
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
    /// Also write it into the daemon's configuration, so that it stays
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = CONFIGURATION)]
    persist: Option<PathBuf>,
}

/// Where the package puts the configuration.
const CONFIGURATION: &str = "/etc/firstlight/pool.toml";

const RESIZE_EXAMPLES: &str = "\
Examples:
  firstlight pool resize --size 8G --slabs 4
  firstlight pool resize --size 8G --slabs 4 --persist     also in /etc/firstlight/pool.toml
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
    // Written first and put in place last: neither a file that cannot be changed nor a
    // daemon that refuses leaves the two apart.
    let file = options.persist.as_ref();
    let file = file.map(|path| NewFile::new(path, &resize)).transpose()?;
    let done = options.daemon.connect()?.resize(resize)?;
    if let Some(file) = file {
        file.put()?;
    }
    let document = Document {
        schema: "firstlight.pool-resize/1",
        done: &done,
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

/// A configuration with the new number, beside the old one.
struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// Writes it.
    fn new(path: &Path, resize: &Resize) -> Result<Self, Failure> {
        let failed = |error| cannot_change(path, &error);
        // Where it leads to, or a link would become a file.
        let path = fs::canonicalize(path).map_err(failed)?;
        let text = fs::read_to_string(&path).map_err(failed)?;
        let key = Key {
            page: resize.page,
            node: resize.node,
            bytes: resize.size_class_bytes,
        };
        let text = Config::with_slabs(&path, &text, &key, resize.slabs).map_err(Failure::config)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut file = NamedTempFile::new_in(folder).map_err(failed)?;
        let permissions = fs::metadata(&path).map_err(failed)?.permissions();
        file.write_all(text.as_bytes())
            .and_then(|()| file.as_file().set_permissions(permissions))
            .and_then(|()| file.as_file().sync_all())
            .map_err(failed)?;
        Ok(Self { file, path })
    }

    /// Puts it in the place of the old one.
    fn put(self) -> Result<(), Failure> {
        let Self { file, path } = self;
        let put = file.persist(&path);
        put.map(drop)
            .map_err(|error| cannot_change(&path, &error.error))
    }
}

fn cannot_change(path: &Path, error: &io::Error) -> Failure {
    Failure::Config(format!("cannot change {}: {error}", path.display()))
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
