//! What the daemon answers.

use super::body::{bounded, fields, object, shown};
use super::{
    GrantId, GrantRow, Granted, Label, LeaseId, MOST_GRANT_ROWS, MOST_QUOTA_ROWS, MOST_REPLY_BYTES,
    MOST_STATUS_ROWS, MessageError, PageSize, RefusalCode, Revoked, VERSION,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// One answer. On the wire `op` repeats what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `take`; the two descriptors come with it.
    Take(Lease),
    /// To `give`: the lease has ended.
    Give,
    /// To `status`.
    Status(Box<Status>),
    /// To `resize`.
    Resize(Resized),
    /// To `fill`.
    Fill(Filling),
    /// To `drain`.
    Drain(Drained),
    /// To `grant`.
    Grant(Granted),
    /// To `revoke`.
    Revoke(Revoked),
    /// It was not done.
    Refused(Refusal),
}

/// Memory allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lease {
    /// Its name, for `give`.
    pub lease: LeaseId,
    /// Bytes of the file: at least as many as asked for.
    pub bytes: u64,
    /// What backs it.
    pub page: PageSize,
    /// The node it lies on; `None` where it was not bound.
    pub node: Option<u32>,
    /// What the address of a mapping must be a multiple of.
    pub align_bytes: u64,
    /// Bytes that were zeroed only now, while the client waited.
    pub topped_up_bytes: u64,
}

/// What the daemon holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// Whether it allocates no more.
    pub draining: bool,
    /// One row for each pool: a page size, a node, a size of slab.
    pub pools: Vec<PoolRow>,
    /// Pools after the last row.
    pub more_pools: u32,
    /// One row for each lease the asker may see.
    pub leases: Vec<LeaseRow>,
    /// Leases after the last row.
    pub more_leases: u32,
    /// One row for each account with a limit or a charge, for the owner and observers.
    #[serde(default)]
    pub quotas: Vec<QuotaRow>,
    /// Accounts after the last row.
    #[serde(default)]
    pub more_quotas: u32,
    /// One row for each grant, for the owner and observers; its own for a client that came by one.
    #[serde(default)]
    pub grants: Vec<GrantRow>,
    /// Grants after the last row.
    #[serde(default)]
    pub more_grants: u32,
    /// What happened since it started.
    pub counters: Counters,
    /// The daemon's version.
    #[serde(default)]
    pub version: String,
    /// What else it holds now.
    #[serde(default)]
    pub gauges: Gauges,
}

/// What a daemon holds besides slabs and leases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gauges {
    /// Clients connected.
    pub connections: u32,
    /// Slabs that were emptied and that a revoked client still has open.
    pub revoked_slabs: u32,
    /// Bytes charged for these.
    pub revoked_bytes: u64,
    /// Bytes taken back that did not go back to the kernel: a process has them pinned, or reserved.
    pub pinned_bytes: u64,
    /// Allocated slabs that are still being zeroed for a client that waits: no lease has them yet.
    #[serde(default)]
    pub topping_up_slabs: u32,
    /// Whether filling pauses for memory pressure.
    pub paused: bool,
    /// How slabs are filled.
    #[serde(default)]
    pub fill: Option<Filling>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolRow {
    /// Its pages.
    pub page: PageSize,
    /// Its node; `None` where it is bound to none.
    pub node: Option<u32>,
    /// Bytes of a slab.
    pub size_class_bytes: u64,
    /// Slabs it is to keep.
    pub wanted_slabs: u32,
    /// Slabs to be had now.
    pub clean_slabs: u32,
    /// Slabs being zeroed, or waiting for it.
    pub filling_slabs: u32,
    /// Slabs allocated.
    pub allocated_slabs: u32,
    /// Slabs that an earlier daemon allocated and that were not found again; their leases
    /// are known, and end like any other.
    #[serde(default)]
    pub unknown_slabs: u32,
    /// Bytes zeroed and not allocated, those of slabs being filled among them.
    pub clean_bytes: u64,
    /// Bytes given back by clients that are not yet punched.
    pub dirty_bytes: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Bytes of these that guests gave back and that hold no memory now.
    #[serde(default)]
    pub hole_bytes: u64,
    /// Bytes put back into such holes since the daemon started.
    #[serde(default)]
    pub refilled_bytes: u64,
    /// Why it does not grow, in words; `None` while all is well.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// What a quota counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum QuotaOf {
    /// A user that a `[[quota]]` names.
    User,
    /// A group that one names.
    Group,
    /// A cgroup that one names.
    Cgroup,
    /// A member of the owner's group, by `quota` of `[access]`.
    Member,
}

impl fmt::Display for QuotaOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Cgroup => "cgroup",
            Self::Member => "member",
        })
    }
}

/// An account with a limit, or with a charge of a limit that is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuotaRow {
    /// What it counts.
    pub of: QuotaOf,
    /// Its number, or the path of a cgroup, the first [`MOST_QUOTA_NAME`](super::MOST_QUOTA_NAME) characters of it.
    pub name: String,
    /// Bytes it may hold; `None` where no limit is in force any more.
    pub most_bytes: Option<u64>,
    /// Bytes it is charged: what it holds and what it owes.
    pub charged_bytes: u64,
    /// Of these, bytes of leases.
    pub held_bytes: u64,
    /// Of these, bytes it gave back that can still be reached, or that no clean slab has replaced yet.
    pub owed_bytes: u64,
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseRow {
    /// Its name; `None` where the asker cannot end it by its name.
    pub lease: Option<LeaseId>,
    /// Bytes of the file.
    pub bytes: u64,
    /// What backs it.
    pub page: PageSize,
    /// The node it lies on; `None` where it was not bound.
    pub node: Option<u32>,
    /// The process that asked for it, which need not be the one that holds it.
    pub pid: u32,
    /// Whose it is.
    pub uid: u32,
    /// Milliseconds since it was allocated.
    pub age_ms: u64,
    /// What its client calls the guest; `None` where it said nothing, or the asker reads no name of this lease.
    #[serde(default)]
    pub label: Option<Label>,
    /// The grant that it was taken by; `None` where it was taken on the pool's own socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
}

/// What happened since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counters {
    /// `take` answered with memory.
    pub takes: u64,
    /// Of these, the ones that had to wait for some zeroing.
    pub top_ups: u64,
    /// Requests refused for quota or permission.
    pub denied: u64,
    /// Leases that ended.
    pub returns: u64,
    /// Requests for memory that got none, by cause.
    #[serde(default)]
    pub misses: Misses,
    /// Requests of all kinds.
    #[serde(default)]
    pub requests: u64,
    /// Connections closed because there were too many.
    #[serde(default)]
    pub turned_away: u64,
    /// Bytes zeroed, those of a slab once it is done.
    pub zeroed_bytes: u64,
    /// Of these, bytes that were zeroed twice: by the kernel and in place.
    #[serde(default)]
    pub zeroed_twice_bytes: u64,
    /// Time spent on it, summed over workers.
    pub zeroing_ns: u64,
    /// How long `take` took inside the daemon; `None` before the first.
    #[serde(default)]
    pub take_times: Option<TakeTimes>,
}

/// Requests for memory that got none, by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Misses {
    /// Nothing that fits was ready.
    pub empty: u64,
    /// No pool has such slabs at all.
    pub no_class: u64,
    /// A smaller slab could not be filled in the time given.
    pub top_up: u64,
    /// The client has as much as it may.
    pub quota: u64,
    /// The daemon is on its way out.
    pub draining: u64,
}

/// Of `take`, those that took at most so long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TakeBucket {
    /// The bound.
    pub most_ns: u64,
    /// How many, those of smaller bounds among them.
    pub count: u64,
}

/// How long `take` took inside the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TakeTimes {
    /// The p50.
    pub p50_ns: u64,
    /// The p99.
    pub p99_ns: u64,
    /// The slowest.
    pub max_ns: u64,
    /// How many there were.
    #[serde(default)]
    pub count: u64,
    /// All of them together.
    #[serde(default)]
    pub sum_ns: u64,
    /// How many took at most so long, by bounds that rise.
    #[serde(default)]
    pub buckets: Vec<TakeBucket>,
}

/// A pool with its new size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resized {
    /// Slabs it is to keep.
    pub slabs: u32,
    /// Slabs it was to keep.
    pub before_slabs: u32,
}

/// How slabs are filled from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Filling {
    /// Whether they are.
    pub on: bool,
    /// Bytes a second for each node; 0 is as fast as it goes.
    pub rate: u64,
}

/// The daemon allocates no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drained {
    /// Bytes that go back to the kernel.
    pub released_bytes: u64,
    /// Slabs still allocated, unknown ones among them; the daemon ends when they are back.
    pub allocated_slabs: u32,
}

/// It was not done, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people.
    pub message: String,
    /// When it is worth a new request; `None` where that is not known, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u32>,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after_ms: None,
        }
    }

    /// Says after how long a new request may be served.
    #[must_use]
    pub fn retry_after(self, retry_after_ms: Option<u32>) -> Self {
        Self {
            retry_after_ms,
            ..self
        }
    }
}

impl Reply {
    /// The message.
    ///
    /// # Errors
    /// More rows or text than a message may hold.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        match self {
            Self::Take(lease) => done("take", lease),
            Self::Give => done("give", &Nothing {}),
            Self::Status(status) => {
                rows(status)?;
                done("status", status)
            }
            Self::Resize(resized) => done("resize", resized),
            Self::Fill(filling) => done("fill", filling),
            Self::Drain(drained) => done("drain", drained),
            Self::Grant(granted) => done("grant", granted),
            Self::Revoke(revoked) => done("revoke", revoked),
            Self::Refused(refusal) => message(None, refusal),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let mut object = object(message, MOST_REPLY_BYTES)?;
        match object.remove("ok") {
            Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => return Ok(Self::Refused(fields("refusal", object)?)),
            seen => {
                let seen = shown(&seen.unwrap_or(Value::Null));
                return Err(MessageError::Field {
                    message: "reply",
                    text: format!("`ok` is {seen}, expected true or false"),
                });
            }
        }
        let operation = object.remove("op").unwrap_or(Value::Null);
        Ok(match operation.as_str() {
            Some("take") => Self::Take(fields("take", object)?),
            Some("give") => Self::Give,
            Some("status") => {
                let status = fields("status", object)?;
                rows(&status)?;
                Self::Status(Box::new(status))
            }
            Some("resize") => Self::Resize(fields("resize", object)?),
            Some("fill") => Self::Fill(fields("fill", object)?),
            Some("drain") => Self::Drain(fields("drain", object)?),
            Some("grant") => Self::Grant(fields("grant", object)?),
            Some("revoke") => Self::Revoke(fields("revoke", object)?),
            _ => return Err(MessageError::Operation(shown(&operation))),
        })
    }
}

fn rows(status: &Status) -> Result<(), MessageError> {
    for (name, rows, most) in [
        ("pools", status.pools.len(), MOST_STATUS_ROWS),
        ("leases", status.leases.len(), MOST_STATUS_ROWS),
        ("quotas", status.quotas.len(), MOST_QUOTA_ROWS),
        ("grants", status.grants.len(), MOST_GRANT_ROWS),
    ] {
        if rows > most {
            return Err(MessageError::Field {
                message: "status",
                text: format!("`{name}` has {rows} rows, expected at most {most}"),
            });
        }
    }
    Ok(())
}

/// A reply without fields.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Nothing {}

fn done(operation: &'static str, fields: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    message(Some(operation), fields)
}

fn message(
    operation: Option<&'static str>,
    fields: &impl Serialize,
) -> Result<Vec<u8>, MessageError> {
    #[derive(Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    struct Message<'f, F> {
        v: u64,
        ok: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        op: Option<&'static str>,
        #[serde(flatten)]
        fields: &'f F,
    }
    let message = Message {
        v: VERSION,
        ok: operation.is_some(),
        op: operation,
        fields,
    };
    bounded(&message, operation.unwrap_or("refusal"), MOST_REPLY_BYTES)
}
