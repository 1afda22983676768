//! Closed connections whose clients have not read what they were sent: that stays in the daemon's memory, wherever the
//! daemon's end is, until they do or are gone. So each goes on counting for its user until then.

use crate::lease::Whose;
use crate::os::unread;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Those of all users.
#[derive(Debug, Default)]
pub(super) struct Unread {
    by_user: BTreeMap<Whose, Vec<OwnedFd>>,
}

/// Whether something that was sent is not read.
pub(super) fn is_unread(socket: &OwnedFd) -> bool {
    unread::bytes(socket).unwrap_or(0) > 0
}

impl Unread {
    /// Hangs up on a user; the socket, where all is read.
    pub(super) fn hang_up(&mut self, user: Whose, socket: OwnedFd) -> Option<OwnedFd> {
        if !is_unread(&socket) {
            return Some(socket);
        }
        let _ = shutdown(&socket, Shutdown::Both);
        self.by_user.entry(user).or_default().push(socket);
        None
    }

    pub(super) fn of_user(&self, user: Whose) -> u32 {
        let own = self.by_user.get(&user).map_or(0, Vec::len);
        u32::try_from(own).unwrap_or(u32::MAX)
    }

    pub(super) fn len(&self) -> u32 {
        let all: usize = self.by_user.values().map(Vec::len).sum();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// Takes out one of a user's that was read meanwhile.
    pub(super) fn read_by(&mut self, user: Whose) -> Option<OwnedFd> {
        let own = self.by_user.get_mut(&user)?;
        let at = own.iter().position(|socket| !is_unread(socket))?;
        let read = own.swap_remove(at);
        if own.is_empty() {
            self.by_user.remove(&user);
        }
        Some(read)
    }

    pub(super) fn users(&self) -> impl Iterator<Item = Whose> {
        self.by_user.keys().copied()
    }
}
