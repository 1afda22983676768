//! The shape of the configuration file, and what holds where it says nothing.

use super::origin::Origin;
use super::{Cpus, Size};
use crate::protocol::{DEFAULT_SOCKET, PageSize};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected};
use std::path::PathBuf;
use toml::Spanned;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where clients connect.
    pub socket: Spanned<PathBuf>,
    /// The daemon's own folder: its lock, the journal of leases, their pipes.
    pub directory: Spanned<PathBuf>,
    /// Whether clean slabs in named files stay when the daemon is stopped.
    pub keep_on_stop: bool,
    /// Which users may allocate.
    pub access: Access,
    /// How fast memory is zeroed.
    pub fill: Fill,
    /// What one client may cost.
    pub limits: Limits,
    /// The pools.
    pub class: Vec<Class>,
    /// What others than the owner's group may hold.
    pub quota: Vec<Quota>,
    /// For messages.
    #[serde(skip)]
    pub(super) origin: Origin,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: Spanned::new(0..0, DEFAULT_SOCKET.into()),
            directory: Spanned::new(0..0, "/run/firstlight/pool".into()),
            keep_on_stop: false,
            access: Access::default(),
            fill: Fill::default(),
            limits: Limits::default(),
            class: Vec::new(),
            quota: Vec::new(),
            origin: Origin::default(),
        }
    }
}

/// Which users may allocate besides root and the daemon's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Members of this group; name or number.
    pub group: Option<Spanned<String>>,
    /// What each member may hold; no limit when absent.
    pub quota: Option<Size>,
    /// Members of this group may see everything and do nothing; name or number.
    pub observers: Option<Spanned<String>>,
}

/// How fast memory is zeroed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fill {
    /// Bytes a second for each node; 0 is as fast as it goes.
    pub rate: Size,
    /// CPUs that filling may use; when absent those of the node that is filled.
    pub cpus: Option<Spanned<Cpus>>,
    /// Fill with ordinary threads of this weight, 0 to 19; when absent, filling uses only
    /// time that CPUs have nothing else to do in.
    pub nice: Option<Spanned<u8>>,
    /// Bytes the kernel is asked for at once.
    pub batch: Spanned<Size>,
    /// Percent of the last ten seconds tasks waited for memory, from which
    /// on filling pauses, up to 100; 0 never pauses.
    pub pause_at_pressure: Spanned<u8>,
    /// Bytes a second that are put back where guests gave memory back, over all
    /// nodes and beside `rate`; 0 is as fast as it goes.
    pub refill_rate: Size,
    /// Seconds that memory was given back for before some is put back.
    pub refill_after_s: u32,
}

impl Default for Fill {
    fn default() -> Self {
        Self {
            rate: Size::new(2 << 30),
            cpus: None,
            nice: None,
            batch: Spanned::new(0..0, Size::new(32 << 20)),
            pause_at_pressure: Spanned::new(0..0, 10),
            refill_rate: Size::new(256 << 20),
            refill_after_s: 10,
        }
    }
}

/// What one client may cost.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at the same time, one in sixteen of them for root and the daemon's user.
    #[serde(deserialize_with = "positive")]
    pub connections: u32,
    /// Of these, by one user; root and the daemon's user may have more.
    #[serde(deserialize_with = "positive")]
    pub connections_per_user: u32,
    /// Seconds without a request after which a connection without a lease is closed.
    #[serde(deserialize_with = "positive")]
    pub idle_s: u32,
    /// Seconds a client may leave a reply unread.
    #[serde(deserialize_with = "positive")]
    pub unread_s: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_user: 256,
            idle_s: 60,
            unread_s: 10,
        }
    }
}

/// A page size, by its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Page(pub PageSize);

/// Slabs of one size, on one node, of one page size.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// What backs them: `2M`, `1G`, `thp`.
    #[serde(default = "two_megabytes")]
    pub page: Page,
    /// Bytes of a slab.
    pub size: Spanned<Size>,
    /// How many to keep, allocated ones among them.
    pub slabs: u32,
    /// Of slabs that are clean, how many to keep while the machine is short of memory;
    /// all when absent.
    #[serde(default)]
    pub keep_under_pressure: Option<u32>,
    /// The node they lie on; pages of all nodes in turn when absent.
    #[serde(default)]
    pub node: Option<Spanned<u32>>,
    /// Where their files come from.
    #[serde(default)]
    pub source: Source,
    /// Whether clients trust each other: a slab that comes back may then be
    /// zeroed in place and allocated again.
    #[serde(default)]
    pub trusted: bool,
    /// Of what a guest gives back while it runs, how much to keep ready for it;
    /// nothing when absent.
    #[serde(default)]
    pub refill: Option<Spanned<Size>>,
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from)?;
    if number == 0 {
        return Err(Error::invalid_value(Unexpected::Unsigned(0), &"1 or more"));
    }
    Ok(number)
}

const fn two_megabytes() -> Page {
    Page(PageSize::Huge)
}

/// Where the files of slabs come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A mount where the daemon may make one, files without a name where not.
    #[default]
    Auto,
    /// A mount of its own for each slab, which counts what a client has pinned of it.
    Mount,
    /// Files without a name, sealed before they are allocated.
    Memfd,
}

/// What a user, a group or a cgroup may hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// This user, by number.
    pub uid: Option<u32>,
    /// Members of this group together; name or number.
    pub group: Option<Spanned<String>>,
    /// Processes of this cgroup and those below it together.
    pub cgroup: Option<Spanned<String>>,
    /// Bytes at the same time, those a revoked client can still reach counted in.
    pub bytes: Spanned<Size>,
}
