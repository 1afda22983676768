//! A configuration that is read again while the daemon serves (SIGHUP).
//!
//! A thread reads it, and looks up all that it names. All of it is applied or nothing: what may fail comes
//! first, and a reason is given. Leases, and slabs that are allocated, stay as they are; a pool that is named no more keeps no slab.

use super::{ServeError, Server, check, start};
use crate::config::{Config, Fill};
use crate::lease::Whose;
use crate::lease::quota::Rules;
use crate::machine::{Event, Spec};
use crate::os::background;
use crate::os::cgroup_memory::Limits;
use crate::os::threads::Threads;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use toml::Spanned;

/// Reads the configuration, on a thread of its own.
pub(super) type Read = dyn Fn() -> Result<Config, String> + Send + Sync;

/// A configuration that this machine has all for.
struct New {
    config: Config,
    rules: Rules,
    specs: Vec<Spec>,
    /// Those of the daemon's cgroup, where that is another one.
    limits: Option<Limits>,
}

impl New {
    /// Names of users, and files that anybody may lock, may have to be waited for.
    fn read(read: &Read, cgroups: &[PathBuf]) -> Result<Self, String> {
        let config = read()?;
        check::machine(&config).map_err(|error| error.to_string())?;
        let owner = rustix::process::geteuid().as_raw();
        let rules = Rules::new(&config, owner).map_err(ServeError::Config);
        let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
        Ok(Self {
            rules: rules.map_err(|error| error.to_string())?,
            limits: Limits::open_others(cgroups).map_err(|error| error.to_string())?,
            specs,
            config,
        })
    }
}

/// The configuration that is being read again.
pub(super) struct Reader {
    read: Arc<Read>,
    wake: Arc<OwnedFd>,
    tell: Sender<Result<New, String>>,
    told: Receiver<Result<New, String>>,
    is_under_way: bool,
    /// Whether it is to be read once more when it was.
    again: bool,
    threads: Arc<Threads>,
}

impl Reader {
    pub(super) fn new(read: Arc<Read>, threads: Arc<Threads>, wake: Arc<OwnedFd>) -> Self {
        let (tell, told) = mpsc::channel();
        Self {
            read,
            wake,
            tell,
            told,
            is_under_way: false,
            again: false,
            threads,
        }
    }

    /// Begins to read it, by a daemon in these cgroups as far as it knows.
    fn begin(&mut self, cgroups: Vec<PathBuf>) -> io::Result<()> {
        self.again = self.is_under_way;
        if self.is_under_way {
            return Ok(());
        }
        let (read, tell) = (Arc::clone(&self.read), self.tell.clone());
        let wake = Arc::clone(&self.wake);
        self.threads.start("reload", move || {
            let _ = background::run_nicely(0);
            if tell.send(New::read(&*read, &cgroups)).is_ok() {
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            }
        })?;
        self.is_under_way = true;
        Ok(())
    }

    /// What was read, once.
    fn done(&mut self) -> Option<Result<New, String>> {
        let new = self.told.try_recv().ok()?;
        self.is_under_way = false;
        Some(new)
    }
}

impl Server {
    /// Begins to read the configuration again.
    pub(super) fn reload(&mut self, say: &mut dyn FnMut(&str)) {
        if let Err(error) = self.reader.begin(self.pool.files.limits().cgroups()) {
            say(&format!("configuration not read again: no thread: {error}"));
        }
    }

    /// Applies the configuration if it was read again, and says what came of it.
    pub(super) fn reloaded(&mut self, say: &mut dyn FnMut(&str)) {
        let Some(new) = self.reader.done() else {
            return;
        };
        let done = new.and_then(|new| self.apply(new, say).map_err(|error| error.to_string()));
        match done {
            Ok(()) => say("configuration read again"),
            Err(error) => say(&format!("configuration not read again: {error}")),
        }
        if self.reader.again {
            self.reload(say);
        }
    }

    fn apply(&mut self, new: New, say: &mut dyn FnMut(&str)) -> Result<(), ServeError> {
        let New {
            config,
            rules,
            specs,
            limits,
        } = new;
        let prepared = self.pool.files.prepare(&specs, &specs)?;
        if let Err(error) = self.listener.admit(&rules) {
            // Half of it may be done.
            let _ = self.listener.admit(self.pool.machine.rules());
            return Err(error);
        }
        // Nothing fails from here on.
        if let Some(limits) = limits {
            for file in self.pool.files.set_limits(limits).into_descriptors() {
                self.closer.close_sent(Whose::Nobody, file);
            }
        }
        let limits = start::within_descriptors(&config.limits, say);
        self.connections.limit(&limits);
        self.peers.limit(limits.connections);
        for note in &prepared.notes {
            say(note);
        }
        let specs = if self.pool.machine.is_draining() {
            Vec::new()
        } else {
            self.pool.files.install(prepared)
        };
        let rate = config.fill.rate.bytes();
        self.step(Event::Configured { rules, specs, rate });
        let machine = &self.pool.machine;
        let strangers = self.connections.of_strangers(|peer| machine.standing(peer));
        for id in strangers {
            self.close(id);
        }
        for key in at_next_start(&self.config, &config) {
            say(&format!("`{key}` is another one from the next start on"));
        }
        self.config = config;
        Ok(())
    }
}

/// Keys that changed and that a daemon reads at its start only.
fn at_next_start(old: &Config, new: &Config) -> Vec<&'static str> {
    let Fill {
        rate: _,
        cpus,
        nice,
        batch,
        pause_at_pressure,
        refill_rate,
        refill_after_s,
    } = &old.fill;
    let mut keys = Vec::new();
    for (key, same) in [
        ("socket", old.socket.as_ref() == new.socket.as_ref()),
        (
            "directory",
            old.directory.as_ref() == new.directory.as_ref(),
        ),
        ("keep_on_stop", old.keep_on_stop == new.keep_on_stop),
        ("cpus", same(cpus.as_ref(), new.fill.cpus.as_ref())),
        ("nice", same(nice.as_ref(), new.fill.nice.as_ref())),
        ("batch", batch.as_ref() == new.fill.batch.as_ref()),
        (
            "pause_at_pressure",
            pause_at_pressure.as_ref() == new.fill.pause_at_pressure.as_ref(),
        ),
        ("refill_rate", *refill_rate == new.fill.refill_rate),
        ("refill_after_s", *refill_after_s == new.fill.refill_after_s),
    ] {
        if !same {
            keys.push(key);
        }
    }
    keys
}

fn same<T: PartialEq>(old: Option<&Spanned<T>>, new: Option<&Spanned<T>>) -> bool {
    old.map(Spanned::as_ref) == new.map(Spanned::as_ref)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_changes_at_the_next_start_only_is_said() {
        let config = |text: &str| Config::parse(Path::new("test"), text).unwrap();
        let old = config("socket = \"/a\"\nfill = { batch = \"2M\", rate = \"1G\" }\n");
        let new = config("socket = \"/b\"\nfill = { batch = \"4M\", rate = \"2G\" }\n");
        assert_eq!(at_next_start(&old, &new), ["socket", "batch"]);
        let other = config("socket = \"/a\"\nfill = { batch = \"2M\", cpus = \"0\", nice = 5 }\n");
        assert_eq!(at_next_start(&old, &other), ["cpus", "nice"]);
        assert!(at_next_start(&old, &old).is_empty());
    }
}
