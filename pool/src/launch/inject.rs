//! Serving what an unmodified VMM makes with `memfd_create`.
//!
//! A VMM makes a memory file, gives it its size, seals it and maps it. The
//! size is the moment when it is known what the file is for: the call waits
//! ([`crate::os::seccomp`]), the descriptor becomes the pool's file, and
//! the call is said to be done. Sealing is said to be done as well, since the
//! daemon must keep its say over the file. Everything else is passed on.
//!
//! The process that answers is not the VMM: [`hand_over`] is called by the
//! process that becomes the VMM, [`serve`] by the one that answers, over a
//! pair of sockets. It lives until the VMM and all it forked are gone.

use super::need::Need;
use crate::client::Allocated;
use crate::os::seccomp::{Call, Watcher, Wish, watch_files};
use crate::protocol::packet::{self, PacketError};
use std::error::Error;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::{fmt, io};

/// Largest message between the two.
const MOST_BYTES: usize = 64;

/// A file to serve.
#[derive(Debug)]
struct Slab {
    file: OwnedFd,
    /// The size of the file it is to replace.
    bytes: u64,
    /// Device and inode, which tell it from any other file.
    identity: (u64, u64),
    served: bool,
}

/// Hands the files to the process at the other end of `socket`, and watches the
/// calls of this thread from now on. Returns the lease pipes.
///
/// # Errors
/// What went wrong, and whether this thread is watched already: then it can
/// no longer become a VMM.
pub fn hand_over(
    socket: impl AsFd,
    needs: &[Need],
    allocated: Vec<Allocated>,
) -> Result<Vec<OwnedFd>, HandOverError> {
    let harmless = |error| HandOverError {
        watched: false,
        error,
    };
    let mut lease_pipes = Vec::with_capacity(allocated.len());
    for (need, one) in needs.iter().zip(allocated) {
        let message = format!("slab {}", need.bytes);
        packet::send(&socket, message.as_bytes(), &[one.memory.as_fd()]).map_err(harmless)?;
        confirmed(&socket).map_err(harmless)?;
        lease_pipes.push(one.lease_pipe);
    }
    let watcher = watch_files().map_err(harmless)?;
    packet::send(&socket, b"watch", &[watcher.as_fd()])
        .and_then(|()| confirmed(&socket))
        .map_err(|error| HandOverError {
            watched: true,
            error,
        })?;
    Ok(lease_pipes)
}

/// Why files could not be handed over.
#[derive(Debug)]
pub struct HandOverError {
    /// Whether calls of this thread wait for an answer that never comes.
    pub watched: bool,
    /// What went wrong.
    pub error: io::Error,
}

impl fmt::Display for HandOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.error.kind() {
            io::ErrorKind::ResourceBusy => "; the calls of this process are watched already",
            io::ErrorKind::Unsupported => "; no filter is written for this processor",
            _ => "",
        };
        write!(f, "--inject cannot begin: {}{hint}", self.error)
    }
}

impl Error for HandOverError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

fn confirmed(socket: impl AsFd) -> io::Result<()> {
    match packet::receive(socket, MOST_BYTES, 0) {
        Ok(packet) if packet.message == b"ok" => Ok(()),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) => Err(plain(error)),
    }
}

fn plain(error: PacketError) -> io::Error {
    match error {
        PacketError::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

/// Answers the calls of the process that hands files over on `socket`, until it and all
/// it forked are gone.
///
/// # Errors
/// What the other end sent makes no sense; the operating system's refusal.
pub fn serve(socket: impl AsFd) -> io::Result<()> {
    let mut slabs = Vec::new();
    let watcher = loop {
        let packet = packet::receive(&socket, MOST_BYTES, 1).map_err(plain)?;
        let text = String::from_utf8_lossy(&packet.message).into_owned();
        let file = packet.descriptors.into_iter().next();
        let watcher = match (text.split_once(' '), file) {
            (Some(("slab", bytes)), Some(file)) => {
                slabs.push(Slab::new(file, bytes)?);
                None
            }
            (None, Some(listener)) if text == "watch" => Some(Watcher::new(listener)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        packet::send(&socket, b"ok", &[])?;
        if let Some(watcher) = watcher {
            break watcher;
        }
    };
    while let Some(call) = watcher.next_call()? {
        answer(&watcher, &mut slabs, &call)?;
    }
    Ok(())
}

impl Slab {
    fn new(file: OwnedFd, bytes: &str) -> io::Result<Self> {
        let known = rustix::fs::fstat(&file)?;
        Ok(Self {
            file,
            bytes: bytes.parse().map_err(|_| io::ErrorKind::InvalidData)?,
            identity: (known.st_dev, known.st_ino),
            served: false,
        })
    }
}

fn answer(watcher: &Watcher, slabs: &mut [Slab], call: &Call) -> io::Result<()> {
    let Some(file) = named(call).filter(|_| watcher.still_waits(call)) else {
        return watcher.pass(call);
    };
    let ours = slabs.iter().find(|slab| slab.identity == file.identity);
    match (call.wish, ours) {
        (Wish::Seal, Some(_)) => return watcher.done(call),
        (Wish::Length(bytes), Some(slab)) if bytes == slab.bytes => return watcher.done(call),
        (Wish::Length(bytes), None) if file.is_memory => {
            let fitting = |slab: &&mut Slab| !slab.served && slab.bytes == bytes;
            if let Some(slab) = slabs.iter_mut().find(fitting) {
                // What cannot be replaced is left to the VMM.
                if watcher.replace(call, slab.file.as_fd()).is_ok() {
                    slab.served = true;
                    return watcher.done(call);
                }
            }
        }
        _ => {}
    }
    watcher.pass(call)
}

/// The file a call names.
struct Named {
    identity: (u64, u64),
    /// Whether it was made with `memfd_create`.
    is_memory: bool,
}

fn named(call: &Call) -> Option<Named> {
    let path: PathBuf = format!("/proc/{}/fd/{}", call.thread, call.descriptor).into();
    let known = fs::metadata(&path).ok()?;
    let name = fs::read_link(&path).ok()?;
    Some(Named {
        identity: (known.dev(), known.ino()),
        is_memory: name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"),
    })
}
