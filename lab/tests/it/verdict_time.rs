//! A verdict on the wall clock counts from power-on by the host's clock: where the kernel's own
//! clock begins says nothing of how long a boot takes.

use firstlight_lab::gate::{Case, Outcome, Rules, judge};
use firstlight_lab::records::Folder;
use firstlight_lab::run::Run;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

/// A boot that takes 5,900 ms by the host's clock. Its own clock begins at the third line or
/// at the fifth, at 0.
fn boot(words: &str, late: bool, run: u64) -> Value {
    let lines = [
        ("Linux version 6.12.0", 900),
        ("printk: legacy bootconsole [earlyser0] enabled", 901),
        ("Zone ranges:", 1000),
        (
            "CPU topo: Allowing 2 present CPUs plus 0 hotplug CPUs",
            1700,
        ),
        ("Dentry cache hash table entries: 131072", 1800),
        (
            "mem auto-init: stack:off, heap alloc:off, heap free:off",
            2000,
        ),
        (
            "SLUB: HWalign=64, Order=0-3, MinObjects=0, CPUs=2, Nodes=1",
            5000,
        ),
        ("smp: Bringing up secondary CPUs ...", 5100),
        ("Run /init as init process", 5900),
    ];
    let begins = if late { 1800 } else { 1000 };
    let jitter = run * 7 % 5;
    let stamp = |ms: u64| match (ms + jitter).checked_sub(begins) {
        Some(since) if ms >= begins => format!("{}.{:03}000", since / 1000, since % 1000),
        _ => "0.000000".into(),
    };
    let log = lines.map(|(text, ms)| format!("[    {}] {text}", stamp(ms)));
    let heard = lines.map(|(_, ms)| (ms + jitter) * MS);
    json!({
        "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
        "source": {"kind": "linux", "command_line": words, "kernel": {"release": "6.12.0"}},
        "machine": {"asked": {"board": "q35", "memory_bytes": 1 << 30, "nodes": 1, "cpus": 2}},
        // What an older version made of it.
        "milestones": {"all_allocatable_ns": (5000 - begins) * MS},
        "phases": [{"name": "kernel", "start_ns": 0, "end_ns": (5900 - begins) * MS}],
        "log": log, "host": {"accelerator": "kvm", "lines_ns": heard},
    })
}

fn folder(make: impl Fn(u64) -> Value) -> Folder {
    let runs = (0..20).map(|run| serde_json::to_vec(&make(run)).unwrap());
    Folder {
        runs: runs.map(|text| Run::read(&text).unwrap()).collect(),
        ..Folder::default()
    }
}

fn verdict(a: &Folder, b: &Folder) -> firstlight_lab::gate::Verdict {
    let case = Case::of_folders(("a", a), ("b", b)).unwrap();
    judge(&case, &Rules::default())
}

#[test]
fn a_clock_that_begins_later_is_no_change() {
    let (a, b) = (
        folder(|run| boot("", false, run)),
        folder(|run| boot("tsc_early_khz=2000000", true, run)),
    );
    let verdict = verdict(&a, &b);
    assert_eq!(verdict.verdict, Outcome::Pass, "{:?}", verdict.moved);
    let group = &verdict.groups[0];
    assert_eq!(group.counted_from, "power-on");
    let figure = |name: &str| {
        let row = group.rows.iter().find(|row| row.name == name);
        let row = row.unwrap_or_else(|| panic!("no {name} in {:?}", group.rows));
        [row.a_ns, row.b_ns].map(|ns| (ns / 1e6).round())
    };
    assert_eq!(figure("total"), [5902.0, 5902.0]);
    assert_eq!(figure("all memory allocatable"), [5002.0, 5002.0]);
    // Phases before the kernel's own clock have a time as well.
    assert_eq!(figure("memmap early"), [700.0, 700.0]);
    assert_eq!(figure("firmware and loader"), [902.0, 902.0]);
}

/// Logs alone have the kernel's clock and nothing else.
fn log_of(record: &Value, run: u64) -> Value {
    let mut log = record.clone();
    log["kind"] = "log".into();
    log["host"] = Value::Null;
    log["phases"] = json!([]);
    // Times of the same boot, a little apart.
    log["source"]["name"] = format!("{run}.log").into();
    log
}

#[test]
fn logs_whose_clocks_begin_at_different_lines_count_from_a_phase_that_both_have() {
    let (a, b) = (
        folder(|run| log_of(&boot("", false, run), run)),
        folder(|run| log_of(&boot("tsc_early_khz=2000000", true, run), run)),
    );
    let verdict = verdict(&a, &b);
    assert_eq!(
        verdict.verdict,
        Outcome::Pass,
        "{:?} {:?}",
        verdict.moved,
        verdict.unclear
    );
    let group = &verdict.groups[0];
    assert!(
        group.counted_from.starts_with("the start of "),
        "{}",
        group.counted_from
    );
    // How long a phase took that began before the clock is not known, and not 0.
    assert!(
        group.rows.iter().all(|row| row.name != "memmap early"),
        "{:?}",
        group.rows
    );
    assert!(
        group.absent.iter().any(|name| name == "memmap early"),
        "{:?}",
        group.absent
    );
}

#[test]
fn a_console_that_comes_late_leaves_early_phases_without_a_time() {
    let late = |run| {
        let mut record = boot("", false, run);
        record["log"][1] = json!("[    0.000000] a line");
        record["log"][5] = json!("[    1.000000] printk: console [ttyS0] enabled");
        let heard = record["host"]["lines_ns"].as_array_mut().unwrap();
        for line in heard.iter_mut().take(6) {
            *line = (2000 * MS).into();
        }
        record
    };
    let runs = folder(late);
    let verdict = verdict(&runs, &runs);
    let names: Vec<&str> = verdict.groups[0]
        .rows
        .iter()
        .map(|row| &*row.name)
        .collect();
    assert!(
        !names.contains(&"memmap early") && !names.contains(&"firmware and loader"),
        "{names:?}"
    );
    assert!(
        names.contains(&"total") && names.contains(&"SMP"),
        "{names:?}"
    );
}
