//! What can go wrong, and the exit code for it. What the parser of arguments
//! refuses it reports itself, with exit code 2.

use firstlight_pool::client::ClientError;
use firstlight_pool::server::ServeError;
use std::fmt;
use std::io;

/// Why a subcommand did not finish.
#[derive(Debug)]
pub enum Failure {
    /// Options that do not go together.
    Usage(String),
    /// Output that cannot be written.
    Io(String),
    /// The program failed its own checks.
    Check(String),
    /// The pool cannot do it.
    Pool(String),
    /// No daemon answers.
    NoDaemon(String),
    /// The daemon refuses.
    Refused(String),
    /// The daemon's configuration is missing or wrong.
    Config(String),
    /// What was to be reached is not; the document says so.
    Unmet(String),
    /// The reader of the output has seen enough; not a failure.
    Closed,
}

/// A failure as [`crate::output::Output::failure`] shows it.
pub trait Problem: fmt::Display {
    /// The program's exit code.
    fn exit_code(&self) -> u8;

    /// Lists that belong to the message.
    fn details(&self) -> Details<'_> {
        Details::default()
    }

    /// Whether a document that was printed before says it.
    fn is_documented(&self) -> bool {
        false
    }
}

/// What there is to say besides the message: names of lists, for a program and for a
/// person, and their lines.
#[derive(Debug, Default)]
pub struct Details<'d> {
    /// The last lines of a guest's log.
    pub log: &'d [String],
    /// Complaints of QEMU.
    pub complaints: &'d [String],
    /// The command that repeats what failed, word by word.
    pub command: &'d [String],
    /// All of it for a person, line by line.
    pub lines: Vec<String>,
}

impl Problem for Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Usage(_) => 2,
            Self::Io(_) => 3,
            Self::Check(_) => 4,
            Self::Pool(_) | Self::Unmet(_) => 5,
            Self::Refused(_) => 8,
            Self::Config(_) => 9,
            // 7 is `firstlight gate`.
            Self::NoDaemon(_) => 10,
        }
    }

    fn is_documented(&self) -> bool {
        matches!(self, Self::Unmet(_))
    }
}

impl Failure {
    /// What the pool's daemon, or the way there, refused.
    pub fn pool(error: impl fmt::Display) -> Self {
        Self::Pool(error.to_string())
    }

    /// What could not be prepared.
    pub(crate) fn pool_at(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::pool(format!("{what}: {error}"))
    }

    /// What is wrong with a configuration.
    pub fn config(error: impl fmt::Display) -> Self {
        Self::Config(error.to_string())
    }

    /// What kept a daemon from serving.
    #[must_use]
    pub fn served(error: ServeError) -> Self {
        if error.is_of_configuration() {
            Self::config(error)
        } else {
            Self::pool(error)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Io(text)
            | Self::Check(text)
            | Self::Pool(text)
            | Self::Unmet(text)
            | Self::NoDaemon(text)
            | Self::Refused(text)
            | Self::Config(text) => f.write_str(text),
            Self::Closed => f.write_str("the reader of the output went away"),
        }
    }
}

/// A request that a daemon did not fulfil.
impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let text = error.to_string();
        match error {
            ClientError::NoDaemon { error, .. }
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                Self::NoDaemon(format!(
                    "{text}; its configuration names the users: [access]"
                ))
            }
            ClientError::NoDaemon { .. } => Self::NoDaemon(format!(
                "{text}; `firstlight pool serve` starts one, --socket names another"
            )),
            ClientError::Refused(_) => Self::Refused(text),
            _ => Self::Pool(text),
        }
    }
}

/// Standard output that could not be written.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Closed
        } else {
            Self::Io(format!("cannot write standard output: {error}"))
        }
    }
}
