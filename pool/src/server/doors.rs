//! Doors: for each grant a folder of its own with a socket in it.
//!
//! To reach the socket is the right. The folder `grants` beside the pool's socket, and in it one of each grant, are
//! passed by root and the daemon's user alone; where they mount the folder in that, `mount`, is theirs to decide. After a
//! restart there is another socket in the folder that is there: a mount of that folder shows it. A grant ends with its
//! folder, which a descriptor of it tells, whatever is at its name.
//!
//! A holder that may list its folder can keep all who change that waiting, for as long as it likes (root behind a
//! mount for reading, too). So in a folder that others may have, threads of their own make and remove sockets; and what
//! removes it has meanwhile, in the kernel, the lock of the folder that it lies in, which is the grant's alone.

use super::events::{Events, Theirs};
use super::listen::{Beside, accept, bind, name_of, serve};
use super::pool::Pool;
use super::start::most_grants;
use crate::lease::{Grant, Whose};
use crate::machine::{ConnectionId, Event};
use crate::os::folder;
use crate::os::threads::Threads;
use crate::protocol::{GrantId, Granted, MOST_GRANTS, Refusal, RefusalCode};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, chmod, fstat, openat, unlinkat};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// A grant's socket, and the folder that it lies in.
#[derive(Debug)]
struct Door {
    socket: OwnedFd,
    folder: OwnedFd,
}

/// Those of all grants.
#[derive(Debug)]
pub(super) struct Doors {
    /// That of the pool, beside which the folders are; none where it has no name in a folder.
    beside: Option<Beside>,
    /// The folder of all grants, held: a process that lists the pool's may keep waiting who looks up a name in it that the
    /// kernel does not have in memory.
    all: Option<Arc<OwnedFd>>,
    most: usize,
    open: BTreeMap<GrantId, Door>,
    /// Where their sockets wait for clients: the loop has one descriptor for all.
    queue: Events,
    /// Those that do not, while their grants have no turn.
    aside: BTreeSet<GrantId>,
    /// Grants that have ended, with connections to be closed yet.
    ended: Vec<GrantId>,
    threads: Arc<Threads>,
    /// Those that threads open, and what came of it.
    opening: BTreeSet<GrantId>,
    tell: Sender<Opened>,
    told: Receiver<Opened>,
}

type Opened = (GrantId, io::Result<Door>);

/// The name of the socket.
const SOCKET: &str = "pool.sock";

/// How long a daemon that starts waits for its doors: those that are held are opened later.
const AT_START: Duration = Duration::from_secs(1);

impl Doors {
    /// None yet, beside the pool's socket.
    pub(super) fn new(beside: Option<Beside>, threads: Arc<Threads>) -> io::Result<Self> {
        let (tell, told) = mpsc::channel();
        Ok(Self {
            threads,
            opening: BTreeSet::new(),
            tell,
            told,
            beside,
            all: None,
            most: most_grants(),
            open: BTreeMap::new(),
            queue: Events::new()?,
            aside: BTreeSet::new(),
            ended: Vec::new(),
        })
    }

    /// Readable while a client waits at one that is not set aside.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// The next at which one waits, of all in turn.
    pub(super) fn next(&self) -> Option<GrantId> {
        let event = self.queue.next().ok()??;
        let Theirs::Door(number) = event.source else {
            return None;
        };
        self.open.keys().copied().find(|id| id.number == number)
    }

    /// One is not waited at while its grant has no turn.
    pub(super) fn set_aside(&mut self, id: GrantId) {
        if self.aside.insert(id) {
            self.wait_at(id, false);
        }
    }

    /// Those whose grants have a turn again are waited at.
    pub(super) fn go_on(&mut self, is_aside: impl Fn(GrantId) -> bool) {
        let all = std::mem::take(&mut self.aside).into_iter();
        let (aside, again): (BTreeSet<_>, BTreeSet<_>) = all.partition(|id| is_aside(*id));
        self.aside = aside;
        for id in again {
            self.wait_at(id, true);
        }
    }

    fn wait_at(&self, id: GrantId, waits: bool) {
        if let Some(door) = self.open.get(&id) {
            let source = Theirs::Door(id.number);
            let _ = self.queue.change(source, &door.socket, waits, false);
        }
    }

    /// A connection that waits at one; `None` where there is none.
    pub(super) fn accept(&self, id: GrantId) -> io::Result<Option<OwnedFd>> {
        let door = self.open.get(&id);
        door.map_or(Ok(None), |door| accept(&door.socket))
    }

    /// Grants that have ended since this was last asked.
    pub(super) fn ended(&mut self) -> Vec<GrantId> {
        std::mem::take(&mut self.ended)
    }

    pub(super) fn is_open(&self, id: GrantId) -> bool {
        self.open.contains_key(&id)
    }

    /// The folder of all grants, closed to others, and made where there is none. One that is there is not made again: that
    /// would wait for a process that lists the folder of the socket.
    fn all(&mut self) -> io::Result<Arc<OwnedFd>> {
        let beside = self.beside_it()?;
        let name = Path::new(GrantId::ALL);
        // Of one that is held the name is known to the kernel.
        if let Some(held) = &self.all
            && folder::is_at(held, &beside.folder, name)
        {
            folder::close(held)?;
            return Ok(Arc::clone(held));
        }
        let found = match all(beside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder::make(&beside.folder, name, Mode::RWXU)
            }
            found => found,
        };
        let all = Arc::new(found?);
        self.all = Some(Arc::clone(&all));
        Ok(all)
    }

    fn beside_it(&self) -> io::Result<&Beside> {
        self.beside.as_ref().ok_or_else(|| {
            io::Error::other(
                "the pool's socket has no name in a folder, beside which grants would be",
            )
        })
    }

    /// Makes the folder of a new grant, with its socket.
    fn make(&mut self, id: GrantId) -> io::Result<PathBuf> {
        let all = self.all()?;
        let beside = self.beside_it()?;
        let name = id.to_string();
        let made = folder::make(&all, Path::new(&name), Mode::RWXU).and_then(|own| {
            folder::make(own, Path::new(GrantId::MOUNT), folder::PASSABLE)?;
            // No other process has it yet.
            open(&all, beside, id)
        });
        let path = id.folder(&beside.path);
        let opened = made.and_then(|door| self.wait_at_new(id, door));
        if opened.is_err() {
            let _ = remove(&all, &name);
        }
        opened.map(|()| path)
    }

    fn wait_at_new(&mut self, id: GrantId, door: Door) -> io::Result<()> {
        self.queue
            .add(Theirs::Door(id.number), &door.socket, true)?;
        self.aside.remove(&id);
        self.open.insert(id, door);
        Ok(())
    }

    /// Has a thread make the socket in the folder that is there, unless one does.
    fn open_soon(&mut self, id: GrantId) -> io::Result<()> {
        let beside = self.beside_it()?.clone();
        if !self.opening.insert(id) {
            return Ok(());
        }
        let tell = self.tell.clone();
        let open = move || {
            let opened = all(&beside).and_then(|all| open(&all, &beside, id));
            drop(tell.send((id, opened)));
        };
        self.threads.start_soon("door", open);
        Ok(())
    }

    /// What threads have opened, or could not; within `most`, if any still do.
    fn opened(&mut self, most: Duration) -> Vec<Opened> {
        let until = Instant::now() + most;
        let mut all = Vec::new();
        while !self.opening.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(opened) = self.told.recv_timeout(left) else {
                break;
            };
            self.opening.remove(&opened.0);
            all.push(opened);
        }
        all
    }

    /// Has a thread remove the folder of a grant that has ended.
    fn remove_soon(&self, id: GrantId) {
        let Some(beside) = self.beside.clone() else {
            return;
        };
        self.threads.start_soon("door", move || {
            let all = all(&beside);
            let _ = all.and_then(|all| remove(&all, &id.to_string()));
        });
    }

    /// Grants whose folders were removed.
    fn gone(&self) -> Vec<GrantId> {
        let is_gone = |door: &Door| fstat(&door.folder).is_ok_and(|stat| stat.st_nlink == 0);
        let gone = self.open.iter().filter(|(_, door)| is_gone(door));
        gone.map(|(id, _)| *id).collect()
    }

    /// Removes the folder of a grant that has ended, unless another put something into it; its socket, which the
    /// caller is to close.
    fn remove(&mut self, id: GrantId) -> Option<OwnedFd> {
        self.remove_soon(id);
        self.ended.push(id);
        let Door { socket, .. } = self.open.remove(&id)?;
        // It is closed later.
        let _ = self.queue.remove(&socket);
        self.aside.remove(&id);
        Some(socket)
    }

    /// Makes the folder of all grants, or closes it to others, and removes from it those of grants that there are not: a
    /// daemon was killed before it wrote one down, or after. Of another `prefix` they may be those of a daemon with another
    /// socket beside this one. At the start: what lists the folder that it lies in keeps all waiting that make something
    /// there.
    fn take_over(&mut self, known: &BTreeSet<GrantId>, prefix: u32) -> io::Result<()> {
        if self.beside.is_none() {
            return Ok(());
        }
        let all = self.all()?;
        // Listed by root and this user alone, so that none keeps it waiting.
        for entry in Dir::read_from(&all)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok();
            let id: Option<GrantId> = name.and_then(|name| name.parse().ok());
            let is_over = |id: &GrantId| id.prefix == prefix && !known.contains(id);
            if let Some(id) = id.filter(is_over) {
                self.remove_soon(id);
            }
        }
        Ok(())
    }

    /// Left to the next daemon, and closed with this process.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }
}

/// The folder of all grants, for a thread that no client waits for.
fn all(beside: &Beside) -> io::Result<OwnedFd> {
    folder::open_private(&beside.folder, Path::new(GrantId::ALL))
}

/// How the folder is opened that others may list.
const MOUNTED: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Makes the socket in a grant's folder, if no other user passes those above it.
fn open(all: &OwnedFd, beside: &Beside, id: GrantId) -> io::Result<Door> {
    let own = folder::open_private(all, Path::new(&id.to_string()))?;
    let folder = openat(own, GrantId::MOUNT, MOUNTED, Mode::empty())?;
    let socket = bind(&folder, &id.folder(&beside.path).join(SOCKET))?;
    open_to_all(&folder)?;
    serve(&socket)?;
    Ok(Door { socket, folder })
}

/// All that reach the socket in a folder may connect. By a descriptor: in a folder that is mounted somewhere for writing
/// another process may put a link to any file of the machine in its place.
fn open_to_all(folder: &OwnedFd) -> io::Result<()> {
    let socket = folder::open_socket(folder, Path::new(SOCKET))?;
    Ok(chmod(name_of(&socket), Mode::from_raw_mode(0o666))?)
}

/// Nothing of a grant's folders goes but the socket and, if they are empty then, the folders themselves.
fn remove(all: &OwnedFd, name: &str) -> io::Result<()> {
    let own = folder::open_private(all, Path::new(name))?;
    // Where an earlier version had it.
    let _ = unlinkat(&own, SOCKET, AtFlags::empty());
    if let Ok(folder) = openat(&own, GrantId::MOUNT, MOUNTED, Mode::empty()) {
        let _ = unlinkat(folder, SOCKET, AtFlags::empty());
    }
    match unlinkat(&own, GrantId::MOUNT, AtFlags::REMOVEDIR) {
        // Not while another thread waits for a holder in there, with the lock of the grant's own folder.
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(unlinkat(all, name, AtFlags::REMOVEDIR)?)
}

impl Pool {
    /// Makes a grant's socket, and writes the grant down.
    pub(super) fn open_grant(&mut self, from: ConnectionId, grant: Grant) -> Event {
        let opened = self.opened(&grant);
        Event::Granted {
            from,
            grant,
            opened,
        }
    }

    fn opened(&mut self, grant: &Grant) -> Result<Granted, Refusal> {
        let most = self.doors.most;
        if self.machine.grants().count() >= most {
            let text = format!(
                "there are {most} grants, and no more at once: revoke some{}",
                if most < MOST_GRANTS {
                    ", or let the daemon have more descriptors (LimitNOFILE=)"
                } else {
                    ""
                }
            );
            return Err(Refusal::new(RefusalCode::Quota, text));
        }
        let failed = |what: &str, error: io::Error| {
            Refusal::new(
                RefusalCode::Internal,
                format!("cannot {what} the grant: {error}"),
            )
        };
        let folder = self.doors.make(grant.id);
        let folder = folder.map_err(|error| failed("make the folder of", error))?;
        if let Err(error) = self.journal_mut().grant(grant.clone()) {
            self.close_door(grant.id);
            return Err(failed("write down", error));
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Ok(Granted {
            grant: grant.id,
            folder: text(&folder),
            socket: text(&folder.join(SOCKET)),
        })
    }

    /// A grant has ended. Its connections are the server's to close.
    pub(super) fn close_grant(&mut self, id: GrantId) {
        // Not written now, it is at a tick; until then the next daemon finds no folder, unless another put a file there.
        let _ = self.journal_mut().end_grant(id);
        self.close_door(id);
    }

    fn close_door(&mut self, id: GrantId) {
        if let Some(socket) = self.doors.remove(id) {
            // Messages that wait in it go with it.
            self.closer.close_sent(Whose::Grant(id), socket);
        }
    }

    /// Takes up the grants of an earlier daemon whose folders are there.
    pub(super) fn restore_grants(&mut self, say: &mut dyn FnMut(&str)) {
        let grants: Vec<Grant> = self.journal().grants().cloned().collect();
        let known = grants.iter().map(|grant| grant.id).collect();
        if let Err(error) = self.doors.take_over(&known, self.journal().prefix()) {
            say(&format!(
                "no grant can be made or used: the folder `grants` beside the socket: {error}"
            ));
        }
        for grant in grants {
            let id = grant.id;
            self.machine.restore_grant(grant);
            if let Err(error) = self.doors.open_soon(id) {
                say(&format!("{id} has no socket yet: {error}"));
            }
        }
        for (id, error) in self.take_up_doors(AT_START) {
            say(&format!("{id} has no socket yet: {error}"));
        }
        for id in &self.doors.opening {
            say(&format!(
                "{id} has no socket yet: another process keeps its folder waiting"
            ));
        }
    }

    /// Takes up what threads have opened; a grant without a folder has ended. Why others could not be opened.
    fn take_up_doors(&mut self, most: Duration) -> Vec<(GrantId, io::Error)> {
        let mut failed = Vec::new();
        for (id, door) in self.doors.opened(most) {
            let is_live = self.machine.grants().any(|grant| grant.id == id);
            match door {
                Ok(door) if is_live => {
                    if let Err(error) = self.doors.wait_at_new(id, door) {
                        failed.push((id, error));
                    }
                }
                // It ended meanwhile, and its folder was perhaps removed before there was a socket in it.
                Ok(door) => {
                    self.closer.close_sent(Whose::Grant(id), door.socket);
                    self.doors.remove_soon(id);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.step(Event::GrantGone(id));
                }
                Err(error) => failed.push((id, error)),
            }
        }
        failed
    }

    /// Ends grants whose folders were removed, and makes sockets that could not be made before.
    pub(super) fn look_at_doors(&mut self) {
        drop(self.take_up_doors(Duration::ZERO));
        let all: Vec<_> = self.machine.grants().map(|grant| grant.id).collect();
        for id in all {
            if !self.doors.is_open(id) {
                let _ = self.doors.open_soon(id);
            }
        }
        for id in self.doors.gone() {
            self.step(Event::GrantGone(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_link_in_the_place_of_the_socket_changes_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &Path| OwnedFd::from(fs::File::open(path).unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (secret, name) = (folder.path().join("secret"), folder.path().join(SOCKET));
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&secret, &name).unwrap();
        let error = open_to_all(&at(folder.path())).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
        assert_eq!(mode(&secret), 0o600);
        fs::remove_file(&name).unwrap();
        let _socket = bind(at(folder.path()), &name).unwrap();
        open_to_all(&at(folder.path())).unwrap();
        assert_eq!(mode(&name), 0o666);
    }
}
