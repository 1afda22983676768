//! What was sent over a socket and the other end has not read.
//!
//! It is memory of the sender's, also once the sender has closed its socket.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of it, with what the kernel needs around them; 0 once the other end has read all or is gone.
///
/// # Errors
/// It is no socket.
pub fn bytes(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the request (`SIOCOUTQ` has this number for sockets) writes one `c_int` to the pointer, which is to
    // a live one.
    let done = unsafe { libc::ioctl(descriptor, libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::packet;
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

    #[test]
    fn until_it_is_read_or_the_other_end_is_gone() {
        let pair = || {
            let kind = SocketType::SEQPACKET;
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
        };
        let [(ours, theirs), (others, gone)] = [(); 2].map(|()| pair());
        for end in [&ours, &others] {
            assert_eq!(bytes(end).unwrap(), 0);
            packet::send(end, b"x", &[]).unwrap();
            assert!(bytes(end).unwrap() > 0);
            shutdown(end, Shutdown::Both).unwrap();
            assert!(bytes(end).unwrap() > 0);
        }
        packet::receive(&theirs, 8, 0).unwrap();
        drop(gone);
        assert_eq!([ours, others].map(|end| bytes(&end).unwrap()), [0, 0]);
        bytes(tempfile::tempfile().unwrap()).unwrap_err();
    }
}
