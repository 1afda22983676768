//! What daemon and clients say to each other.
//!
//! A connection is a Unix socket of type `SOCK_SEQPACKET`. Every message is one
//! datagram that holds one JSON object with the version, `"v":2`. The client
//! sends a [`Request`], the daemon answers each with one [`Reply`], in order;
//! the reply to `take` carries two descriptors, the memory and the lease pipe.
//! `docs/pool-protocol.md` describes the same for other languages.
//!
//! Both ends treat what they receive as hostile: a message is bounded before it
//! is read ([`packet`]), numbers and names are bounded when it is decoded, and
//! what is wrong is a [`MessageError`] that says what was seen. A request with a
//! field that is not known is refused, because it may ask for something that would
//! not be done; an unknown field of a reply is ignored.

mod body;
mod error;
mod grant;
pub mod packet;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod words;

pub use error::MessageError;
pub use grant::{GrantId, GrantRequest, GrantRow, Granted, MOST_GRANTS, Revoke, Revoked};
pub use reply::{
    Counters, Drained, Filling, Gauges, Lease, LeaseRow, Misses, PoolRow, QuotaOf, QuotaRow,
    Refusal, Reply, Resized, Status, TakeBucket, TakeTimes,
};
pub use request::{FillChange, Give, Request, Resize, StatusQuery, Take};
pub use words::{Label, LeaseId, PageSize, RefusalCode};

/// The version both ends speak: field `v` of every message.
pub const VERSION: u64 = 2;

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/firstlight/pool.sock";

/// Largest request, in bytes.
pub const MOST_REQUEST_BYTES: usize = 4096;

/// Largest reply, in bytes.
pub const MOST_REPLY_BYTES: usize = 128 << 10;

/// Most rows of each kind in one [`Status`]; the rest is asked for again.
pub const MOST_STATUS_ROWS: usize = 200;

/// Most rows of quotas in one [`Status`]: the path of a cgroup is long.
pub const MOST_QUOTA_ROWS: usize = 50;

/// Most rows of grants in one.
pub const MOST_GRANT_ROWS: usize = 50;

/// Most characters of an account's name in one.
pub const MOST_QUOTA_NAME: usize = 200;

/// Largest number in a message: what every JSON reader holds exactly.
pub const MOST_NUMBER: u64 = (1 << 53) - 1;

/// Descriptors in the reply to `take`: the memory, then the lease pipe.
pub const TAKE_DESCRIPTORS: usize = 2;
