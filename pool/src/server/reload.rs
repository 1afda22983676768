//! A configuration that is read again while the daemon serves (SIGHUP).
//!
//! All of it is applied or nothing: what may fail comes first, and a reason is given. Leases,
//! and slabs that are allocated, stay as they are; a pool that is named no more keeps no slab.

use super::{ServeError, Server, check, start};
use crate::config::{Config, Fill};
use crate::lease::quota::Rules;
use crate::machine::{Event, Spec};
use toml::Spanned;

impl Server {
    /// Reads the configuration again, and says what came of it.
    pub(super) fn reload(
        &mut self,
        read: &mut dyn FnMut() -> Result<Config, String>,
        say: &mut dyn FnMut(&str),
    ) {
        let read = read().and_then(|config| {
            check(&config).map_err(|error| error.to_string())?;
            Ok(config)
        });
        let done =
            read.and_then(|config| self.apply(config, say).map_err(|error| error.to_string()));
        match done {
            Ok(()) => say("configuration read again"),
            Err(error) => say(&format!("configuration not read again: {error}")),
        }
    }

    fn apply(&mut self, config: Config, say: &mut dyn FnMut(&str)) -> Result<(), ServeError> {
        let owner = rustix::process::geteuid().as_raw();
        let rules = Rules::new(&config, owner).map_err(ServeError::Config)?;
        let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
        let prepared = self.pool.files.prepare(&specs, &specs)?;
        if let Err(error) = self.listener.admit(&rules) {
            // Half of it may be done.
            let _ = self.listener.admit(self.pool.machine.rules());
            return Err(error);
        }
        // Nothing fails from here on.
        let limits = start::within_descriptors(&config.limits, say);
        self.connections.limit(&limits);
        for note in &prepared.notes {
            say(note);
        }
        let specs = if self.pool.machine.is_draining() {
            Vec::new()
        } else {
            self.pool.files.install(prepared)
        };
        self.pool.keeper.keep_mounts(&self.pool.files);
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
        assert!(at_next_start(&old, &old).is_empty());
    }
}
