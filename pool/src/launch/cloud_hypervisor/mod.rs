//! Cloud Hypervisor: which arguments make it use files of the pool.
//!
//! A file of the pool is that of a memory zone, mapped shared; zones need `--memory size=0`.
//!
//! | command line | the pool's file |
//! |---|---|
//! | nothing, or only `--memory` | that of a new zone |
//! | `--memory-zone` | that of each zone |
//! | nothing, several `--memory` of ours | those of new zones, and a `--numa` for each |
//!
//! `hugepages` and `host_numa_node` are left out beside a file: the slab has its pages, and lies
//! where it was taken from. Facts are from the VMM's docs/memory.md and `vmm/src/memory_manager.rs`.

pub(super) mod api;
mod list;
#[cfg(test)]
mod tests;

use super::backing::Backing;
use super::error::{PlanError, same};
use super::need::Need;
use list::{List, size};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The guest's memory where nothing says how much.
const DEFAULT_BYTES: u64 = 512 << 20;

/// The zone that the VMM makes of `--memory`.
const ONLY_ZONE: &str = "mem0";

/// Properties that say where memory comes from: a slab has its own.
const REPLACED: [&str; 8] = [
    "file",
    "shared",
    "hugepages",
    "hugepage_size",
    "host_numa_node",
    "prefault",
    "reserve",
    "mergeable",
];

/// Properties of `--memory` that zones have instead.
const OF_THE_ZONE: [&str; 3] = ["size", "hotplug_size", "hotplugged_size"];

/// Options with which it starts a guest, and not only a server.
const PAYLOADS: [&str; 3] = ["--kernel", "--firmware", "--igvm"];

const PLUGGED: &str =
    "what is plugged later (vm.resize-zone) is the kernel's memory, not the pool's";
const NOT_MERGED: &str = "mergeable is left out: pages of a slab are not merged";
const SNAPSHOTS: &str =
    "a snapshot or a migration names this memory /proc/self/fd/N: it cannot be restored";

/// Whether a program is Cloud Hypervisor, by its name.
pub(super) fn is_it(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name == "cloud-hypervisor" || name.starts_with("cloud-hypervisor-"))
}

/// A command line and how it changes.
#[derive(Debug)]
pub(super) struct CloudHypervisorPlan {
    arguments: Vec<OsString>,
    pub(super) needs: Vec<Need>,
    pub(super) notes: Vec<String>,
    memory: Option<Given>,
    zones: Vec<Given>,
    /// Zones that the command line does not have.
    new_zones: Vec<List>,
}

/// Properties that stand in an argument.
#[derive(Debug, Clone)]
struct Given {
    at: usize,
    /// `--memory=size=1G`: the option is in the same argument.
    is_joined: bool,
    option: &'static str,
    list: List,
}

fn refuse<T>(id: &str, reason: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Zone {
        id: id.into(),
        reason: reason.into(),
    })
}

/// What a slab cannot be; and what its author may want to know of what is left out.
fn check(id: &str, list: &List) -> Result<Vec<String>, PlanError> {
    let says = |name| list.get(name).is_some();
    if says("shared") && !list.is_on("shared") && !list.is_on("hugepages") {
        let text = "shared=off would copy each page that the guest writes: leave it out, or make it \
                    shared=on";
        return refuse(id, text);
    }
    let mut notes = Vec::new();
    if says("hotplug_size") {
        if list.is_on("hugepages") || says("host_numa_node") {
            let text = "hotplug_size beside hugepages=on or host_numa_node: what is plugged later \
                        would have neither; leave one of them out";
            return refuse(id, text);
        }
        notes.push(PLUGGED.into());
    }
    notes.extend(list.is_on("mergeable").then(|| NOT_MERGED.to_owned()));
    Ok(notes)
}

impl CloudHypervisorPlan {
    /// Plans `arguments` with `asked` memory; `is_file` tells whether a path names a file or a
    /// device that exists.
    pub(super) fn new(
        arguments: &[OsString],
        asked: &[Need],
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, PlanError> {
        let mut plan = Self {
            arguments: arguments.to_vec(),
            needs: Vec::new(),
            notes: Vec::new(),
            memory: None,
            zones: Vec::new(),
            new_zones: Vec::new(),
        };
        plan.read()?;
        if !PAYLOADS.iter().any(|option| plan.has(option)) {
            let text = "this command line starts no guest (no --kernel or --firmware): where one is \
                        made over the API, give its body and a file for the new one, \
                        --vm-config IN OUT, before --";
            return refuse("", text);
        }
        if plan.has("--landlock") {
            // It opens what it allows, and the kernel takes no file of its own mounts.
            let text = "--landlock allows files by their place in a mount, and a slab of \
                        `source = \"memfd\"` has none: leave it out";
            return refuse("", text);
        }
        if plan.zones.is_empty() {
            plan.new_zones(asked)?;
        } else {
            plan.old_zones(asked, is_file)?;
        }
        plan.notes.push(SNAPSHOTS.into());
        plan.notes.dedup();
        Ok(plan)
    }

    /// Finds what concerns memory.
    fn read(&mut self) -> Result<(), PlanError> {
        // The option that values belong to until the next one.
        let mut option: Option<&'static str> = None;
        for (at, argument) in self.arguments.iter().enumerate() {
            let Some(text) = argument.to_str() else {
                continue;
            };
            let is_option = text.starts_with('-');
            let (name, joined) = match text.split_once('=') {
                Some((name, value)) if is_option => (name, Some(value)),
                _ => (text, None),
            };
            if is_option {
                option = ["--memory", "--memory-zone", "--restore"]
                    .into_iter()
                    .find(|known| *known == name);
            }
            let value = if is_option { joined } else { Some(text) };
            let (Some(option), Some(value)) = (option, value) else {
                continue;
            };
            if option == "--restore" {
                let reason = "a snapshot brings its own memory, which the pool cannot provide";
                return Err(PlanError::Unreadable {
                    option: option.into(),
                    text: value.into(),
                    reason: reason.into(),
                });
            }
            let given = Given {
                at,
                is_joined: is_option,
                option,
                list: List::read(option, value)?,
            };
            match option {
                "--memory" => self.memory = Some(given),
                _ => self.zones.push(given),
            }
        }
        Ok(())
    }

    /// Memory of one zone, or of as many as `--memory` was given of ours.
    fn new_zones(&mut self, asked: &[Need]) -> Result<(), PlanError> {
        let list = self.memory.as_ref().map(|memory| memory.list.clone());
        let list = list.unwrap_or_default();
        let seen = list.get("size").map(|text| size("--memory", text));
        let seen = seen.transpose()?;
        if seen == Some(0) {
            return refuse("", "--memory size=0 needs a --memory-zone");
        }
        self.needs = match asked {
            [] => vec![Need {
                bytes: seen.unwrap_or(DEFAULT_BYTES),
                node: None,
            }],
            _ => asked.to_vec(),
        };
        if let Some(seen) = seen {
            let bytes = self.needs.iter().map(|need| need.bytes);
            let bytes = bytes.fold(0, u64::saturating_add);
            same("--memory size", seen, &Need { bytes, node: None })?;
        }
        self.notes.extend(check("", &list)?);
        let how = list.get("hotplug_method").unwrap_or("acpi");
        let can_grow = how.eq_ignore_ascii_case("virtio-mem") && self.needs.len() == 1;
        if list.get("hotplug_size").is_some() && !can_grow {
            let text = "hotplug_size without hotplug_method=virtio-mem, or with several zones: only \
                        one zone's virtio-mem can grow";
            return refuse("", text);
        }
        if self.needs.len() > 1 && self.has("--numa") {
            let text = "its --numa names zones, and several --memory make new ones: write a \
                        --memory-zone for each, or leave --numa out";
            return refuse("", text);
        }
        let plugged = list.of(&["hotplug_size", "hotplugged_size"], true);
        for (at, need) in self.needs.iter().enumerate() {
            let id = match self.needs.len() {
                1 => ONLY_ZONE.to_owned(),
                _ => format!("firstlight{at}"),
            };
            let zone = List::default().with("id", id);
            let zone = zone.with("size", need.bytes.to_string());
            self.new_zones.push(zone.and(plugged.clone()));
        }
        Ok(())
    }

    /// Zones of the command line, each with a file of the pool.
    fn old_zones(
        &mut self,
        asked: &[Need],
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Result<(), PlanError> {
        if !asked.is_empty() && asked.len() != self.zones.len() {
            return Err(PlanError::Nodes {
                seen: self.zones.len(),
                asked: asked.len(),
            });
        }
        for (at, zone) in self.zones.iter().enumerate() {
            let list = &zone.list;
            let Some(id) = list.get("id") else {
                return refuse("", "each --memory-zone has an id");
            };
            self.notes.extend(check(id, list)?);
            self.check_overlap(at, id)?;
            if let Some(file) = list.get("file").filter(|file| is_file(Path::new(file))) {
                let text = format!(
                    "its file {file} would not be used; remove the file if its content is not \
                     needed, or leave file= out"
                );
                return refuse(id, text);
            }
            let bytes = list.get("size").map(|text| size("--memory-zone", text));
            let bytes = bytes.transpose()?.unwrap_or(DEFAULT_BYTES);
            let node = list.get("host_numa_node").map(|text| {
                text.parse::<u32>().map_err(|_| PlanError::Unreadable {
                    option: "--memory-zone".into(),
                    text: format!("host_numa_node={text}"),
                    reason: "it is no node of the host".into(),
                })
            });
            let node = node.transpose()?;
            let asked = asked.get(at);
            if let Some(asked) = asked {
                same(&format!("memory zone {id}"), bytes, asked)?;
            }
            let asked = asked.and_then(|need| need.node);
            if let (Some(node), Some(asked)) = (node, asked)
                && node != asked
            {
                let text = format!(
                    "--memory names node {asked} of the host, host_numa_node={node}: make them \
                     the same"
                );
                return refuse(id, text);
            }
            self.needs.push(Need {
                bytes,
                node: node.or(asked),
            });
        }
        // Zones that say nothing of it are merged as `--memory` says.
        let memory = self.memory.as_ref();
        let merges = memory.is_some_and(|memory| memory.list.is_on("mergeable"));
        self.notes.extend(merges.then(|| NOT_MERGED.to_owned()));
        Ok(())
    }

    /// Zones of one file would be the same memory, and those on the pool are not.
    fn check_overlap(&self, at: usize, id: &str) -> Result<(), PlanError> {
        let list = &self.zones[at].list;
        let named = |name: &str| list.get(name);
        for before in &self.zones[..at] {
            if before.list.get("id") == Some(id) {
                return refuse(id, "another zone has this id: each needs its own");
            }
            let file = named("file").filter(|file| before.list.get("file") == Some(file));
            if let Some(file) = file.filter(|file| !Path::new(file).is_dir()) {
                let text = format!(
                    "its file {file} is another zone's, too, and a slab is one zone's: name a file for \
                     each, or leave file= out"
                );
                return refuse(id, text);
            }
        }
        Ok(())
    }

    fn has(&self, option: &str) -> bool {
        let mut arguments = self.arguments.iter().filter_map(|one| one.to_str());
        arguments.any(|text| text.split('=').next() == Some(option))
    }

    /// The arguments that use `files`, one for each need.
    pub(super) fn with_memory(&self, files: &[Backing]) -> Vec<OsString> {
        let on = |zone: &List, file: &Backing| {
            let zone = zone.of(&REPLACED, false).with("file", file.path.clone());
            zone.with("shared", "on")
        };
        if self.zones.is_empty() {
            let zones = self.new_zones.iter().zip(files);
            let zones: Vec<_> = zones.map(|(zone, file)| on(zone, file)).collect();
            return self.with_new_zones(&zones);
        }
        let mut arguments = self.arguments.clone();
        for (zone, file) in self.zones.iter().zip(files) {
            zone.put(&mut arguments, &on(&zone.list, file));
        }
        if let Some(memory) = self
            .memory
            .as_ref()
            .filter(|one| one.list.is_on("mergeable"))
        {
            memory.put(&mut arguments, &memory.list.of(&["mergeable"], false));
        }
        arguments
    }

    /// The arguments of a start without the pool.
    pub(super) fn ordinary(&self) -> Vec<OsString> {
        let list = self.memory.as_ref().map(|memory| memory.list.clone());
        let list = list.unwrap_or_default();
        if !self.zones.is_empty() {
            return self.arguments.clone();
        }
        if let [need] = self.needs.as_slice() {
            let has_size = list.get("size").is_some();
            return if has_size {
                self.arguments.clone()
            } else {
                self.with_memory_option(&list.with("size", need.bytes.to_string()))
            };
        }
        let zones = self.new_zones.iter().zip(&self.needs).map(|(zone, need)| {
            let zone = zone.clone().and(list.of(&REPLACED, true));
            match need.node {
                Some(node) => zone.with("host_numa_node", node.to_string()),
                None => zone,
            }
        });
        self.with_new_zones(&zones.collect::<Vec<_>>())
    }

    fn with_new_zones(&self, zones: &[List]) -> Vec<OsString> {
        let beside = self.memory.as_ref().map(|memory| {
            let list = memory.list.of(&REPLACED, false);
            list.of(&OF_THE_ZONE, false)
        });
        let memory = List::default().with("size", "0");
        let mut arguments = self.with_memory_option(&memory.and(beside.unwrap_or_default()));
        arguments.push("--memory-zone".into());
        arguments.extend(zones.iter().map(|zone| zone.write().into()));
        if zones.len() > 1 {
            arguments.push("--numa".into());
            let nodes = (0..zones.len())
                .map(|at| format!("guest_numa_id={at},memory_zones=firstlight{at}").into());
            arguments.extend(nodes);
        }
        arguments
    }

    fn with_memory_option(&self, list: &List) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        match &self.memory {
            Some(memory) => memory.put(&mut arguments, list),
            None => arguments.extend(["--memory".into(), list.write().into()]),
        }
        arguments
    }
}

impl Given {
    /// Other properties in its place.
    fn put(&self, arguments: &mut [OsString], list: &List) {
        let text = list.write();
        if let Some(argument) = arguments.get_mut(self.at) {
            *argument = if self.is_joined {
                format!("{}={text}", self.option).into()
            } else {
                text.into()
            };
        }
    }
}
