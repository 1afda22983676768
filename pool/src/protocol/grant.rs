//! Grants: rights to slabs of one class. A right is held by reaching the grant's socket, whichever user that is.

use super::{Label, PageSize};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most grants at once.
pub const MOST_GRANTS: usize = 256;

/// The daemon's name for a grant, and for its folder.
///
/// ```
/// use firstlight_pool::protocol::GrantId;
/// let grant: GrantId = "grant-00000abc-17".parse()?;
/// assert_eq!(grant.number, 17);
/// assert!("grant-00000abc-017".parse::<GrantId>().is_err());
/// let folder = grant.folder("/run/firstlight/pool.sock".as_ref());
/// assert_eq!(folder.to_str(), Some("/run/firstlight/grants/grant-00000abc-17/mount"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct GrantId {
    /// What names of this pool's leases and grants have in common.
    pub prefix: u32,
    /// Which of them.
    pub number: u64,
}

impl GrantId {
    /// The folder of all grants, beside the pool's socket.
    pub(crate) const ALL: &str = "grants";
    /// The folder in a grant's own that its holder has: what that one lists is no entry of the folder of all.
    pub(crate) const MOUNT: &str = "mount";

    /// The folder to mount, of a daemon at this socket.
    #[must_use]
    pub fn folder(self, socket: &Path) -> PathBuf {
        let all = socket.with_file_name(Self::ALL);
        all.join(self.to_string()).join(Self::MOUNT)
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("grant-{:08x}-{}", self.prefix, self.number))
    }
}

impl FromStr for GrantId {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let parts = name.strip_prefix("grant-").and_then(|rest| {
            let (prefix, number) = rest.split_once('-')?;
            let prefix = u32::from_str_radix(prefix, 16).ok()?;
            let number = number.parse().ok()?;
            Some(Self { prefix, number })
        });
        // Compared as a whole, so that a grant has one name only.
        let id = parts.filter(|id| id.to_string() == name);
        id.ok_or_else(|| "no grant has this name; expected one such as grant-00000abc-17".into())
    }
}

impl TryFrom<String> for GrantId {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<GrantId> for String {
    fn from(id: GrantId) -> Self {
        id.to_string()
    }
}

/// `grant`: a socket of its own that serves so many slabs of a class, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    /// Which pool: its pages.
    pub page: PageSize,
    /// Which pool: its node, `None` where it is bound to none.
    #[serde(default)]
    pub node: Option<u32>,
    /// Which pool: bytes of a slab.
    pub size_class_bytes: u64,
    /// Slabs that may be out at the same time.
    pub uses: u32,
    /// What it is called in `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

/// A grant that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Granted {
    /// Its name, for `revoke`.
    pub grant: GrantId,
    /// Its folder: to reach what is in it is the right. It ends with this folder.
    pub folder: String,
    /// The socket in it, for `FIRSTLIGHT_POOL`.
    pub socket: String,
}

/// `revoke`: ends a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// Which.
    pub grant: GrantId,
}

/// A grant that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Revoked {
    /// Slabs that were taken by it and are out: their leases go on until they end.
    pub held_slabs: u32,
}

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantRow {
    /// Its name.
    pub grant: GrantId,
    /// What it is called.
    #[serde(default)]
    pub label: Option<Label>,
    /// Pages of its class.
    pub page: PageSize,
    /// The node of its class; `None` where that is bound to none.
    pub node: Option<u32>,
    /// Bytes of a slab of its class.
    pub size_class_bytes: u64,
    /// Slabs that may be out at the same time.
    pub uses: u32,
    /// Slabs that it is charged: those that are held, and those given back that can still be reached or that no clean
    /// slab has replaced yet.
    pub charged_slabs: u32,
    /// Of these, slabs of leases.
    pub held_slabs: u32,
}
