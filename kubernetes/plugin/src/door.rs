//! A socket in a folder of kubelet's, which is made again where it is gone: kubelet empties such folders when it starts.

use crate::rpc::{self, Service, Serving};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// Whether a file is the one that it was: its device, its inode, its birth or last change.
pub type Identity = (u64, u64, i64, i64);

/// What file is there, if one is.
#[must_use]
pub fn identity(path: &Path) -> Option<Identity> {
    let file = std::fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

/// A socket at which a service is served. It is removed with the value.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    serving: Option<(Serving, Identity)>,
}

impl Door {
    /// One at which nothing is served yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            serving: None,
        }
    }

    /// Serves there, if that is not so already: whether it was not.
    ///
    /// # Errors
    /// Why it can't, in words.
    pub fn keep_up(&mut self, service: impl Service) -> Result<bool, String> {
        let there = identity(&self.path);
        if there.is_some() && self.serving.as_ref().map(|(_, served)| *served) == there {
            return Ok(false);
        }
        self.serving = None;
        let served = self.serve(service).map_err(|error| {
            let path = self.path.display();
            format!("cannot listen at {path}: {error}; is kubelet's folder there?")
        });
        self.serving = Some(served?);
        Ok(true)
    }

    fn serve(&self, service: impl Service) -> io::Result<(Serving, Identity)> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&self.path)?;
        let made = identity(&self.path).ok_or(io::ErrorKind::NotFound)?;
        Ok((rpc::serve(listener, service), made))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.serving.as_ref().map(|(_, served)| *served) == identity(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
