//! Why a client did not get what it asked for.

use crate::protocol::packet::PacketError;
use crate::protocol::{MessageError, Refusal, Reply};
use std::error::Error;
use std::path::PathBuf;
use std::{fmt, io};

/// What went wrong between a client and the daemon.
#[derive(Debug)]
pub enum ClientError {
    /// No daemon listens there, or not for us.
    NoDaemon {
        /// Where.
        socket: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another user's process listens there: it would keep memory that it gives, and see what is in it.
    Stranger {
        /// Where.
        socket: PathBuf,
        /// Its user.
        user: u32,
        /// The user of this process.
        us: u32,
    },
    /// The daemon said no.
    Refused(Refusal),
    /// The daemon hung up.
    Closed,
    /// No answer in time.
    Silent,
    /// The answer is no message of the protocol.
    Message(MessageError),
    /// The answer makes no sense, in words.
    Answer(String),
    /// The system said no.
    Io(io::Error),
}

impl ClientError {
    pub(super) fn unexpected(asked: &str, reply: &Reply) -> Self {
        let answer = match reply {
            Reply::Take(_) => "take",
            Reply::Give => "give",
            Reply::Status(_) => "status",
            Reply::Resize(_) => "resize",
            Reply::Fill(_) => "fill",
            Reply::Drain(_) => "drain",
            Reply::Grant(_) => "grant",
            Reply::Revoke(_) => "revoke",
            Reply::Refused(_) => "refusal",
        };
        Self::Answer(format!("{asked} was answered as if it were {answer}"))
    }

    pub(super) fn from_send(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            io::ErrorKind::WouldBlock => Self::Silent,
            _ => Self::Io(error),
        }
    }
}

impl From<MessageError> for ClientError {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}

impl From<PacketError> for ClientError {
    fn from(error: PacketError) -> Self {
        match error {
            PacketError::Closed => Self::Closed,
            PacketError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => Self::Silent,
            PacketError::Io(error) => Self::Io(error),
            PacketError::TooLong { .. } | PacketError::Descriptors { .. } => {
                Self::Answer(format!("the answer is {error}"))
            }
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDaemon { socket, error } => {
                let socket = socket.display();
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        write!(f, "this user may not use the pool at {socket}: {error}")
                    }
                    _ => write!(f, "no pool answers at {socket}: {error}"),
                }
            }
            Self::Stranger { socket, user, us } => write!(
                f,
                "user {user} listens at {}, where root, this user ({us}) or the owner of a folder that root or this user \
                 made is expected: nothing is taken from it",
                socket.display()
            ),
            Self::Refused(refusal) => {
                write!(
                    f,
                    "the pool refuses ({}): {}",
                    refusal.code, refusal.message
                )
            }
            Self::Closed => f.write_str("the pool hung up without an answer"),
            Self::Silent => f.write_str("the pool did not answer in time"),
            Self::Message(error) => write!(f, "the pool's answer cannot be read: {error}"),
            Self::Answer(text) => write!(f, "the pool's answer makes no sense: {text}"),
            Self::Io(error) => write!(f, "speaking to the pool: {error}"),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoDaemon { error, .. } | Self::Io(error) => Some(error),
            Self::Message(error) => Some(error),
            _ => None,
        }
    }
}
