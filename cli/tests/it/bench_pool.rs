//! `firstlight bench pool`: the document has its rows, everything is given back,
//! and what is missing is said. No figure is looked at: a busy machine has any.

use crate::common;
use crate::common::guest;

use firstlight_pool::os::hugepages::{self, SYS};
use firstlight_pool::os::need::skip;
use guest::qemu_is_here;
use serde_json::Value;
use std::path::Path;

const HUGE: u64 = 2 << 20;

fn check(document: &Value, page: &str) {
    assert_eq!(document["schema"], "firstlight.bench-pool/1");
    assert_eq!(document["page"], page);
    check_further(document);
    let rows = document["rows"].as_array().expect("rows");
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["size_bytes"].as_u64(),
                row["variant"].as_str(),
                row["runs"].as_u64(),
            )
        })
        .collect();
    let expected = [32_u64 << 20, 64 << 20].into_iter().flat_map(|bytes| {
        ["floor", "prealloc", "prealloc-threads", "prefault", "pool"]
            .map(|variant| (Some(bytes), Some(variant), Some(2)))
    });
    assert_eq!(seen, expected.collect::<Vec<_>>());
    for row in rows {
        for field in ["spawn_to_qmp_ms", "spawn_to_guest_ms"] {
            let number = |name: &str| row[field][name].as_f64().expect("a number");
            let (min, median, max) = (number("min"), number("median"), number("max"));
            assert!(0.0 < min && min <= median && median <= max, "{row}");
        }
        assert_eq!(row["take_ms"].is_null(), row["variant"] != "pool", "{row}");
    }
}

/// Three guests at once share the largest size; every take's time is counted.
fn check_further(document: &Value) {
    let crowd = &document["at_once"];
    assert_eq!(
        (&crowd["guests"], &crowd["size_bytes"]),
        (&Value::from(3), &Value::from(20 << 20))
    );
    assert_eq!(document["take_round_trip"]["takes"], 32);
    assert!(document["cost"].is_null(), "it was not requested");
}

#[test]
fn what_filling_costs_is_measured_where_it_is_asked_for() {
    if !qemu_is_here() {
        return;
    }
    let arguments = [
        "bench",
        "pool",
        "--page",
        "thp",
        "--sizes",
        "64M",
        "--runs",
        "1",
        "--at-once",
        "0",
        "--cost",
        "--json",
    ];
    let cost = &common::document(&arguments)["cost"];
    let fill = &cost["fill"];
    assert_eq!(
        (&fill["size_bytes"], &fill["runs"]),
        (&(64 << 20).into(), &1.into())
    );
    for time in ["worker_ms", "kernel_ms"] {
        assert!(
            fill[time]["min"].as_f64().is_some_and(|ms| ms > 0.0),
            "{cost}"
        );
    }
    let bound_by = |neighbour: &Value| neighbour["bound_by"].as_str().map(str::to_owned);
    let neighbours = cost["neighbours"].as_array().expect("a list");
    let names: Vec<_> = neighbours.iter().filter_map(bound_by).collect();
    let cpus = std::thread::available_parallelism().expect("a number");
    assert!(
        names == ["memory", "processor"] || (names.is_empty() && cpus.get() == 1),
        "{cost}"
    );
}

#[test]
fn starts_while_memory_is_filled_and_starts_on_pinned_memory() {
    if !qemu_is_here() {
        return;
    }
    let common = ["bench", "pool", "--sizes", "64M", "--runs", "1", "--json"];
    let filling = ["--page", "thp", "--at-once", "0", "--filling"];
    let document = common::document(&[&common[..], &filling].concat());
    let rows = document["rows"].as_array().expect("rows");
    let variants: Vec<_> = rows.iter().map(|row| row["variant"].as_str()).collect();
    let names = [
        "floor",
        "prealloc",
        "prealloc-threads",
        "prefault",
        "pool",
        "floor-filling",
        "pool-filling",
    ];
    assert_eq!(variants, names.map(Some));
    if let Err(error) = hugepages::SetAside::new(HUGE, 32) {
        return skip("hugepages", error);
    }
    let document = common::document(&[&common[..], &["--pin"]].concat());
    assert_eq!(document["schema"], "firstlight.bench-pool-pin/1");
    let rows = document["rows"].as_array().expect("rows");
    for page in ["thp", "2M"] {
        let of_page = rows.iter().filter(|row| row["page"] == page);
        let variants: Vec<_> = of_page.map(|row| &row["prezeroed"]).collect();
        assert_eq!(variants, [&false.into(), &true.into(), &Value::Null]);
    }
    for row in rows {
        let all = row["s"][0].as_f64().expect("a round");
        assert!(all > 0.0, "{row}");
        let pin = row["pin_mean_s"].as_f64();
        assert_eq!(pin.is_some(), !row["prezeroed"].is_null(), "{row}");
        assert!(pin.is_none_or(|pin| pin > 0.0 && pin < all), "{row}");
    }
}

/// Without QEMU: what one daemon's members wait, beside each kind of load.
#[test]
fn load_is_measured_beside_strangers_and_members() {
    let arguments = [
        "bench", "pool", "--load", "--page", "thp", "--runs", "1", "--takes", "40", "--json",
    ];
    if !rustix::process::geteuid().is_root() {
        let (code, _, stderr) = common::told(&arguments);
        assert_eq!(code, 5);
        assert!(stderr.contains("--load needs root"), "{stderr}");
        return skip("root", "only root can be another user");
    }
    let document = common::document(&arguments);
    assert_eq!(document["schema"], "firstlight.bench-pool-load/1");
    let daemons = document["daemons"].as_array().expect("a list");
    assert_eq!(daemons.len(), 1);
    assert!(daemons[0]["program"].is_null(), "this program's own");
    for figure in [
        "requests_per_s",
        "takes_per_s",
        "take_p50_us",
        "take_p99_us",
    ] {
        let median = daemons[0][figure]["median"].as_f64();
        assert!(median.is_some_and(|median| median > 0.0), "{figure}");
    }
    let members = daemons[0]["members"].as_array().expect("a list");
    let rows: Vec<_> = members
        .iter()
        .map(|row| (row["connection"].as_str(), row["beside"].as_str()))
        .collect();
    let beside = ["nothing", "loop", "strangers", "requests", "connections"];
    let expected = ["open", "new"]
        .into_iter()
        .flat_map(|connection| beside.map(|beside| (Some(connection), Some(beside))));
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

const SIZES: [&str; 9] = [
    "bench",
    "pool",
    "--sizes",
    "32M,64M",
    "--runs",
    "2",
    "--at-once",
    "3",
    "--json",
];

#[test]
fn huge_pages_are_set_aside_and_given_back() {
    if !qemu_is_here() {
        return;
    }
    // No other process raises the number while the lock is ours.
    let total = || {
        let _lock = hugepages::SetAside::new(HUGE, 0)?;
        Ok(hugepages::counts(Path::new(SYS), HUGE, None)?.map(|seen| seen.total_pages))
    };
    let before: std::io::Result<_> = total();
    if let Err(error) = before
        .as_ref()
        .and(hugepages::SetAside::new(HUGE, 32).as_ref())
    {
        return skip("hugepages", error);
    }
    check(&common::document(&SIZES), "2M");
    assert_eq!(
        total().expect("it worked before"),
        before.expect("it worked")
    );
}

#[test]
fn transparent_pages_need_nothing_set_aside() {
    if qemu_is_here() {
        let arguments = [&SIZES[..], &["--page", "thp"]].concat();
        check(&common::document(&arguments), "thp");
    }
}

#[test]
fn what_is_missing_is_said() {
    let table: [(&[&str], i32, &str); 6] = [
        (
            &["--beside", "old/firstlight-pool"],
            2,
            "the following required arguments were not provided",
        ),
        (&["--load", "--cost"], 2, "cannot be used with"),
        (
            &["--qemu", "/nonexistent/qemu"],
            5,
            "error: /nonexistent/qemu is not installed",
        ),
        (
            &["--sizes", "3M"],
            5,
            "error: --sizes 3 MiB: expected a multiple of 2097152 bytes",
        ),
        (&["--sizes", "3"], 2, "\"3\" has no unit"),
        (&["--runs", "0"], 2, "0 is not in 1..=1000"),
    ];
    for (arguments, code, expected) in table {
        let all = [&["bench", "pool"], arguments].concat();
        let (seen, stdout, stderr) = common::told(&all);
        assert_eq!((seen, stdout.as_str()), (code, ""), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn a_vmm_that_does_not_start_is_quoted() {
    let all = [
        "bench", "pool", "--page", "thp", "--sizes", "2M", "--qemu", "false",
    ];
    let (code, _, stderr) = common::told(&all);
    assert_eq!(code, 5);
    let begins =
        "firstlight bench pool: 2 MiB of thp pages, to be zeroed 31 times: 1 s where the machine";
    assert!(stderr.starts_with(begins), "{stderr}");
    assert!(
        stderr.contains("\nerror: false did not start: no greeting"),
        "{stderr}"
    );
}
