//! Messages over a socket: one datagram each, bounded, with its descriptors.
//!
//! What arrives is complete or an error: a datagram that was cut, or that came
//! with more descriptors than expected, is never handed on. Descriptors are
//! received with close-on-exec, and closed where the message is refused.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors with one message.
pub const MOST_DESCRIPTORS: usize = 4;

/// What came in.
#[derive(Debug)]
pub struct Packet {
    /// The message.
    pub message: Vec<u8>,
    /// The descriptors that came with it, in order.
    pub descriptors: Vec<OwnedFd>,
}

/// Why nothing came in.
#[derive(Debug)]
pub enum PacketError {
    /// The other end is gone, or sent an empty datagram, which looks the same.
    Closed,
    /// A datagram longer than `most` bytes; the rest of it is lost.
    TooLong {
        /// The limit.
        most: usize,
    },
    /// More descriptors than expected; all are closed.
    Descriptors {
        /// The limit.
        most: usize,
    },
    /// The socket's own error; `WouldBlock` where there is nothing yet.
    Io(io::Error),
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the other end hung up"),
            Self::TooLong { most } => write!(f, "a message of more than {most} bytes"),
            Self::Descriptors { most } => {
                write!(f, "a message with more than {most} descriptors")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Error for PacketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Sends one message with its descriptors.
///
/// # Errors
/// The socket's error; `InvalidInput` for an empty message or more than
/// [`MOST_DESCRIPTORS`] descriptors.
pub fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if message.is_empty() || descriptors.len() > MOST_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = rustix::io::retry_on_intr(|| {
        let parts = [IoSlice::new(message)];
        rustix::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL)
    })?;
    if sent == message.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives one message that comes without descriptors, of at most `most_bytes`.
///
/// One with descriptors stays where it is, and none of them becomes one of this process: to look at what
/// an unknown process sends, and even to close it, can take for ever (a file system in user space,
/// a socket that lingers). The connection should be closed by a thread that may wait.
///
/// # Errors
/// As [`receive`].
pub fn receive_plain(socket: impl AsFd, most_bytes: usize) -> Result<Vec<u8>, PacketError> {
    let mut message = vec![0; most_bytes];
    let none = &mut RecvAncillaryBuffer::default();
    let seen = receive_once(&socket, &mut message, none, RecvFlags::PEEK)?;
    if seen.flags.contains(ReturnFlags::CTRUNC) {
        return Err(PacketError::Descriptors { most: 0 });
    }
    // It is there: without a peer's descriptors nothing waits.
    receive_once(&socket, &mut [], none, RecvFlags::empty())?;
    whole(&seen, message)
}

/// As [`receive_plain`], of a socket to which no descriptor can be sent
/// ([`are_refused`](crate::os::passrights::are_refused)): without looking first.
///
/// # Errors
/// As [`receive`].
pub fn receive_bare(socket: impl AsFd, most_bytes: usize) -> Result<Vec<u8>, PacketError> {
    let mut message = vec![0; most_bytes];
    let none = &mut RecvAncillaryBuffer::default();
    let received = receive_once(&socket, &mut message, none, RecvFlags::empty())?;
    whole(&received, message)
}

/// A message that is neither cut nor the end.
fn whole(received: &RecvMsg, mut message: Vec<u8>) -> Result<Vec<u8>, PacketError> {
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(PacketError::TooLong {
            most: message.len(),
        });
    }
    if received.bytes == 0 {
        return Err(PacketError::Closed);
    }
    message.truncate(received.bytes);
    Ok(message)
}

/// What is next.
fn receive_once(
    socket: impl AsFd,
    message: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
    flags: RecvFlags,
) -> Result<RecvMsg, PacketError> {
    // A peer that hung up with our words unread leaves an error in front of its
    // own last words, such as why it hung up.
    let mut reset = false;
    loop {
        let mut parts = [IoSliceMut::new(message)];
        match rustix::net::recvmsg(&socket, &mut parts, control, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) if !reset => reset = true,
            Err(Errno::CONNRESET) => return Err(PacketError::Closed),
            Err(error) => return Err(PacketError::Io(error.into())),
            Ok(received) => return Ok(received),
        }
    }
}

/// Receives one message of at most `most_bytes` with at most `most_descriptors`.
///
/// # Errors
/// See [`PacketError`]; after anything but `Io` with `WouldBlock` the
/// connection should be closed.
pub fn receive(
    socket: impl AsFd,
    most_bytes: usize,
    most_descriptors: usize,
) -> Result<Packet, PacketError> {
    let mut message = vec![0; most_bytes];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = receive_once(&socket, &mut message, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    // Collected before anything is refused, so that refusing closes them.
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(PacketError::TooLong { most: most_bytes });
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > most_descriptors {
        return Err(PacketError::Descriptors {
            most: most_descriptors,
        });
    }
    if received.bytes == 0 {
        return Err(PacketError::Closed);
    }
    message.truncate(received.bytes);
    Ok(Packet {
        message,
        descriptors,
    })
}
