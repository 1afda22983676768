//! Large hash tables: Linux's eight, and the same ones by our growth.
//!
//! *Linux counts what is present, less the descriptors of all zones, less low memory.* That
//! gives the sizes of all recorded boots. 6.12 counts what is free when it makes the table, which is
//! a little less; where that might halve a table, its size is an estimate.

use std::collections::BTreeMap;

use firstlight::addr::{Frame, FrameRange, PAGE_BYTES};
use firstlight::cmdline::{CommandLine, parse_number};
use firstlight::layout::{Layout, Zone};
use firstlight::tables::{Growth, TableSize, TableSpec};
use serde::Serialize;

use super::pages::Pages;
use super::{Flavour, LayoutInput};
use crate::log::Processor;

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 64;
/// Where low memory ends, which is reserved on a PC.
const LOW_END: Frame = Frame::new(256);
/// What a kernel may have taken besides before it makes tables, in frames: an image and an
/// initial file system of 96 MiB, and a sixty-fourth of memory.
const TAKEN_FRAMES: u64 = 96 << 8;
const TAKEN_SHARE: u64 = 64;

/// A hash table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HashAnswer {
    /// Buckets.
    pub entries: u64,
    /// log2 of its pages, negative below a page.
    pub order: i32,
    /// Bytes.
    pub bytes: u64,
    /// `linear`: one block of one node; `vmalloc`, `vmalloc hugepage`: pages, or huge pages, of all nodes.
    pub kind: &'static str,
}

/// One of Linux's tables.
struct LinuxTable {
    spec: TableSpec,
    /// The word of the command line that sets the number of its buckets.
    word: &'static str,
    /// Made while there is only early memory, if it is on one node.
    early: bool,
}

const fn table(
    name: &'static str,
    scale: u32,
    bucket_bytes: u64,
    word: &'static str,
    most: Option<u64>,
) -> LinuxTable {
    LinuxTable {
        spec: TableSpec {
            name,
            bucket_bytes,
            scale,
            least: 1,
            most,
        },
        word,
        early: false,
    }
}

/// Those whose size follows memory.
const TABLES: [LinuxTable; 6] = [
    LinuxTable {
        early: true,
        ..table("dentry", 13, 8, "dhash_entries", None)
    },
    LinuxTable {
        early: true,
        ..table("inode", 14, 8, "ihash_entries", None)
    },
    table("mount", 19, 8, "mhash_entries", None),
    table("mountpoint", 19, 8, "mphash_entries", None),
    table("tcp_est", 17, 8, "thash_entries", Some(512 << 10)),
    table("udp", 21, 32, "uhash_entries", Some(64 << 10)),
];
/// Fewest buckets for UDP.
const LEAST_UDP: u64 = 256;
/// Most buckets for bound TCP ports, which follow the established connections.
const MOST_TCP_BIND: u64 = 64 << 10;
const TCP_BIND_BYTES: u64 = 32;
/// Buckets of futexes for each CPU, and their bytes.
const FUTEX_A_CPU: u64 = 256;
const FUTEX_BYTES: u64 = 64;

/// All tables.
pub(super) struct Tables {
    /// By name.
    pub(super) all: BTreeMap<&'static str, HashAnswer>,
    /// Which of them are estimates.
    pub(super) estimated: Vec<&'static str>,
    /// Sizes of the command line that are too large.
    pub(super) notices: Vec<String>,
}

/// The tables of a machine.
pub(super) fn tables(layout: &Layout<'_>, input: &LayoutInput, flavour: Flavour) -> Tables {
    let line = CommandLine::new(input.command_line.as_bytes());
    let pages = Pages::of(input, flavour);
    let frames = usable_frames(layout, input.processor, pages);
    let free = frames.saturating_sub(TAKEN_FRAMES + frames / TAKEN_SHARE);
    let place = Place::new(layout, line, flavour, pages);
    let (mut all, mut estimated, mut notices) = (BTreeMap::new(), Vec::new(), Vec::new());
    let growth = match flavour {
        Flavour::Firstlight => Growth::SquareRoot,
        Flavour::Linux6_1 | Flavour::Linux6_12 => Growth::Stepped,
    };
    let mut connections = 0;
    for LinuxTable { spec, word, early } in &TABLES {
        let spec = with_limits(*spec, flavour);
        let given = number(line, word);
        let of = |frames| match given {
            // What is too large becomes the most there can be.
            Some(buckets) => spec
                .given(buckets, frames)
                .unwrap_or_else(|refused| refused.most),
            None => at_least_a_page(spec.size(frames, growth), spec, pages),
        };
        let size = of(frames);
        if let Some(Err(refused)) = given.map(|buckets| spec.given(buckets, frames)) {
            notices.push(format!("{word}: {refused}; it has those"));
        }
        if flavour == Flavour::Linux6_12 && of(free) != size {
            estimated.push(spec.name);
        }
        if spec.name == "tcp_est" {
            connections = size.buckets;
        }
        all.insert(spec.name, place.answer(size, *early));
    }
    let power = |buckets: u64, each: u64| {
        let buckets = buckets.checked_next_power_of_two().unwrap_or(1);
        TableSize {
            buckets,
            bytes: buckets * each,
        }
    };
    let ports = power(connections.clamp(1, MOST_TCP_BIND), TCP_BIND_BYTES);
    all.insert("tcp_bind", place.answer(ports, false));
    let cpus = u64::from(input.cpu_count.max(1));
    all.insert(
        "futex",
        place.answer(power(FUTEX_A_CPU * cpus, FUTEX_BYTES), false),
    );
    if estimated.contains(&"tcp_est") && connections <= MOST_TCP_BIND {
        estimated.push("tcp_bind");
    }
    Tables {
        all,
        estimated,
        notices,
    }
}

/// Linux has a least size for UDP; ours has no limits but memory.
fn with_limits(spec: TableSpec, flavour: Flavour) -> TableSpec {
    let least = match spec.name {
        "udp" => LEAST_UDP,
        _ => spec.least,
    };
    let most = spec.most.filter(|_| flavour.is_linux());
    TableSpec {
        least,
        most,
        ..spec
    }
}

/// No table that follows memory is smaller than a page.
fn at_least_a_page(size: TableSize, spec: TableSpec, pages: Pages) -> TableSize {
    let buckets = size.buckets.max(pages.bytes() / spec.bucket_bytes);
    TableSize {
        buckets,
        bytes: buckets * spec.bucket_bytes,
    }
}

/// The number that the command line sets for `word`; 0 is none.
fn number(line: CommandLine<'_>, word: &str) -> Option<u64> {
    let values = line.words().filter(|seen| seen.is(word));
    let value = values.last()?.value?;
    let (number, _) = parse_number(value).ok()?;
    Some(number).filter(|number| *number > 0)
}

/// Frames a kernel counts when it sizes tables.
fn usable_frames(layout: &Layout<'_>, processor: Processor, pages: Pages) -> u64 {
    let low_end = match processor {
        Processor::X86_64 => LOW_END,
        Processor::Arm64 => Frame::new(0),
    };
    let low = FrameRange::new(0, low_end.get()).unwrap_or_default();
    let ranges = layout.ranges().iter();
    let reserved: u64 = ranges
        .map(|range| range.frames.intersect(low).count())
        .sum();
    let zones = layout.zones().iter();
    let all: u64 = zones
        .map(|zone| {
            zone.present_frames
                .saturating_sub(descriptor_frames(zone, pages))
        })
        .sum();
    all.saturating_sub(reserved)
}

/// Frames of a zone's descriptors: of its span, unless more than a sixteenth of that is holes.
fn descriptor_frames(zone: &Zone, pages: Pages) -> u64 {
    let (spanned, present) = (zone.span.count(), zone.present_frames);
    let described = if spanned > present + present / 16 {
        present
    } else {
        spanned
    };
    let bytes = pages.in_frames(described) * DESCRIPTOR_BYTES;
    bytes.next_multiple_of(pages.bytes()) / PAGE_BYTES
}

/// Where tables lie.
struct Place {
    /// Nodes they are spread over; 1: they are not.
    nodes: u64,
    pages: Pages,
}

impl Place {
    /// Linux spreads tables where more than one node has memory, unless `hashdist=0`; then over all nodes
    /// it has online.
    fn new(layout: &Layout<'_>, line: CommandLine<'_>, flavour: Flavour, pages: Pages) -> Self {
        let nodes = layout.nodes().iter();
        let with_memory = nodes.clone().filter(|node| node.has_memory()).count() as u64;
        let online = nodes
            .filter(|node| node.has_memory() || node.cpus > 0)
            .count() as u64;
        let words = line.words().filter(|word| word.is("hashdist"));
        let off = words.last().is_some_and(|word| word.value == Some(b"0"));
        let spread = with_memory > 1 && !off;
        Self {
            nodes: match (spread, flavour.is_linux()) {
                (false, _) => 1,
                (true, true) => online,
                (true, false) => with_memory,
            },
            pages,
        }
    }

    fn answer(&self, size: TableSize, early: bool) -> HashAnswer {
        let pages_of_all =
            self.nodes > 1 || !early && size.bytes > self.pages.largest_block_bytes();
        HashAnswer {
            entries: size.buckets,
            order: self.pages.order(size.bytes),
            bytes: size.bytes,
            kind: match pages_of_all {
                false => "linear",
                true if size.bytes / self.nodes >= self.pages.huge_bytes() => "vmalloc hugepage",
                true => "vmalloc",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use firstlight::map::{MapEntry, MemoryKind};

    use super::super::{LayoutAnswer, layout_of};
    use super::*;

    /// Memory from 1 MiB to 4 GiB plus so many times 64 frames. Linux counts 63 of each 64: a frame of
    /// each holds descriptors.
    fn machine(more: u64, command_line: &str, flavour: Flavour) -> LayoutAnswer {
        let end = (1 << 20) + 64 * more;
        let entry = MapEntry::inclusive(1 << 20, end * PAGE_BYTES - 1, MemoryKind::Usable);
        let input = LayoutInput {
            map: entry.into_iter().collect(),
            command_line: command_line.into(),
            ..LayoutInput::default()
        };
        layout_of(&input, flavour).unwrap()
    }

    /// What [`machine`] has without descriptors, in frames.
    fn counted(more: u64) -> u64 {
        (1 << 20) - 256 - (3840 + (1 << 20) - 4096) / 64 + 63 * more
    }

    /// Memory that makes a difference to each table: 1.5 MiB, as UDP's has a bucket for 2 MiB.
    const STEP: u64 = 6;

    /// The last machine below each power of two in frames, and its tables that double a step above.
    const EDGES: [(u32, u64, &[&str]); 4] = [
        (
            20,
            264,
            &[
                "dentry",
                "inode",
                "mount",
                "mountpoint",
                "tcp_est",
                "udp",
                "tcp_bind",
            ],
        ),
        // Bound ports have their most buckets at 8 GiB,
        (
            21,
            16_908,
            &["dentry", "inode", "mount", "mountpoint", "tcp_est", "udp"],
        ),
        // connections at 64 GiB, from where on tables without a limit grow half as fast,
        (24, 249_925, &["udp"]),
        // and UDP at 128 GiB.
        (25, 516_230, &["dentry", "inode", "mount", "mountpoint"]),
    ];

    #[test]
    fn only_6_12_s_tables_just_above_a_power_of_two_are_estimates() {
        for (power, more, doubled) in EDGES {
            assert!((1 << power) - 63 < counted(more) && counted(more) <= 1 << power);
            let below = machine(more, "", Flavour::Linux6_12);
            let above = machine(more + STEP, "", Flavour::Linux6_12);
            assert!(below.hash_estimated.is_empty(), "{power}");
            assert_eq!(above.hash_estimated, doubled, "{power}");
            for (name, table) in &above.hash {
                let factor = if doubled.contains(name) { 2 } else { 1 };
                let expected = factor * below.hash[name].entries;
                assert_eq!(table.entries, expected, "{power}: {name}");
            }
            // What is free is known in 6.1, and in ours: present memory counts there.
            let same = machine(more + STEP, "", Flavour::Linux6_1);
            assert_eq!(same.hash, above.hash);
            assert!(same.hash_estimated.is_empty(), "{power}");
            let ours = machine(more + STEP, "", Flavour::Firstlight);
            assert!(ours.hash_estimated.is_empty(), "{power}");
        }
    }

    #[test]
    fn estimates_end_where_what_may_be_taken_halves_no_table() {
        // 96 MiB and a sixty-fourth above 8 GiB.
        let last = 17_832;
        let free = |more| counted(more) - TAKEN_FRAMES - counted(more) / TAKEN_SHARE;
        assert!(free(last) <= 1 << 21 && free(last + 1) > 1 << 21);
        let estimated = |more| machine(more, "", Flavour::Linux6_12).hash_estimated;
        assert_eq!(estimated(last), EDGES[1].2);
        assert_eq!(estimated(last + 1), ["udp"]);
        assert!(estimated(last + 1 + STEP).is_empty());
    }

    #[test]
    fn a_size_that_is_given_is_no_estimate() {
        let line = "dhash_entries=4096 thash_entries=1024";
        let answer = machine(264 + STEP, line, Flavour::Linux6_12);
        assert_eq!(
            answer.hash_estimated,
            ["inode", "mount", "mountpoint", "udp"]
        );
        assert_eq!(answer.hash["dentry"].entries, 4096);
        assert_eq!(answer.hash["tcp_bind"].entries, 1024);
        assert!(answer.notices.is_empty(), "{:?}", answer.notices);
    }

    #[test]
    fn a_given_size_that_is_too_large_is_reported() {
        let line = "dhash_entries=0x100000000 ihash_entries=1024 uhash_entries=131072";
        // A sixteenth of 4 GiB; ours has no other limit for UDP, Linux has one.
        let (names, udp) = (
            "dhash_entries: table \"dentry\" of 4294967296 buckets: expected at most 33554432",
            "uhash_entries: table \"udp\" of 131072 buckets: expected at most 65536",
        );
        for (flavour, expected) in [
            (Flavour::Firstlight, &[names][..]),
            (Flavour::Linux6_1, &[names, udp]),
            (Flavour::Linux6_12, &[names, udp]),
        ] {
            let answer = machine(264 + STEP, line, flavour);
            assert_eq!(answer.notices.len(), expected.len(), "{flavour}");
            for (notice, expected) in answer.notices.iter().zip(expected) {
                assert!(notice.starts_with(expected), "{flavour}: {notice}");
            }
            assert_eq!(answer.hash["dentry"].entries, 32 << 20);
            assert_eq!(answer.hash["inode"].entries, 1024);
        }
    }
}
