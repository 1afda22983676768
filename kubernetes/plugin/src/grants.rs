//! That a device is one pod's: a grant of the daemon for it, mounted into the pod's container.
//!
//! Grants are in the daemon's journal and are the only state there is, so that a plugin that was killed has forgotten
//! nothing: the label of one begins with its device and goes on with its pod or claim. A pod that is admitted gets a
//! device, by `Allocate`, which ends every grant of it; the first start of its container makes another one. So none is
//! ever two pods'. A container that starts again has the same grant, and with it the slab it is still charged for. A claim
//! has its grants from when it is prepared until it is no more.
//!
//! kubelet remembers the mount for as long as the pod lives, so it is of a link with the device's name, which points to
//! the folder of the grant of the moment. A claim's links are its own: what a container has of a claim before never
//! becomes another's grant.

use crate::class::Slot;
use crate::devices;
use crate::label::{self, ClaimKey, Held, Owner};
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::os::folder;
use firstlight_pool::protocol::{GrantId, GrantRequest, RefusalCode, Status as PoolStatus};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long one connection to the daemon may take in all.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a daemon that is gone is waited for: a new one is there in about a second.
const AWAY: Duration = Duration::from_secs(10);

/// Why a device is not a pod's. A pod's events show it.
#[derive(Debug)]
pub enum GrantError {
    /// What the daemon says, or that none does.
    Pool(ClientError),
    /// The device's slab is kept no more.
    NotKept(Slot),
    /// The link to a grant's folder.
    Link(PathBuf, io::Error),
}

impl fmt::Display for GrantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => write!(f, "{error}"),
            Self::NotKept(slot) => write!(
                f,
                "the pool keeps no slab for device {} of {} any more: its configuration has changed",
                slot.device,
                slot.class.resource()
            ),
            Self::Link(path, error) => {
                write!(
                    f,
                    "cannot make the link {} to a grant: {error}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for GrantError {}

impl From<ClientError> for GrantError {
    fn from(error: ClientError) -> Self {
        Self::Pool(error)
    }
}

/// The daemon's grants for devices.
#[derive(Debug, Clone)]
pub struct Grants {
    places: Arc<Places>,
    /// One change after the other: each begins with what there is.
    one: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct Places {
    socket: PathBuf,
    links: PathBuf,
}

impl Grants {
    /// Those of the daemon at `socket`, with links in the folder `links`.
    #[must_use]
    pub fn new(socket: &Path, links: &Path) -> Self {
        Self {
            places: Arc::new(Places {
                socket: socket.into(),
                links: links.into(),
            }),
            one: Arc::new(Mutex::new(())),
        }
    }

    /// What the daemon has.
    ///
    /// # Errors
    /// Why it doesn't say so.
    pub async fn status(&self) -> Result<PoolStatus, GrantError> {
        let places = Arc::clone(&self.places);
        blocking(move || Ok(places.connect()?.status()?)).await
    }

    /// Where a device's folder is, as it is mounted: of a claim, where it is for one.
    #[must_use]
    pub fn link(&self, slot: &Slot, claim: Option<ClaimKey>) -> PathBuf {
        self.places.link(slot, claim)
    }

    /// A claim without grants has no links either.
    ///
    /// # Errors
    /// Why they are still there.
    pub fn unlink(&self, claim: ClaimKey) -> Result<(), GrantError> {
        let folder = self.places.folder(claim);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(GrantError::Link(folder, error))
            }
            _ => Ok(()),
        }
    }

    /// No pod has such devices any more.
    ///
    /// # Errors
    /// Why they are not free.
    pub async fn release(
        &self,
        is_such: impl Fn(&Held) -> bool + Send + 'static,
    ) -> Result<Vec<GrantId>, GrantError> {
        // Also where the caller does not wait for it any more.
        let one = Arc::clone(&self.one).lock_owned().await;
        let places = Arc::clone(&self.places);
        blocking(move || {
            let _one = one;
            places.while_away(|| places.release(&is_such))
        })
        .await
    }

    /// A container is about to start with these devices.
    ///
    /// # Errors
    /// Why it has them not.
    pub async fn hold(&self, slots: Vec<Slot>, owner: Owner) -> Result<(), GrantError> {
        let one = Arc::clone(&self.one).lock_owned().await;
        let places = Arc::clone(&self.places);
        blocking(move || {
            let _one = one;
            places.while_away(|| {
                let mut slots = slots.iter();
                slots.try_for_each(|slot| places.hold(slot, &owner))
            })
        })
        .await
    }
}

impl Places {
    fn connect(&self) -> Result<Client, ClientError> {
        let pool = Client::connect_until(&self.socket, Instant::now() + PATIENCE)?;
        // What it says that there is, is mounted.
        pool.check_server()?;
        Ok(pool)
    }

    fn link(&self, slot: &Slot, claim: Option<ClaimKey>) -> PathBuf {
        match claim {
            Some(claim) => self.folder(claim).join(slot.name()),
            None => self
                .links
                .join(slot.class.to_string())
                .join(slot.device.to_string()),
        }
    }

    /// Where a claim's links are. No class has the name.
    fn folder(&self, claim: ClaimKey) -> PathBuf {
        self.links.join("claims").join(claim.to_string())
    }

    /// Does it again while there is no daemon, it is busy, or it ends in between: each time it begins with what there is.
    fn while_away<T>(&self, act: impl Fn() -> Result<T, GrantError>) -> Result<T, GrantError> {
        let until = Instant::now() + AWAY;
        loop {
            let done = act();
            let is_away = match &done {
                Err(GrantError::Pool(error)) => match error {
                    ClientError::NoDaemon { .. } | ClientError::Closed | ClientError::Silent => {
                        true
                    }
                    ClientError::Refused(refusal) => refusal.code == RefusalCode::Busy,
                    _ => false,
                },
                _ => false,
            };
            if !is_away || Instant::now() >= until {
                return done;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn release(&self, is_such: &impl Fn(&Held) -> bool) -> Result<Vec<GrantId>, GrantError> {
        let mut pool = self.connect()?;
        let mut ended = Vec::new();
        for row in pool.status()?.grants {
            if let Some(held) = label::of_grant(&row).filter(is_such) {
                self.end(&mut pool, row.grant, &held)?;
                ended.push(row.grant);
            }
        }
        Ok(ended)
    }

    /// Ends a grant, if it has not ended: its link before it, so that a link that is there points to what is there.
    fn end(&self, pool: &mut Client, grant: GrantId, held: &Held) -> Result<(), GrantError> {
        let link = self.link(&held.slot, held.claim);
        match std::fs::remove_file(&link) {
            Err(error) if link.is_symlink() => return Err(GrantError::Link(link, error)),
            _ => {}
        }
        match pool.revoke(grant) {
            Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::UnknownGrant => {
                Ok(())
            }
            other => Ok(other.map(drop)?),
        }
    }

    fn hold(&self, slot: &Slot, owner: &Owner) -> Result<(), GrantError> {
        let mut pool = self.connect()?;
        let status = pool.status()?;
        let request = GrantRequest {
            page: slot.class.page,
            node: slot.device.node,
            size_class_bytes: slot.class.bytes,
            uses: 1,
            label: Some(label::of(slot, owner)),
        };
        let mut kept = None;
        for row in &status.grants {
            let Some(held) = label::of_grant(row).filter(|held| held.slot == *slot) else {
                continue;
            };
            if owner.is_known() && row.label == request.label && kept.is_none() {
                kept = Some(row.grant);
            } else {
                self.end(&mut pool, row.grant, &held)?;
            }
        }
        let folder = match kept {
            // As the daemon says when it makes one.
            Some(grant) => grant.folder(&self.socket),
            None => {
                if !devices::is_kept(&status, slot) {
                    return Err(GrantError::NotKept(*slot));
                }
                pool.grant(request)?.folder.into()
            }
        };
        let link = self.link(slot, owner.claim());
        self.point(&link, &folder)
            .map_err(|error| GrantError::Link(link, error))
    }

    /// Makes a link that points to a folder, in one step.
    fn point(&self, link: &Path, folder: &Path) -> io::Result<()> {
        if std::fs::read_link(link).is_ok_and(|there| there == folder) {
            return Ok(());
        }
        if let Some(parent) = link.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // One at a time, so that what a kill leaves is removed by the next.
        let new = self.links.join("new");
        let _ = std::fs::remove_file(&new);
        std::os::unix::fs::symlink(folder, &new)?;
        // A container runtime makes an empty folder of what it is to mount and is not there.
        let _ = std::fs::remove_dir(link);
        std::fs::rename(&new, link)
    }
}

/// That this is the only program that makes a pool's grants: two at once would each think of the other's that they are
/// left over.
#[derive(Debug)]
pub struct Alone {
    _locked: OwnedFd,
}

impl Alone {
    /// Is alone at a pool with links in this folder, until the value ends.
    ///
    /// # Errors
    /// That another one serves the pool, or why that isn't known.
    pub fn at(links: &Path) -> Result<Self, String> {
        let path = links.join("lock");
        // What mounts the links is root. A process that lists their folder keeps all waiting that change it.
        let opened = folder::make_private(links).and_then(|folder| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(openat(folder, "lock", flags, Mode::RUSR | Mode::WUSR)?)
        });
        let file = opened.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|error| match io::Error::from(error).kind() {
            io::ErrorKind::WouldBlock => format!(
                "another firstlight-kubernetes serves this pool: it holds {}",
                path.display()
            ),
            _ => format!("cannot lock {}: {error}", path.display()),
        })?;
        Ok(Self { _locked: file })
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, GrantError> + Send + 'static,
) -> Result<T, GrantError> {
    match tokio::task::spawn_blocking(act).await {
        Ok(done) => done,
        Err(error) => Err(GrantError::Pool(ClientError::Io(io::Error::other(error)))),
    }
}
