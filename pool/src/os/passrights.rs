//! Sockets to which no process can send descriptors, of Linux 6.16 and later.
//!
//! Before that any client can send some, and where they are not received, closing the
//! socket closes them, which takes as long as their sender likes.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The option's number in Linux's `asm-generic/socket.h`.
const SO_PASSRIGHTS: c_int = 83;

/// Bytes of its value.
const LENGTH: libc::socklen_t = 4;
const _: () = assert!(size_of::<c_int>() == LENGTH as usize);

/// Has the kernel refuse descriptors that are sent to a socket, and to all those that connect to it if it
/// listens: sending them fails.
///
/// # Errors
/// The kernel is older than Linux 6.16, or this is no Unix socket.
pub fn refuse(socket: impl AsFd) -> io::Result<()> {
    let off: c_int = 0;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the option reads `LENGTH` bytes at the pointer, which is to a live `c_int` of that size.
    let done = unsafe {
        libc::setsockopt(
            descriptor,
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            LENGTH,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether descriptors that are sent to a socket are refused, and were since it is connected.
pub fn are_refused(socket: impl AsFd) -> bool {
    let mut passes: c_int = 1;
    let descriptor = socket.as_fd().as_raw_fd();
    let mut length = LENGTH;
    // SAFETY: the option writes at most `length` bytes to the first pointer and their number to the
    // second, both of which are to live values of those sizes.
    let done = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw mut passes).cast(),
            &raw mut length,
        )
    };
    done == 0 && passes == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::packet;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

    #[test]
    fn none_can_be_sent_to_whoever_listens_so() {
        let new = || {
            let kind = SocketType::SEQPACKET;
            rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
        };
        let (listener, before, client) = (new(), new(), new());
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddrUnix::new(folder.path().join("socket")).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 2).unwrap();
        rustix::net::connect(&before, &address).unwrap();
        if let Err(error) = refuse(&listener) {
            return crate::os::need::skip("passrights", error);
        }
        rustix::net::connect(&client, &address).unwrap();
        packet::send(&before, b"x", &[before.as_fd()]).unwrap();
        let error = packet::send(&client, b"x", &[client.as_fd()]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        packet::send(&client, b"y", &[]).unwrap();
        let [first, second] = [(); 2].map(|()| rustix::net::accept(&listener).unwrap());
        assert!(!are_refused(&first));
        assert!(are_refused(&second));
        assert_eq!(packet::receive_bare(&second, 8).unwrap(), b"y");
        // The other way they go as ever.
        packet::send(&second, b"z", &[listener.as_fd()]).unwrap();
        assert_eq!(packet::receive(&client, 8, 1).unwrap().descriptors.len(), 1);
        assert!(!are_refused(tempfile::tempfile().unwrap()));
        refuse(tempfile::tempfile().unwrap()).unwrap_err();
    }
}
