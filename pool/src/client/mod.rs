//! A client's side of the protocol: one method for each request.
//!
//! A [`Client`] is one connection. [`Client::take`] returns an [`Allocated`]:
//! the memory and its lease pipe, both close-on-exec until the client decides
//! which processes inherit them. What the daemon says is checked like anything from
//! outside: a file smaller than promised is an error here, not a crash later.

mod error;
mod place;
mod settings;

pub use error::ClientError;
pub use settings::{Emulator, SETTINGS, Settings};

use crate::config::ConfigError;
use crate::os::owner;
use crate::os::peer::Credentials;
use crate::protocol::{
    Drained, FillChange, Filling, Give, GrantId, GrantRequest, Granted, Lease, LeaseId,
    MOST_REPLY_BYTES, RefusalCode, Reply, Request, Resize, Resized, Revoke, Revoked, Status,
    StatusQuery, TAKE_DESCRIPTORS, Take, packet,
};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::env;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The variable that names the daemon's socket.
pub const SOCKET_VARIABLE: &str = "FIRSTLIGHT_POOL";

/// How long an answer may take, what the daemon may spend on zeroing not counted.
const PATIENCE: Duration = Duration::from_secs(10);

/// Rows of a status that are asked for in all; a daemon has fewer.
const MOST_ROWS: usize = 1 << 20;

/// Where the daemon listens: what `FIRSTLIGHT_POOL` says, else this machine's [`SETTINGS`].
///
/// # Errors
/// What is wrong with the settings.
pub fn default_socket() -> Result<PathBuf, ConfigError> {
    match env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty()) {
        Some(name) => Ok(name.into()),
        None => Ok(Settings::read(Path::new(SETTINGS))?.socket),
    }
}

/// Memory allocated.
#[derive(Debug)]
pub struct Allocated {
    /// What the daemon says about it.
    pub lease: Lease,
    /// The file: to be mapped shared, or named `/proc/self/fd/N`.
    pub memory: OwnedFd,
    /// The lease ends when all copies of this are closed.
    pub lease_pipe: OwnedFd,
}

/// The user that listens at a socket.
struct Server(u32);

impl Server {
    /// Whether it may listen wherever it likes.
    fn is_trusted(&self) -> bool {
        self.0 == 0 || self.0 == owner::us() || owner::unmapped() == Some(self.0)
    }
}

/// A connection to the daemon.
///
/// ```no_run
/// use firstlight_pool::client::{Client, default_socket};
/// use firstlight_pool::protocol::Take;
///
/// let mut pool = Client::connect(&default_socket()?)?;
/// let take = Take { bytes: 8 << 30, node: None, page: None, max_topup_ms: 0, topup_if_faster: false, label: None };
/// let allocated = pool.take(take)?;
/// assert!(allocated.lease.bytes >= 8 << 30);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// Where it is connected to, if that is known.
    path: Option<PathBuf>,
    /// By which it is connected, where another user listens.
    folder: Option<OwnedFd>,
    /// When all is to be answered.
    until: Option<Instant>,
}

impl Client {
    /// Connects to the daemon that listens on `socket`.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] where none does.
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        Self::connect_within(socket, None)
    }

    /// Connects to the daemon that listens on `socket`; what it has not answered by `until` fails.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] where none does.
    pub fn connect_until(socket: &Path, until: Instant) -> Result<Self, ClientError> {
        Self::connect_within(socket, Some(until))
    }

    fn connect_within(socket: &Path, until: Option<Instant>) -> Result<Self, ClientError> {
        let no_daemon = |error: Errno| ClientError::NoDaemon {
            socket: socket.into(),
            error: error.into(),
        };
        let end = || -> Result<Self, ClientError> {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
            let end = socket_with(AddressFamily::UNIX, kind, flags, None).map_err(no_daemon)?;
            let end = Self {
                until,
                path: Some(socket.into()),
                ..Self::new(end)
            };
            // A daemon that no longer accepts must not keep a VMM from starting.
            end.wait_at_most(Timeout::Send, PATIENCE)?;
            Ok(end)
        };
        let address = SocketAddrUnix::new(socket).map_err(no_daemon)?;
        let plainly = || {
            let client = end()?;
            connect(&client.socket, &address).map_err(no_daemon)?;
            Ok(client)
        };
        let client = plainly()?;
        if client.server()?.is_trusted() {
            return Ok(client);
        }
        // Another user's is judged by its folder. One connection at a time: a user has so many.
        drop(client);
        let mut client = end()?;
        match place::connect_through(socket, &client.socket) {
            Ok(folder) => {
                client.folder = Some(folder);
                Ok(client)
            }
            // Without a `/proc` that is for us.
            Err(
                Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG,
            ) => plainly(),
            Err(error) => Err(no_daemon(error)),
        }
    }

    /// Speaks over a connected socket, whichever user listens at the other end.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            path: None,
            folder: None,
            until: None,
        }
    }

    /// Refuses a socket that another user may have put in the place of the daemon's: in `/tmp` its name is free while no
    /// daemon runs. [`Client::take`] and [`Client::grant`] do so.
    ///
    /// # Errors
    /// [`ClientError::Stranger`].
    pub fn check_server(&self) -> Result<(), ClientError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let server = self.server()?;
        let held = self.folder.as_ref();
        if server.is_trusted() || held.is_some_and(|held| place::is_for(held, path, server.0)) {
            return Ok(());
        }
        Err(ClientError::Stranger {
            socket: path.clone(),
            user: server.0,
            us: owner::us(),
        })
    }

    fn server(&self) -> Result<Server, ClientError> {
        let server = Credentials::of(&self.socket).map_err(ClientError::Io)?;
        Ok(Server(server.uid))
    }

    /// Allocates memory; without its label from a daemon that knows of none.
    ///
    /// # Errors
    /// [`ClientError::Stranger`] where no memory is to be taken; the daemon's refusal, or what is wrong with its answer.
    pub fn take(&mut self, mut take: Take) -> Result<Allocated, ClientError> {
        self.check_server()?;
        let asked_bytes = take.bytes;
        let patience = PATIENCE + Duration::from_millis(take.max_topup_ms.into());
        let mut asked = self.ask(&Request::Take(take.clone()), TAKE_DESCRIPTORS, patience);
        if let Err(ClientError::Refused(refusal)) = &asked
            && refusal.code == RefusalCode::BadRequest
            && take.label.take().is_some()
        {
            asked = self.ask(&Request::Take(take), TAKE_DESCRIPTORS, patience);
        }
        let (reply, descriptors) = asked?;
        let Reply::Take(lease) = reply else {
            return Err(ClientError::unexpected("take", &reply));
        };
        let [memory, lease_pipe]: [OwnedFd; TAKE_DESCRIPTORS] =
            descriptors.try_into().map_err(|came: Vec<_>| {
                ClientError::Answer(format!(
                    "lease {} came with {} descriptors, expected the memory and the lease pipe",
                    lease.lease,
                    came.len()
                ))
            })?;
        let file = fstat(&memory).map_err(|error| ClientError::Io(error.into()))?;
        let file_bytes = u64::try_from(file.st_size).unwrap_or(0);
        if lease.bytes < asked_bytes || file_bytes < lease.bytes {
            return Err(ClientError::Answer(format!(
                "lease {} of {} bytes is a file of {file_bytes} bytes, {asked_bytes} were asked for",
                lease.lease, lease.bytes
            )));
        }
        Ok(Allocated {
            lease,
            memory,
            lease_pipe,
        })
    }

    /// Ends a lease that was taken on this connection; as root or the daemon's user, any. Who holds a copy of a
    /// lease pipe ends that lease by writing to it.
    ///
    /// # Errors
    /// The daemon's refusal, or what is wrong with its answer.
    pub fn give(&mut self, lease: LeaseId) -> Result<(), ClientError> {
        match self.plain(&Request::Give(Give { lease }))? {
            Reply::Give => Ok(()),
            other => Err(ClientError::unexpected("give", &other)),
        }
    }

    /// All the daemon tells, however many answers that takes.
    ///
    /// # Errors
    /// The daemon's refusal, or what is wrong with its answer.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        let mut whole = self.status_part(&Status::default())?;
        while [
            whole.more_pools,
            whole.more_leases,
            whole.more_quotas,
            whole.more_grants,
        ]
        .iter()
        .any(|more| *more > 0)
        {
            let part = self.status_part(&whole)?;
            let came = rows(&part);
            whole.pools.extend(part.pools);
            whole.leases.extend(part.leases);
            whole.quotas.extend(part.quotas);
            whole.grants.extend(part.grants);
            whole.more_pools = part.more_pools;
            whole.more_leases = part.more_leases;
            whole.more_quotas = part.more_quotas;
            whole.more_grants = part.more_grants;
            if came == 0 || rows(&whole) > MOST_ROWS {
                return Err(ClientError::Answer(format!(
                    "a status without end: {} pools, {} leases, {} quotas and {} grants, and still more",
                    whole.pools.len(),
                    whole.leases.len(),
                    whole.quotas.len(),
                    whole.grants.len()
                )));
            }
        }
        Ok(whole)
    }

    /// What comes behind the rows that are there.
    fn status_part(&mut self, before: &Status) -> Result<Status, ClientError> {
        let rows = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let query = StatusQuery {
            skip_pools: rows(before.pools.len()),
            skip_leases: rows(before.leases.len()),
            skip_quotas: rows(before.quotas.len()),
            skip_grants: rows(before.grants.len()),
        };
        match self.plain(&Request::Status(query))? {
            Reply::Status(status) => Ok(*status),
            other => Err(ClientError::unexpected("status", &other)),
        }
    }

    /// Changes how many slabs a pool is to keep.
    ///
    /// # Errors
    /// The daemon's refusal, or what is wrong with its answer.
    pub fn resize(&mut self, resize: Resize) -> Result<Resized, ClientError> {
        match self.plain(&Request::Resize(resize))? {
            Reply::Resize(resized) => Ok(resized),
            other => Err(ClientError::unexpected("resize", &other)),
        }
    }

    /// Changes how slabs are filled.
    ///
    /// # Errors
    /// The daemon's refusal, or what is wrong with its answer.
    pub fn fill(&mut self, change: FillChange) -> Result<Filling, ClientError> {
        match self.plain(&Request::Fill(change))? {
            Reply::Fill(filling) => Ok(filling),
            other => Err(ClientError::unexpected("fill", &other)),
        }
    }

    /// Asks the daemon to allocate no more and to give back what is not allocated.
    ///
    /// # Errors
    /// The daemon's refusal, or what is wrong with its answer.
    pub fn drain(&mut self) -> Result<Drained, ClientError> {
        match self.plain(&Request::Drain)? {
            Reply::Drain(drained) => Ok(drained),
            other => Err(ClientError::unexpected("drain", &other)),
        }
    }

    /// Has a socket made that serves slabs of one class: as root or the daemon's user.
    ///
    /// # Errors
    /// [`ClientError::Stranger`] where memory is not to be taken either; the daemon's refusal, or what is wrong with its
    /// answer.
    pub fn grant(&mut self, grant: GrantRequest) -> Result<Granted, ClientError> {
        self.check_server()?;
        match self.plain(&Request::Grant(grant))? {
            Reply::Grant(granted) => Ok(granted),
            other => Err(ClientError::unexpected("grant", &other)),
        }
    }

    /// Ends a grant: as root or the daemon's user. Leases of slabs that were taken by it go on until they end.
    ///
    /// # Errors
    /// The daemon's refusal, or what is wrong with its answer.
    pub fn revoke(&mut self, grant: GrantId) -> Result<Revoked, ClientError> {
        match self.plain(&Request::Revoke(Revoke { grant }))? {
            Reply::Revoke(revoked) => Ok(revoked),
            other => Err(ClientError::unexpected("revoke", &other)),
        }
    }

    fn plain(&mut self, request: &Request) -> Result<Reply, ClientError> {
        Ok(self.ask(request, 0, PATIENCE)?.0)
    }

    fn ask(
        &mut self,
        request: &Request,
        most_descriptors: usize,
        patience: Duration,
    ) -> Result<(Reply, Vec<OwnedFd>), ClientError> {
        let message = request.encode()?;
        self.wait_at_most(Timeout::Send, patience)?;
        let sent = packet::send(&self.socket, &message, &[]).map_err(ClientError::from_send);
        match sent {
            // A daemon that closes a connection says why first.
            Ok(()) | Err(ClientError::Closed) => {}
            Err(error) => return Err(error),
        }
        self.wait_at_most(Timeout::Recv, patience)?;
        let packet = packet::receive(&self.socket, MOST_REPLY_BYTES, most_descriptors)?;
        match Reply::decode(&packet.message)? {
            Reply::Refused(refusal) => Err(ClientError::Refused(refusal)),
            reply => Ok((reply, packet.descriptors)),
        }
    }

    fn wait_at_most(&self, direction: Timeout, patience: Duration) -> Result<(), ClientError> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let patience = self
            .until
            .map_or(patience, |until| patience.min(left(until)));
        if patience.is_zero() {
            return Err(ClientError::Silent);
        }
        set_socket_timeout(&self.socket, direction, Some(patience))
            .map_err(|error| ClientError::Io(error.into()))
    }
}

/// Rows of all kinds.
fn rows(status: &Status) -> usize {
    status.pools.len() + status.leases.len() + status.quotas.len() + status.grants.len()
}
