//! Why a message is no message of this protocol.

use super::VERSION;
use std::error::Error;
use std::fmt;

/// What is wrong with a message: what was seen and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageError {
    /// More bytes than a message of its kind may have.
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// Not one JSON object; the reader's words.
    NoObject(String),
    /// No version, or one that is not spoken here; what stood in `v`.
    Version(String),
    /// A request whose `op` is missing or unknown; what stood there.
    Operation(String),
    /// A field is missing, unknown or out of range; the reader's words.
    Field {
        /// The kind of message.
        message: &'static str,
        /// What is wrong.
        text: String,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes, most } => {
                write!(f, "a message of {bytes} bytes, at most {most} are allowed")
            }
            Self::NoObject(text) => write!(f, "expected one JSON object: {text}"),
            Self::Version(seen) => {
                write!(f, "\"v\" is {seen}, version {VERSION} is spoken here")
            }
            Self::Operation(seen) => write!(
                f,
                "\"op\" is {seen}, expected take, give, status, resize, fill, drain, grant or revoke"
            ),
            Self::Field { message, text } => write!(f, "{message}: {text}"),
        }
    }
}

impl Error for MessageError {}
