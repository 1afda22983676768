//! What a client asks for.

use super::body::{bounded, fields, object, shown};
use super::{
    GrantRequest, Label, LeaseId, MOST_NUMBER, MOST_REQUEST_BYTES, MessageError, PageSize, Revoke,
    VERSION,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One request.
///
/// ```
/// use firstlight_pool::protocol::{Request, Take};
/// let take = Request::Take(Take { bytes: 8 << 30, node: Some(1), page: None, max_topup_ms: 50, topup_if_faster: false, label: None });
/// let message = take.encode()?;
/// assert_eq!(Request::decode(&message)?, take);
/// # Ok::<(), firstlight_pool::protocol::MessageError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Allocate memory.
    Take(Take),
    /// End a lease that was taken on this connection, also while copies of its lease pipe are open.
    Give(Give),
    /// What do you hold?
    Status(StatusQuery),
    /// Keep more or fewer slabs of a size.
    Resize(Resize),
    /// Fill or stop filling, at this rate.
    Fill(FillChange),
    /// Allocate no more, give what is not allocated back to the kernel.
    Drain,
    /// Make a socket that serves slabs of one class.
    Grant(GrantRequest),
    /// End a grant.
    Revoke(Revoke),
}

/// `take`: memory of at least `bytes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Take {
    /// Bytes needed; the slab has as many or more.
    pub bytes: u64,
    /// From this node; from any when `None`.
    #[serde(default)]
    pub node: Option<u32>,
    /// Of this page size; of any when `None`.
    #[serde(default)]
    pub page: Option<PageSize>,
    /// Time the daemon may spend on filling what a smaller slab lacks.
    #[serde(default)]
    pub max_topup_ms: u32,
    /// Fill only where less than half of the bytes are missing: with more, memory
    /// that the kernel zeroes on the spot is as fast.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topup_if_faster: bool,
    /// What the client calls its guest; a daemon from before labels refuses the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

impl Take {
    /// So many bytes of any node and page size, of what is clean already.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self {
            bytes,
            node: None,
            page: None,
            max_topup_ms: 0,
            topup_if_faster: false,
            label: None,
        }
    }
}

/// `give`: ends a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Give {
    /// The lease.
    pub lease: LeaseId,
}

/// `status`: rows from the given ones on, so that long lists come in parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusQuery {
    /// Rows of pools to pass over.
    #[serde(default)]
    pub skip_pools: u32,
    /// Rows of leases to pass over.
    #[serde(default)]
    pub skip_leases: u32,
    /// Rows of quotas to pass over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip_quotas: u32,
    /// Rows of grants to pass over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip_grants: u32,
}

/// A daemon that has no such rows knows no such field.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(rows: &u32) -> bool {
    *rows == 0
}

/// `resize`: how many slabs of a size to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Which pool: its pages.
    pub page: PageSize,
    /// Which pool: its node, `None` where it is bound to none.
    #[serde(default)]
    pub node: Option<u32>,
    /// Which pool: bytes of a slab.
    pub size_class_bytes: u64,
    /// Slabs to keep, allocated ones among them.
    pub slabs: u32,
}

/// `fill`: how slabs are filled until the daemon is restarted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FillChange {
    /// Whether slabs are filled; as before when `None`.
    #[serde(default)]
    pub on: Option<bool>,
    /// Bytes a second for each node, 0 as fast as it goes; as before when `None`.
    #[serde(default)]
    pub rate: Option<u64>,
}

impl Request {
    /// The word of its `op`.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        match self {
            Self::Take(_) => "take",
            Self::Give(_) => "give",
            Self::Status(_) => "status",
            Self::Resize(_) => "resize",
            Self::Fill(_) => "fill",
            Self::Drain => "drain",
            Self::Grant(_) => "grant",
            Self::Revoke(_) => "revoke",
        }
    }

    /// The message.
    ///
    /// # Errors
    /// A number beyond [`MOST_NUMBER`].
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        self.check()?;
        let operation = self.operation();
        match self {
            Self::Take(take) => message(operation, take),
            Self::Give(give) => message(operation, give),
            Self::Status(query) => message(operation, query),
            Self::Resize(resize) => message(operation, resize),
            Self::Fill(change) => message(operation, change),
            Self::Drain => message(operation, &Nothing {}),
            Self::Grant(grant) => message(operation, grant),
            Self::Revoke(revoke) => message(operation, revoke),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it, in words for its sender.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let mut object = object(message, MOST_REQUEST_BYTES)?;
        let operation = object.remove("op").unwrap_or(Value::Null);
        let request = match operation.as_str() {
            Some("take") => Self::Take(fields("take", object)?),
            Some("give") => Self::Give(fields("give", object)?),
            Some("status") => Self::Status(fields("status", object)?),
            Some("resize") => Self::Resize(fields("resize", object)?),
            Some("fill") => Self::Fill(fields("fill", object)?),
            Some("drain") => fields::<Nothing>("drain", object).map(|_| Self::Drain)?,
            Some("grant") => Self::Grant(fields("grant", object)?),
            Some("revoke") => Self::Revoke(fields("revoke", object)?),
            _ => return Err(MessageError::Operation(shown(&operation))),
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), MessageError> {
        if let Self::Fill(FillChange {
            rate: Some(rate), ..
        }) = self
            && *rate > MOST_NUMBER
        {
            return Err(MessageError::Field {
                message: self.operation(),
                text: format!("`rate` is {rate}, expected 0 to {MOST_NUMBER}"),
            });
        }
        if let Self::Grant(GrantRequest { uses: 0, .. }) = self {
            return Err(MessageError::Field {
                message: self.operation(),
                text: "`uses` is 0, expected 1 or more".into(),
            });
        }
        let (name, bytes) = match self {
            Self::Take(take) => ("bytes", take.bytes),
            Self::Resize(resize) => ("size_class_bytes", resize.size_class_bytes),
            Self::Grant(grant) => ("size_class_bytes", grant.size_class_bytes),
            _ => return Ok(()),
        };
        if (1..=MOST_NUMBER).contains(&bytes) {
            return Ok(());
        }
        Err(MessageError::Field {
            message: self.operation(),
            text: format!("`{name}` is {bytes}, expected 1 to {MOST_NUMBER}"),
        })
    }
}

/// A request without fields.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn message(operation: &'static str, fields: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    #[derive(Serialize)]
    struct Message<'f, F> {
        v: u64,
        op: &'static str,
        #[serde(flatten)]
        fields: &'f F,
    }
    let message = Message {
        v: VERSION,
        op: operation,
        fields,
    };
    bounded(&message, operation, MOST_REQUEST_BYTES)
}
