//! Replays the early allocations of real Linux boots: each request of a
//! `memblock=debug` trace goes to [`EarlyMemory`], which must give the very
//! address Linux gave.
//!
//! What a trace does not say, and the rule used for it:
//!
//! - The state at the start is the first `MEMBLOCK configuration` printed.
//! - Nodes appear with the second one; Linux sets them on memory just before the
//!   node data is allocated, so that is where they are set here.
//! - Node data has no request line: its size is that of the range printed, its
//!   alignment a cache line (64 bytes), its node preferred.
//! - `max_addr=0` means the current limit. All such requests come after the whole
//!   of memory was mapped, so the limit does not bite; `memblock_phys_alloc_range`,
//!   which comes before that, names its bounds and is not held to the limit.
//! - `memblock_alloc_*` gives up its lower bound rather than fail,
//!   `memblock_phys_alloc_range` does not; only names with `exact_nid` insist on the node.

use crate::common;

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion, EarlyRequest};
use firstlight::node::NodeId;
use firstlight_lab::log::{
    KernelLog, MemblockAction, MemblockDump, MemblockRequest, MemblockRow, NodeRow, read,
};

const CACHE_LINE_BYTES: u64 = 64;
/// The function whose reservations answer requests.
const ANSWER: &str = "memblock_alloc_range_nid+";

fn node(id: u32) -> NodeId {
    NodeId(u16::try_from(id).unwrap())
}

fn range(row: &MemblockRow) -> PhysRange {
    row.span.range().unwrap()
}

/// Flags as printed in a dump.
fn flags(bits: u64) -> EarlyFlags {
    let known = [
        (1, EarlyFlags::HOTPLUG),
        (2, EarlyFlags::MIRROR),
        (4, EarlyFlags::NOMAP),
        (8, EarlyFlags::DRIVER_MANAGED),
        (16, EarlyFlags::NO_INIT),
    ];
    let set = known.iter().filter(|(bit, _)| bits & bit != 0);
    set.fold(EarlyFlags::NONE, |flags, (_, flag)| flags | *flag)
}

fn start_from(early: &mut EarlyMemory<'_>, dump: &MemblockDump) {
    for row in &dump.memory {
        early.add(range(row), flags(row.flags)).unwrap();
    }
    for row in &dump.reserved {
        early.reserve(range(row), "before the trace").unwrap();
        early
            .set_reserved_flags(range(row), flags(row.flags))
            .unwrap();
    }
}

fn translate(request: &MemblockRequest) -> EarlyRequest {
    let align = if request.align == 0 {
        CACHE_LINE_BYTES
    } else {
        request.align
    };
    let physical = request.function == "memblock_phys_alloc_range";
    EarlyRequest {
        min: PhysAddr::new(request.from),
        max: (request.max != 0).then_some(PhysAddr::new(request.max)),
        node: request.node.map(node),
        exact_node: request.function.contains("exact_nid"),
        soft_min: !physical,
        ignore_limit: physical,
        ..EarlyRequest::new(request.bytes, align, "replay")
    }
}

/// What touches is one range here, whatever its node: dumps split reserved ranges by node.
fn union<'a>(ranges: impl Iterator<Item = &'a PhysRange>) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.1 == range.start().get() => last.1 = range.end().get(),
            _ => merged.push((range.start().get(), range.end().get())),
        }
    }
    merged
}

/// The second dump must be our state.
fn compare(early: &EarlyMemory<'_>, dump: &MemblockDump, name: &str) {
    let ours: Vec<_> = early
        .memory()
        .iter()
        .map(|r| (r.range, r.node, r.flags))
        .collect();
    let theirs = dump
        .memory
        .iter()
        .map(|row| (range(row), row.node.map(node), flags(row.flags)));
    assert_eq!(
        ours,
        theirs.collect::<Vec<_>>(),
        "{name}: memory at line {}",
        dump.line
    );
    let ours: Vec<_> = early.reserved().iter().map(|r| r.range).collect();
    let theirs: Vec<_> = dump.reserved.iter().map(range).collect();
    assert_eq!(
        union(ours.iter()),
        union(theirs.iter()),
        "{name}: reserved at line {}",
        dump.line
    );
}

fn check(name: &str, line: usize, what: &str, ours: PhysRange, linux: PhysRange) {
    assert_eq!(ours, linux, "{name}.log line {line}: {what}");
}

/// Answers a reservation that has no request line: it must be node data.
fn node_data(early: &mut EarlyMemory<'_>, row: &NodeRow, name: &str) {
    let linux = row.span.range().unwrap();
    let request =
        EarlyRequest::new(linux.bytes(), CACHE_LINE_BYTES, "node data").on(node(row.node));
    check(
        name,
        row.line,
        "node data",
        early.allocate(&request).unwrap(),
        linux,
    );
}

/// Replays one log; the number of allocations that were checked.
fn replay(name: &str, log: &KernelLog) -> usize {
    let [first, second] = log.memblock_dumps.as_slice() else {
        panic!("{name}: {} dumps", log.memblock_dumps.len())
    };
    let mut memory = [EarlyRegion::EMPTY; 32];
    let mut reserved = [EarlyRegion::EMPTY; 128];
    let mut owners = [Allocation::EMPTY; 256];
    let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
    start_from(&mut early, first);
    let mut checked = 0;
    let (mut nodes_known, mut compared) = (false, false);
    let mut pending: Option<&MemblockRequest> = None;
    for event in log.memblock.iter().filter(|event| event.line > first.line) {
        if event.line > second.line && !compared {
            compare(&early, second, name);
            compared = true;
        }
        match &event.what {
            MemblockAction::Request(request) => {
                assert!(
                    pending.is_none(),
                    "{name}.log line {}: unanswered",
                    event.line
                );
                pending = Some(request);
            }
            MemblockAction::Reserve(span) if event.caller.starts_with(ANSWER) => {
                let linux = span.range().unwrap();
                if let Some(request) = pending.take() {
                    let ours = early.allocate(&translate(request)).unwrap();
                    check(name, event.line, &format!("{request:?}"), ours, linux);
                } else {
                    if !nodes_known {
                        for row in second.memory.iter() {
                            early.set_node(range(row), node(row.node.unwrap())).unwrap();
                        }
                        nodes_known = true;
                    }
                    let row = log.node_data.iter().find(|row| row.line == event.line + 1);
                    node_data(&mut early, row.unwrap(), name);
                }
                checked += 1;
            }
            MemblockAction::Reserve(span) => early.reserve(span.range().unwrap(), "named").unwrap(),
            MemblockAction::Free(span) => early.free(span.range().unwrap()).unwrap(),
            MemblockAction::Add(span) => {
                early.add(span.range().unwrap(), EarlyFlags::NONE).unwrap();
            }
            MemblockAction::Remove(span) => early.remove(span.range().unwrap()).unwrap(),
        }
    }
    assert!(compared && pending.is_none(), "{name}");
    assert_eq!(early.untracked(), 0, "{name}");
    checked
}

#[test]
fn every_trace_gives_the_addresses_linux_gave() {
    let boots = common::golden();
    let traced = boots
        .iter()
        .filter(|boot| boot.name.starts_with(['D', 'N']));
    let (mut logs, mut total) = (0, 0);
    for boot in traced {
        let log = read(&common::log(&boot.name));
        assert_eq!(log.problems, [], "{}", boot.name);
        let checked = replay(&boot.name, &log);
        println!(
            "{:24} {checked} allocations at Linux's addresses",
            boot.name
        );
        assert!(checked > 45, "{}: only {checked}", boot.name);
        (logs, total) = (logs + 1, total + checked);
    }
    println!("{logs} logs, {total} allocations");
    assert_eq!(logs, 25);
    // One answer a request line and one a node's data: none was passed over.
    assert_eq!(total, 1529, "allocations in all traces");
}
