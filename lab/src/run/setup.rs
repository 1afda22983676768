//! Which runs are of one set-up: [`Setup`], the key wherever runs stand together.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;

use super::Run;
use crate::record::DimmSlots;
use firstlight_figures::text::plural;

/// What runs of one set-up have in common, in the order in which set-ups are shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setup {
    /// What booted: `our image 0.1.0`, `Linux 6.12.1`.
    pub system: String,
    /// Which kernel it was, where several of one release ran with all else alike: the cell of
    /// a matrix, else the files as far as they differ.
    pub kernel: String,
    /// Its command line.
    pub words: String,
    /// Where it ran.
    pub machine: Machine,
}

/// Where a boot ran, and by which clock it was measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// `wall` or `instructions`.
    pub clock: String,
    /// QEMU's name of the board, where a boot was requested.
    pub board: Option<String>,
    /// `kvm`, `tcg`; `None` where no virtual machine is known of.
    pub accelerator: Option<String>,
    /// Nodes.
    pub nodes: Option<u64>,
    /// CPUs.
    pub cpus: Option<u64>,
    /// Memory to the byte.
    pub memory_bytes: Option<u64>,
    /// `loader` or `uefi`, where a boot was requested.
    pub firmware: Option<String>,
    /// Whether it has a memory balloon.
    pub balloon: bool,
    /// Its slots for DIMMs.
    pub hotplug: Option<DimmSlots>,
}

impl Setup {
    /// The set-up of each of `runs`.
    #[must_use]
    pub fn all<'r>(runs: impl Iterator<Item = &'r Run>) -> Vec<Self> {
        let runs: Vec<&Run> = runs.collect();
        let mut alike: BTreeMap<Self, Vec<&Run>> = BTreeMap::new();
        for run in &runs {
            alike.entry(Self::of(run)).or_default().push(run);
        }
        let labels = alike
            .into_iter()
            .map(|(setup, runs)| (setup, kernels(&runs)));
        let labels: BTreeMap<Self, BTreeMap<Kernel<'_>, String>> = labels.collect();
        let setup = |run: &&Run| {
            let mut setup = Self::of(run);
            let label = labels
                .get(&setup)
                .and_then(|labels| labels.get(&kernel(run)));
            setup.kernel = label.cloned().unwrap_or_default();
            setup
        };
        runs.iter().map(setup).collect()
    }

    /// The set-up of `run`, whatever else runs beside it.
    fn of(run: &Run) -> Self {
        let asked = run.machine.asked.as_ref();
        let release = run.release();
        // A log says neither what was requested nor, as a rule, that it is another machine.
        let alone = asked.is_none() && release.is_none();
        let file = Path::new(&run.source.name).file_name();
        let name = file.filter(|_| alone).map(OsStr::to_string_lossy);
        let parts = [
            kind(run),
            release.unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        ];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        Self {
            system: parts.collect::<Vec<_>>().join(" "),
            kernel: String::new(),
            words: run.source.command_line.clone(),
            machine: Machine {
                clock: run.clock.clone(),
                board: asked.map(|asked| asked.board.to_string()),
                accelerator: run.host.as_ref().map(|host| host.accelerator.clone()),
                nodes: asked.map(|asked| asked.nodes).or(run.machine.nodes),
                cpus: asked.map(|asked| asked.cpus).or(run.machine.cpus),
                memory_bytes: asked
                    .map(|asked| asked.memory_bytes)
                    .or(run.machine.memory_bytes),
                firmware: asked.map(|asked| asked.firmware.to_string()),
                balloon: asked.is_some_and(|asked| asked.balloon),
                hotplug: asked.and_then(|asked| asked.hotplug),
            },
        }
    }

    /// What stays over time: not the release, nor where its file is.
    #[must_use]
    pub fn over_releases(run: &Run) -> Self {
        Self {
            system: kind(run).to_owned(),
            kernel: run.source.cell.clone().unwrap_or_default(),
            ..Self::of(run)
        }
    }

    /// All but the memory, in words.
    #[must_use]
    pub fn family(&self) -> String {
        let mut parts = vec![self.system.clone()];
        parts.extend(Some(self.kernel.clone()).filter(|kernel| !kernel.is_empty()));
        parts.extend(self.machine.beside_memory());
        // All of them: set-ups may differ in the last word.
        parts.extend(Some(self.words.clone()).filter(|words| !words.is_empty()));
        parts.join(", ")
    }

    /// In words.
    #[must_use]
    pub fn name(&self) -> String {
        let memory = self.machine.memory_bytes.map(|bytes| memory(bytes) + ", ");
        format!("{}{}", memory.unwrap_or_default(), self.family())
    }
}

/// In what kernels and machines of two runs differ, where both are known.
pub(crate) fn unlike(sides: [&Run; 2]) -> Option<String> {
    let machines = sides.map(|run| &run.machine);
    let all = [
        sides.map(|run| run.release().map(|release| format!("Linux {release}"))),
        machines.map(|machine| machine.memory_bytes.map(memory)),
        machines.map(|machine| machine.nodes.map(|nodes| plural(nodes, "node"))),
        machines.map(|machine| machine.cpus.map(|cpus| plural(cpus, "CPU"))),
    ];
    let unlike = all.into_iter().filter_map(|[a, b]| {
        let (a, b) = (a?, b?);
        (a != b).then(|| format!("{a} and {b}"))
    });
    let unlike: Vec<String> = unlike.collect();
    (!unlike.is_empty()).then(|| unlike.join(", "))
}

impl Machine {
    /// In words: `16 GiB, 1 node, 2 CPUs, emulated`.
    #[must_use]
    pub fn name(&self) -> String {
        let memory = self.memory_bytes.map(memory);
        let parts: Vec<String> = memory.into_iter().chain(self.beside_memory()).collect();
        if parts.is_empty() {
            return "a machine of which nothing is known".into();
        }
        parts.join(", ")
    }

    /// Whether times tell of an emulator.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.accelerator.as_deref() == Some("tcg") && self.clock == "wall"
    }

    fn beside_memory(&self) -> Vec<String> {
        let mut parts = Vec::new();
        parts.extend(self.nodes.map(|nodes| plural(nodes, "node")));
        parts.extend(self.cpus.map(|cpus| plural(cpus, "CPU")));
        // The board that stands for a PC where none is named.
        parts.extend(self.board.clone().filter(|board| board != "q35"));
        // QEMU's own loader likewise.
        parts.extend(
            self.firmware
                .clone()
                .filter(|firmware| firmware != "loader"),
        );
        parts.extend(self.balloon.then(|| "balloon".to_owned()));
        parts.extend(self.hotplug.map(|hotplug| {
            let (slots, most) = (hotplug.slots.into(), memory(hotplug.max_memory_bytes));
            format!("{} for DIMMs up to {most}", plural(slots, "slot"))
        }));
        parts.extend(self.is_emulated().then(|| "emulated".to_owned()));
        parts
    }
}

/// What tells kernels of one release apart: the cell of a matrix, the kernel's file, its initial
/// file system.
type Kernel<'r> = [&'r str; 3];

fn kernel(run: &Run) -> Kernel<'_> {
    let of = run.source.kernel.as_ref();
    let files = [
        of.and_then(|of| of.file.as_deref()),
        of.and_then(|of| of.initrd.as_deref()),
    ];
    let [file, initrd] = files.map(Option::unwrap_or_default);
    [run.source.cell.as_deref().unwrap_or_default(), file, initrd]
}

/// The kernels of runs that are alike in all else, each with a name for it; an empty one where
/// there is no other.
fn kernels<'r>(runs: &[&'r Run]) -> BTreeMap<Kernel<'r>, String> {
    let kernels: BTreeSet<Kernel<'_>> = runs.iter().map(|run| kernel(run)).collect();
    let common = [0, 1, 2].map(|part| common(kernels.iter().filter_map(|one| one.get(part))));
    let in_cells = kernels.iter().all(|[cell, ..]| !cell.is_empty());
    let name = |kernel: &Kernel<'r>| {
        let parts = kernel.iter().zip(common).enumerate();
        // A cell says more than the places of its files.
        let parts = parts.filter(|(part, _)| (*part == 0) == in_cells);
        let own = parts.map(|(_, (text, common))| text.get(common..).unwrap_or(text));
        own.filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(" + ")
    };
    kernels
        .iter()
        .map(|kernel| (*kernel, name(kernel)))
        .collect()
}

/// Bytes of the folders in which all of `paths` are; all bytes where they are one.
fn common<'p>(paths: impl Iterator<Item = &'p &'p str>) -> usize {
    let paths: Vec<&str> = paths.copied().collect();
    let Some((first, others)) = paths.split_first() else {
        return 0;
    };
    if others.iter().all(|path| path == first) {
        return first.len();
    }
    let folders = first.match_indices('/').map(|(at, _)| at + 1);
    let shared = |at: &usize| {
        others
            .iter()
            .all(|path| path.get(..*at) == first.get(..*at))
    };
    folders.take_while(shared).last().unwrap_or(0)
}

fn kind(run: &Run) -> &str {
    match &*run.source.kind {
        "image" => "our image",
        "linux" => "Linux",
        other => other,
    }
}

/// Memory of a machine; what firmware keeps of it does not count.
#[must_use]
pub fn memory(bytes: u64) -> String {
    let gib = bytes.saturating_add(512 << 20) >> 30;
    if bytes.abs_diff(gib << 30) <= bytes / 100 {
        format!("{gib} GiB")
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn run(asked: &Value) -> Run {
        let mut machine = json!({"board": "q35", "memory_bytes": 1 << 30, "nodes": 1, "cpus": 1});
        let fields = machine.as_object_mut().unwrap();
        fields.extend(asked.as_object().unwrap().clone());
        Run::of(json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
            "source": {"kind": "image"}, "machine": {"asked": machine},
            "milestones": {}, "phases": [],
        }))
        .unwrap()
    }

    #[test]
    fn firmware_balloon_and_slots_for_dimms_tell_setups_apart() {
        let slots = |max: u64| json!({"hotplug": {"slots": 2, "max_memory_bytes": max << 30}});
        // Records of older versions say none of it: QEMU's own loader, without either.
        let plain = json!({"firmware": "loader", "balloon": false, "hotplug": null});
        let asked = [
            json!({}),
            plain,
            json!({"firmware": "uefi"}),
            json!({"balloon": true}),
            slots(4),
            slots(8),
        ];
        let runs = asked.map(|asked| run(&asked));
        let setups = Setup::all(runs.iter());
        assert_eq!(setups[0], setups[1]);
        let names: BTreeSet<String> = setups.iter().map(Setup::name).collect();
        assert_eq!(names.len(), 5, "{names:?}");
        assert_eq!(setups.iter().collect::<BTreeSet<_>>().len(), 5);
        let over_time: BTreeSet<Setup> = runs.iter().map(Setup::over_releases).collect();
        assert_eq!(over_time.len(), 5);
        assert!(setups[4].name().contains("2 slots for DIMMs up to 4 GiB"));
    }
}
