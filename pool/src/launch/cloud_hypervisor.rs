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

use super::backing::Backing;
use super::error::{PlanError, same};
use super::need::Need;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The guest's memory where nothing says how much.
const DEFAULT_BYTES: u64 = 512 << 20;

/// Properties of a zone that say nothing about where its memory comes from.
const KEPT: [&str; 5] = ["id", "size", "mergeable", "hotplug_size", "hotplugged_size"];

/// Properties of `--memory` that hold beside zones.
const KEPT_BESIDE_ZONES: [&str; 3] = ["mergeable", "hotplug_method", "thp"];

/// Properties of `--memory` that a zone has instead.
const OF_THE_ZONE: [&str; 2] = ["hotplug_size", "hotplugged_size"];

/// Options with which it starts a guest, and not only a server.
const PAYLOADS: [&str; 3] = ["--kernel", "--firmware", "--igvm"];

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

/// Properties, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct List(Vec<(String, String)>);

/// Properties that stand in an argument.
#[derive(Debug, Clone)]
struct Given {
    at: usize,
    /// `--memory=size=1G`: the option is in the same argument.
    is_joined: bool,
    option: &'static str,
    list: List,
}

impl List {
    fn read(option: &str, text: &str) -> Result<Self, PlanError> {
        let unreadable = |reason: &str| PlanError::Unreadable {
            option: option.into(),
            text: text.into(),
            reason: reason.into(),
        };
        if text.contains(['"', '[', ']']) {
            return Err(unreadable("no property of memory has quotes or brackets"));
        }
        let parts = text.trim().split(',').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| {
            let (name, value) = part.split_once('=')?;
            Some((name.to_owned(), value.trim().to_owned()))
        });
        let pairs: Option<Vec<_>> = pairs.collect();
        pairs
            .map(Self)
            .ok_or_else(|| unreadable("expected property=value, with commas between"))
    }

    /// The last of this name, as it is the one that counts.
    fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter().rev();
        let found = pairs.find(|(given, value)| given == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.push((name.into(), value.into()));
        self
    }

    fn only(&self, names: &[&str]) -> Self {
        let kept = self.0.iter();
        let kept = kept.filter(|(name, _)| names.contains(&name.as_str()));
        Self(kept.cloned().collect())
    }

    fn write(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    }
}

/// Reads a size as the VMM does: a whole number, perhaps with K, M or G.
fn size(option: &str, text: &str) -> Result<u64, PlanError> {
    let unreadable = || PlanError::Unreadable {
        option: option.into(),
        text: text.into(),
        reason: "it is no size, expected for example 8G or 512M".into(),
    };
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(unreadable()),
    };
    let number: u64 = digits.parse().map_err(|_| unreadable())?;
    number.checked_mul(1 << shift).ok_or_else(unreadable)
}

fn refuse<T>(id: &str, reason: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Zone {
        id: id.into(),
        reason: reason.into(),
    })
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
        let starts_a_guest = plan.read()?;
        if plan.zones.is_empty() {
            plan.new_zones(asked, starts_a_guest)?;
        } else {
            plan.old_zones(asked, is_file)?;
        }
        Ok(plan)
    }

    /// Finds what concerns memory; whether the command line starts a guest.
    fn read(&mut self) -> Result<bool, PlanError> {
        let mut starts_a_guest = false;
        // The option that values belong to until the next one.
        let mut option: Option<&'static str> = None;
        for (at, argument) in self.arguments.iter().enumerate() {
            let Some(text) = argument.to_str() else {
                continue;
            };
            let (name, joined) = match text.split_once('=') {
                Some((name, value)) if text.starts_with("--") => (name, Some(value)),
                _ => (text, None),
            };
            if text.starts_with('-') {
                option = ["--memory", "--memory-zone", "--restore"]
                    .into_iter()
                    .find(|known| *known == name);
                starts_a_guest |= PAYLOADS.contains(&name);
            }
            let value = if text.starts_with('-') {
                joined
            } else {
                Some(text)
            };
            let (Some(option), Some(value)) = (option, value) else {
                continue;
            };
            if option == "--restore" {
                return Err(PlanError::Unreadable {
                    option: option.into(),
                    text: value.into(),
                    reason: "a snapshot brings its own memory, which the pool cannot provide"
                        .into(),
                });
            }
            let given = Given {
                at,
                is_joined: joined.is_some() && text.starts_with('-'),
                option,
                list: List::read(option, value)?,
            };
            match option {
                "--memory" => self.memory = Some(given),
                _ => self.zones.push(given),
            }
        }
        Ok(starts_a_guest)
    }

    /// Memory of one zone, or of as many as `--memory` was given of ours.
    fn new_zones(&mut self, asked: &[Need], starts_a_guest: bool) -> Result<(), PlanError> {
        let memory = self.memory.as_ref().map(|memory| &memory.list);
        let seen = memory.and_then(|list| list.get("size"));
        let seen = seen.map(|text| size("--memory", text)).transpose()?;
        if seen == Some(0) {
            return refuse("", "--memory size=0 needs a --memory-zone");
        }
        let default = (starts_a_guest || memory.is_some()).then_some(DEFAULT_BYTES);
        self.needs = match (asked, seen.or(default)) {
            ([], None) => return Err(PlanError::NoSize),
            ([], Some(bytes)) => vec![Need { bytes, node: None }],
            _ => asked.to_vec(),
        };
        if let Some(seen) = seen {
            let bytes = self.needs.iter().map(|need| need.bytes);
            let bytes = bytes.fold(0, u64::saturating_add);
            same("--memory size", seen, &Need { bytes, node: None })?;
        }
        if let Some(list) = memory {
            check(None, list)?;
            let is_acpi = list
                .get("hotplug_method")
                .is_none_or(|how| how.eq_ignore_ascii_case("acpi"));
            if list.get("hotplug_size").is_some() {
                if is_acpi || self.needs.len() > 1 {
                    let text = "hotplug_size without hotplug_method=virtio-mem, or with several \
                                zones: only one zone's virtio-mem can grow";
                    return refuse("", text);
                }
                self.notes.push(PLUGGED.into());
            }
        }
        let moved = memory
            .map(|list| list.only(&OF_THE_ZONE))
            .unwrap_or_default();
        for (at, need) in self.needs.iter().enumerate() {
            let zone = List::default()
                .with("id", format!("firstlight{at}"))
                .with("size", need.bytes.to_string());
            let zone = moved
                .0
                .iter()
                .fold(zone, |zone, (name, value)| zone.with(name, value));
            self.new_zones.push(zone);
        }
        if self.needs.len() > 1 && self.has("--numa") {
            return Err(PlanError::Nodes {
                seen: 0,
                asked: asked.len(),
            });
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
        let mut has_plugged = false;
        for (at, zone) in self.zones.iter().enumerate() {
            let list = &zone.list;
            let Some(id) = list.get("id") else {
                return refuse("", "each --memory-zone has an id");
            };
            check(Some(id), list)?;
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
                    "--memory names node {asked} of the host, host_numa_node={node}: make them the same"
                );
                return refuse(id, text);
            }
            has_plugged |= list.get("hotplug_size").is_some();
            self.needs.push(Need {
                bytes,
                node: node.or(asked),
            });
        }
        self.notes.extend(has_plugged.then(|| PLUGGED.to_owned()));
        Ok(())
    }

    fn has(&self, option: &str) -> bool {
        let mut arguments = self
            .arguments
            .iter()
            .filter_map(|argument| argument.to_str());
        arguments.any(|text| text.split('=').next() == Some(option))
    }

    /// The arguments that use `files`, one for each need.
    pub(super) fn with_memory(&self, files: &[Backing]) -> Vec<OsString> {
        let on = |zone: &List, file: &Backing| {
            let zone = zone.only(&KEPT).with("file", file.path.clone());
            zone.with("shared", "on")
        };
        if self.zones.is_empty() {
            let zones = self.new_zones.iter().zip(files);
            return self.with_new_zones(zones.map(|(zone, file)| on(zone, file)).collect());
        }
        let mut arguments = self.arguments.clone();
        for (zone, file) in self.zones.iter().zip(files) {
            zone.put(&mut arguments, &on(&zone.list, file));
        }
        arguments
    }

    /// The arguments of a start without the pool.
    pub(super) fn ordinary(&self) -> Vec<OsString> {
        let memory = self.memory.as_ref();
        let says = memory.is_some_and(|memory| memory.list.get("size").is_some());
        let several = self.needs.len() > 1;
        if !self.zones.is_empty() || (says && !several) {
            return self.arguments.clone();
        }
        if several {
            let zones = self.new_zones.iter().zip(&self.needs);
            let zones = zones.map(|(zone, need)| match need.node {
                Some(node) => zone.clone().with("host_numa_node", node.to_string()),
                None => zone.clone(),
            });
            return self.with_new_zones(zones.collect());
        }
        let bytes = self.needs.first().map_or(DEFAULT_BYTES, |need| need.bytes);
        let list = memory.map(|memory| memory.list.clone()).unwrap_or_default();
        self.with_memory_option(&list.with("size", bytes.to_string()))
    }

    fn with_new_zones(&self, zones: Vec<List>) -> Vec<OsString> {
        let memory = self
            .memory
            .as_ref()
            .map(|memory| memory.list.only(&KEPT_BESIDE_ZONES));
        let memory = List::default()
            .with("size", "0")
            .0
            .into_iter()
            .chain(memory.unwrap_or_default().0);
        let mut arguments = self.with_memory_option(&List(memory.collect()));
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

const PLUGGED: &str = "memory that is plugged later is the kernel's, not the pool's";

/// What a file of the pool cannot be.
fn check(id: Option<&str>, list: &List) -> Result<(), PlanError> {
    let id = id.unwrap_or_default();
    let is_private = list.get("shared") == Some("off") && list.get("hugepages") != Some("on");
    if is_private {
        let text = "shared=off would copy each page that the guest writes: leave it out, or make it shared=on";
        return refuse(id, text);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Ordinary, Plan};

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn plan(line: &str, asked: &[&str]) -> Result<Plan, PlanError> {
        let asked: Vec<Need> = asked.iter().map(|text| text.parse().unwrap()).collect();
        let is_file = |path: &Path| path == Path::new("/var/saved");
        Plan::new(
            "/opt/cloud-hypervisor-static".as_ref(),
            &words(line),
            &asked,
            &is_file,
        )
    }

    /// A command line, our `--memory`; what it becomes with the pool, and without.
    type Case = (
        &'static str,
        &'static [&'static str],
        &'static str,
        &'static str,
    );

    /// Among them those of the VMM's docs/memory.md, as they stand there or joined with `=`.
    const CASES: [Case; 13] = [
        (
            "--kernel vmlinux",
            &[],
            "--kernel vmlinux --memory size=0 --memory-zone id=firstlight0,size=536870912,FILE0",
            "--kernel vmlinux --memory size=536870912",
        ),
        (
            "--kernel vmlinux --cpus boot=2",
            &["4G"],
            "--kernel vmlinux --cpus boot=2 --memory size=0 --memory-zone id=firstlight0,size=4294967296,FILE0",
            "--kernel vmlinux --cpus boot=2 --memory size=4294967296",
        ),
        (
            "--memory size=1G --kernel vmlinux",
            &["1G@1"],
            "--memory size=0 --kernel vmlinux --memory-zone id=firstlight0,size=1073741824,FILE0",
            "--memory size=1G --kernel vmlinux",
        ),
        (
            "--memory=size=1G,mergeable=on,thp=on",
            &[],
            "--memory=size=0,mergeable=on,thp=on --memory-zone id=firstlight0,size=1073741824,FILE0",
            "--memory=size=1G,mergeable=on,thp=on",
        ),
        (
            "--memory size=1G,hugepages=on,hugepage_size=2M,shared=off,prefault=on,reserve=on",
            &[],
            "--memory size=0 --memory-zone id=firstlight0,size=1073741824,FILE0",
            "--memory size=1G,hugepages=on,hugepage_size=2M,shared=off,prefault=on,reserve=on",
        ),
        (
            "--memory size=1G,hotplug_method=virtio-mem,hotplug_size=1G,hotplugged_size=512M",
            &[],
            "--memory size=0,hotplug_method=virtio-mem --memory-zone \
             id=firstlight0,size=1073741824,hotplug_size=1G,hotplugged_size=512M,FILE0",
            "--memory size=1G,hotplug_method=virtio-mem,hotplug_size=1G,hotplugged_size=512M",
        ),
        (
            "--memory size=0 --memory-zone id=mem0,size=1G",
            &[],
            "--memory size=0 --memory-zone id=mem0,size=1G,FILE0",
            "--memory size=0 --memory-zone id=mem0,size=1G",
        ),
        (
            "--memory size=0 --memory-zone id=mem0,size=1G,host_numa_node=0",
            &[],
            "--memory size=0 --memory-zone id=mem0,size=1G,FILE0",
            "--memory size=0 --memory-zone id=mem0,size=1G,host_numa_node=0",
        ),
        (
            "--memory size=0 --memory-zone id=mem0,size=1G,shared=on,file=/foo/bar id=mem1,size=1G,hugepages=on \
             --numa guest_numa_id=0,memory_zones=mem0 guest_numa_id=1,memory_zones=mem1",
            &[],
            "--memory size=0 --memory-zone id=mem0,size=1G,FILE0 id=mem1,size=1G,FILE1 \
             --numa guest_numa_id=0,memory_zones=mem0 guest_numa_id=1,memory_zones=mem1",
            "--memory size=0 --memory-zone id=mem0,size=1G,shared=on,file=/foo/bar id=mem1,size=1G,hugepages=on \
             --numa guest_numa_id=0,memory_zones=mem0 guest_numa_id=1,memory_zones=mem1",
        ),
        (
            "--memory size=0,hotplug_method=virtio-mem --memory-zone=id=mem0,size=1G,hotplug_size=1G --memory-zone=id=b,size=2M",
            &["1G@1", "2M@0"],
            "--memory size=0,hotplug_method=virtio-mem --memory-zone=id=mem0,size=1G,hotplug_size=1G,FILE0 \
             --memory-zone=id=b,size=2M,FILE1",
            "--memory size=0,hotplug_method=virtio-mem --memory-zone=id=mem0,size=1G,hotplug_size=1G --memory-zone=id=b,size=2M",
        ),
        (
            "--kernel vmlinux",
            &["1G@0", "2G"],
            "--kernel vmlinux --memory size=0 --memory-zone id=firstlight0,size=1073741824,FILE0 \
             id=firstlight1,size=2147483648,FILE1 --numa guest_numa_id=0,memory_zones=firstlight0 \
             guest_numa_id=1,memory_zones=firstlight1",
            "--kernel vmlinux --memory size=0 --memory-zone id=firstlight0,size=1073741824,host_numa_node=0 \
             id=firstlight1,size=2147483648 --numa guest_numa_id=0,memory_zones=firstlight0 \
             guest_numa_id=1,memory_zones=firstlight1",
        ),
        (
            "--disk path=a path=b --memory-zone id=m,size=2M --memory size=0 -v",
            &[],
            "--disk path=a path=b --memory-zone id=m,size=2M,FILE0 --memory size=0 -v",
            "--disk path=a path=b --memory-zone id=m,size=2M --memory size=0 -v",
        ),
        (
            "--memory thp=off --kernel vmlinux",
            &[],
            "--memory size=0,thp=off --kernel vmlinux --memory-zone id=firstlight0,size=536870912,FILE0",
            "--memory thp=off,size=536870912 --kernel vmlinux",
        ),
    ];

    #[test]
    fn command_lines_before_and_after() {
        for (line, asked, expected, without) in CASES {
            let plan = plan(line, asked).unwrap_or_else(|error| panic!("{line}: {error}"));
            let files: Vec<_> = (0..plan.needs().len())
                .map(|at| Backing {
                    path: format!("/proc/self/fd/{}", 3 + at),
                    align_bytes: None,
                })
                .collect();
            let expected = expected
                .replace("FILE0", "file=/proc/self/fd/3,shared=on")
                .replace("FILE1", "file=/proc/self/fd/4,shared=on");
            assert_eq!(plan.with_memory(&files), words(&expected), "{line}");
            assert_eq!(
                plan.ordinary(),
                Ordinary::Arguments(words(without)),
                "{line}"
            );
        }
    }

    #[test]
    fn a_slab_lies_where_its_zone_is_to_be() {
        let needs = |line, asked: &[&str]| plan(line, asked).unwrap().needs().to_vec();
        let need = |bytes, node| Need { bytes, node };
        let zone = "--memory size=0 --memory-zone id=m,size=1G,host_numa_node=2";
        assert_eq!(needs(zone, &[]), [need(1 << 30, Some(2))]);
        assert_eq!(needs(zone, &["1G@2"]), [need(1 << 30, Some(2))]);
        assert_eq!(
            needs("--memory size=2048K", &["2M@1"]),
            [need(2 << 20, Some(1))]
        );
    }

    #[test]
    fn what_cannot_be_on_the_pool_is_refused_with_what_to_change() {
        for (line, asked, words) in [
            ("--api-socket /tmp/socket", &[][..], "how much memory"),
            ("--memory size=0", &[], "--memory-zone"),
            ("--memory size=1G,shared=off", &[], "shared=off would copy"),
            (
                "--memory size=0 --memory-zone id=m,size=1G,shared=off",
                &[],
                "memory zone m: shared=off",
            ),
            ("--memory size=0 --memory-zone size=1G", &[], "has an id"),
            (
                "--memory size=0 --memory-zone id=m,size=1G,file=/var/saved",
                &[],
                "/var/saved would not be used",
            ),
            ("--memory size=1G,hotplug_size=1G", &[], "virtio-mem"),
            (
                "--memory size=1G,hotplug_method=acpi,hotplug_size=1G",
                &[],
                "virtio-mem",
            ),
            ("--memory size=1G", &["2G"], "--memory size says 1 GiB"),
            (
                "--memory size=0 --memory-zone id=m,size=1G",
                &["2G"],
                "memory zone m says 1 GiB",
            ),
            (
                "--memory size=0 --memory-zone id=m,size=1G",
                &["1G", "1G"],
                "1 nodes",
            ),
            (
                "--memory size=0 --memory-zone id=m,size=1G,host_numa_node=1",
                &["1G@0"],
                "make them the same",
            ),
            (
                "--memory size=0 --memory-zone id=m,host_numa_node=x",
                &[],
                "no node of the host",
            ),
            (
                "--kernel k --numa guest_numa_id=0",
                &["1G", "1G"],
                "nodes with memory",
            ),
            ("--memory size=1T", &[], "no size"),
            ("--memory size=1GG", &[], "no size"),
            ("--memory size=-1", &[], "no size"),
            ("--memory size=18446744073709551615G", &[], "no size"),
            ("--memory 1G", &[], "property=value"),
            ("--memory-zone [id=a]", &[], "brackets"),
            (
                "--restore source_url=file:///saved",
                &["1G"],
                "its own memory",
            ),
        ] {
            let error = plan(line, asked)
                .map(|plan| plan.with_memory(&[]))
                .unwrap_err();
            assert!(error.to_string().contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn what_is_plugged_later_is_noted() {
        let line =
            "--memory size=0,hotplug_method=virtio-mem --memory-zone id=m,size=1G,hotplug_size=1G";
        assert_eq!(plan(line, &[]).unwrap().notes(), [PLUGGED]);
        assert!(plan("--memory size=1G", &[]).unwrap().notes().is_empty());
    }

    #[test]
    fn it_is_known_by_its_name() {
        for (name, is) in [
            ("cloud-hypervisor", true),
            ("/usr/local/bin/cloud-hypervisor-static-aarch64", true),
            ("cloud-hypervisors", false),
            ("ch-remote", false),
        ] {
            assert_eq!(is_it(name.as_ref()), is, "{name}");
        }
    }
}
