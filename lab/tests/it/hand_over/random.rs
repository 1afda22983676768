//! Hand-overs damaged at random. What they call usable is usable: an image that
//! is told to use what is no memory cannot but fail.

use super::acpi::{cpu_of, fadt, local_apic, madt, memory_of, mend, mend_root, slit, srat, x2apic};
use super::{HandOver, MIB, Row};
use firstlight_lab::boot::Machine;
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

/// What a loader leaves in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Table(usize),
    Xsdt,
    Root,
    StartInfo,
    Map,
    CommandLine,
    Module,
}

/// Some bytes that are written over a part.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    part: Part,
    at: Index,
    bytes: Vec<u8>,
    /// Whether the sum is made right afterwards.
    mended: bool,
}

/// The start info's pointer to the map begins here; it is not damaged, nor is what
/// comes after it.
const MAP_POINTER: usize = 40;

/// Numbers at which something changes.
const SPECIAL: [u64; 32] = [
    0,
    1,
    2,
    36,
    44,
    0xff,
    0x100,
    0xffff,
    0x1000,
    0xa_0000,
    0xf_0000,
    0x10_0000,
    0x20_0000,
    0x2b_0000,
    0x40_0000,
    0x500_0000,
    0x500_1000,
    0x800_0000,
    0xc000_0000,
    0xfec0_0000,
    0xfee0_0000,
    0xffff_ffff,
    1 << 32,
    1 << 36,
    1 << 39,
    1 << 40,
    1 << 47,
    1 << 48,
    1 << 52,
    1 << 62,
    1 << 63,
    u64::MAX,
];

/// Damages `part`, of which there is `bytes`.
pub(crate) fn apply(damages: &[Damage], part: Part, bytes: &mut [u8]) {
    for damage in damages.iter().filter(|damage| damage.part == part) {
        let end = match part {
            Part::StartInfo => MAP_POINTER,
            _ => bytes.len(),
        };
        // Fields lie at multiples of their size, but for the tables' headers.
        let at = damage.at.index(end) / damage.bytes.len() * damage.bytes.len();
        for (old, new) in bytes[at..end].iter_mut().zip(&damage.bytes) {
            *old = *new;
        }
        match part {
            Part::Root if damage.mended => mend_root(bytes),
            Part::Table(_) | Part::Xsdt if damage.mended => mend(bytes, 9, ..),
            _ => {}
        }
    }
}

fn special() -> impl Strategy<Value = u64> {
    let near = (select(&SPECIAL), -3..=3_i64);
    prop_oneof![
        select(&SPECIAL),
        near.prop_map(|(number, more)| number.wrapping_add_signed(more))
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    let part = prop_oneof![
        6 => (0..4_usize).prop_map(Part::Table),
        2 => Just(Part::Xsdt),
        1 => Just(Part::Root),
        1 => Just(Part::StartInfo),
    ];
    let number = |bytes| special().prop_map(move |number| number.to_le_bytes()[..bytes].to_vec());
    let bytes = prop_oneof![vec(any::<u8>(), 1), number(4), number(8)];
    let damage = (part, any::<Index>(), bytes, weighted(0.8));
    damage.prop_map(|(part, at, bytes, mended)| Damage {
        part,
        at,
        bytes,
        mended,
    })
}

/// A row of any kind but usable.
fn row() -> impl Strategy<Value = Row> {
    (special(), special(), select(&[0, 2, 3, 4, 5, 7, 8, 9, 12]))
}

fn tables() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let cpu = prop_oneof![
        4 => (0..4_u8).prop_map(local_apic),
        1 => any::<u32>().prop_map(x2apic),
    ];
    let distance = select(&[10, 20, 0, 255]);
    let nodes = select(&[1, 2, 5]);
    let parts = (vec(cpu, 1..6), nodes, vec(distance, 25));
    parts.prop_map(|(cpus, nodes, distances)| {
        let node_bytes = 256 * MIB / u64::from(nodes);
        let numbers = || (0..nodes).map(|node| (node, u64::from(node) * node_bytes));
        let memory = numbers().map(|(node, start)| memory_of(node, start, node_bytes));
        let cpus_of = (0..).zip(numbers()).map(|(id, (node, _))| cpu_of(node, id));
        let places: Vec<_> = memory.chain(cpus_of).collect();
        let square = &distances[..usize::try_from(nodes * nodes).unwrap()];
        let slit = slit(nodes.into(), square);
        vec![madt(&cpus), srat(&places), slit, fadt()]
    })
}

fn command_line() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "mem=64M",
        "memmap=4K$0x1000",
        "memmap=16M#1G",
        "kernelcore=50%",
        "movablecore=10M",
        "movable_node",
        "selftest",
        "descriptors=early",
    ];
    let words = subsequence(words.to_vec(), 0..4);
    let nonsense = vec(any::<u8>(), 0..40);
    (words, nonsense).prop_map(|(words, nonsense)| {
        let text = words.join(" ");
        [text.as_bytes(), b" tsc_hz=2000000000 ", &nonsense, &[0]].concat()
    })
}

/// Any of them.
pub(crate) fn hand_overs() -> impl Strategy<Value = HandOver> {
    let parts = (
        tables(),
        command_line(),
        vec(special(), 0..3),
        vec(row(), 0..4),
        vec(damage(), 0..6),
    );
    parts.prop_map(|(tables, command_line, pointers, rows, damages)| HandOver {
        tables,
        command_line,
        pointers,
        damages,
        machine: Machine {
            cpus: 4,
            ..HandOver::good().machine
        },
        ..HandOver::good().rows(rows)
    })
}
