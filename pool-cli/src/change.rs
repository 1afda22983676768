//! `firstlight pool resize` and `firstlight pool drain`: a daemon's stock changed
//! while it serves.

use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::output::{Document, Output};
use crate::text::{bytes, plural};
use clap::Args;
use firstlight_pool::config::Config;
use firstlight_pool::launch::Need;
use firstlight_pool::protocol::{Drained, PageSize, Resize, Resized};
use firstlight_pool::store::Key;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Keep more or fewer slabs of a size, until the daemon restarts or for good
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
///
/// The command does not wait for it: virtual machines on the pool's memory go on, and the
/// daemon, which waits for them, ends by itself.
#[derive(Args)]
#[command(after_help = "Exit codes: see firstlight --help")]
pub struct DrainOptions {
    #[command(flatten)]
    daemon: Daemon,
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
        value: &done,
    };
    output.print(&document, |document| {
        let Resized {
            slabs,
            before_slabs,
        } = document.value;
        let slabs = plural((*slabs).into(), "slab");
        format!("{}: {slabs} to keep, {before_slabs} before\n", options.size)
    })
}

/// A configuration with the new number, beside the old one.
struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
    /// What was read: the old one, locked, and its text.
    old: (File, String),
}

impl NewFile {
    /// Writes it.
    fn new(path: &Path, resize: &Resize) -> Result<Self, Failure> {
        let failed = |error| cannot_change(path, &error);
        // Where it leads to, or a link would become a file.
        let path = fs::canonicalize(path).map_err(failed)?;
        // Another `resize --persist` waits; editors know no such lock, so what they write
        // meanwhile is seen by its text.
        let old = locked(&path).map_err(failed)?;
        let before = fs::read_to_string(&path).map_err(failed)?;
        let key = Key {
            page: resize.page,
            node: resize.node,
            bytes: resize.size_class_bytes,
        };
        let text =
            Config::with_slabs(&path, &before, &key, resize.slabs).map_err(Failure::config)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut file = NamedTempFile::new_in(folder).map_err(failed)?;
        let metadata = old.metadata().map_err(failed)?;
        let permissions = metadata.permissions();
        file.write_all(text.as_bytes())
            .and_then(|()| fchown(file.as_file(), Some(metadata.uid()), Some(metadata.gid())))
            .and_then(|()| file.as_file().set_permissions(permissions))
            .and_then(|()| file.as_file().sync_all())
            .map_err(failed)?;
        Ok(Self {
            file,
            path,
            old: (old, before),
        })
    }

    /// Puts it in the place of the old one.
    fn put(self) -> Result<(), Failure> {
        let Self { file, path, old } = self;
        let (_locked, before) = old;
        let failed = |error| cannot_change(&path, &error);
        if fs::read_to_string(&path).map_err(failed)? != before {
            let text = "it was changed meanwhile; the daemon has the new number, the file has not";
            return Err(failed(io::Error::other(text)));
        }
        file.persist(&path).map_err(|error| failed(error.error))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)
    }
}

/// The file at `path`, locked: not one that another process replaced while this one waited.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let (ours, there) = (file.metadata()?, fs::metadata(path)?);
        if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
    }
}

fn cannot_change(path: &Path, error: &io::Error) -> Failure {
    Failure::Config(format!("cannot change {}: {error}", path.display()))
}

/// Runs `drain`.
pub(crate) fn drain(options: &DrainOptions, output: &mut Output) -> Result<(), Failure> {
    let done = options.daemon.connect()?.drain();
    let document = Document {
        schema: "firstlight.pool-drain/2",
        value: &done.map_err(Failure::from)?,
    };
    output.print(&document, |document| {
        let Drained {
            released_bytes,
            allocated_slabs,
        } = document.value;
        let released = bytes(*released_bytes);
        match *allocated_slabs {
            0 => format!("{released} given back; the daemon ends\n"),
            slabs => format!(
                "{released} given back, {} still allocated: the daemon ends with the last lease\n",
                plural(slabs.into(), "slab")
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_wrote_meanwhile_is_not_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool.toml");
        fs::write(
            &path,
            "[[class]]\npage = \"2M\"\nsize = \"2M\"\nslabs = 1\n",
        )
        .expect("written");
        let resize = Resize {
            page: PageSize::Huge,
            node: None,
            size_class_bytes: 2 << 20,
            slabs: 4,
        };
        let new = || NewFile::new(&path, &resize).unwrap_or_else(|error| panic!("{error}"));
        let late = new();
        fs::write(&path, "# mine\n").expect("written");
        let error = late.put().expect_err("it was changed").to_string();
        assert!(error.contains("changed meanwhile"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "# mine\n");
        new().put().unwrap_or_else(|error| panic!("{error}"));
        let text = fs::read_to_string(&path).expect("a file");
        assert!(
            text.contains("# mine\n") && text.contains("slabs = 4"),
            "{text}"
        );
    }
}
