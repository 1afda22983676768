//! `firstlight sweep` as it is called.

use crate::common::guest;
use crate::fake_qemu::FakeQemu;

use guest::{image, qemu_is_here};
use serde_json::Value;
use std::process::{Command, Output};

fn sweep(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .arg("sweep")
        .args(arguments)
        .output()
        .unwrap()
}

const SMALL: [&str; 4] = ["--shape", "memory=1G,nodes=2", "--runs", "2"];

#[test]
fn a_record_has_a_row_for_each_node_part_and_number_of_threads() {
    for bytes in [8, 64] {
        let size = bytes.to_string();
        let more = ["--descriptor-bytes", &size, "--threads", "1,2", "--json"];
        let output = sweep(&[&SMALL[..], &more].concat());
        assert!(output.status.success(), "{output:?}");
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(record["schema"], "firstlight.sweep/1");
        assert_eq!(record["clock"], "wall");
        let rows = record["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 2 + 2);
        for row in rows {
            assert_eq!(row["where"], "host");
            assert_eq!(row["descriptor_bytes"], bytes);
            let written = row["pages"].as_u64().unwrap() * bytes;
            assert_eq!(row["bytes_written"], written);
            let ms = |key: &str| row["ms"][key].as_f64().unwrap();
            assert!(ms("min") > 0.0 && ms("min") <= ms("median") && ms("median") <= ms("max"));
            let deferred = row["part"] == "deferred";
            assert_eq!(row["node"].is_u64(), deferred);
            assert_eq!(row["fraction_of_best_memset"].is_f64(), deferred);
        }
        // All memory but the first page and the hole of 97 pages below 1 MiB.
        let whole = rows.iter().find(|row| row["part"] == "whole").unwrap();
        assert_eq!(whole["pages"], (1 << 18) - 98);
    }
}

#[test]
fn the_table_says_speed_up_and_time() {
    let output = sweep(&[&SMALL[..], &["--threads", "1,2", "--padata"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["64 bytes on this host", "(2)", "deferred", "all ", " %"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    for (arguments, part) in [
        (["--threads", "0"], "expected at least 1"),
        (["--runs", "0"], "expected at least 1"),
        (
            ["--descriptor-bytes", "7"],
            "expected one of [8, 16, 32, 64]",
        ),
        (["--shape", "memory=2P"], "smaller machine"),
    ] {
        let output = sweep(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let output = sweep(&["--shape", "memory=nothing"]);
    assert_eq!(output.status.code(), Some(2));
}

/// A guest with 2 CPUs on 2 nodes, counted in instructions; `None` where no guest can run.
fn guest_sweep(more: &[&str]) -> Option<Output> {
    let image = image().filter(|_| qemu_is_here())?;
    let machine = ["--memory", "1G", "--nodes", "2", "--cpus", "2"];
    let clock = ["--clock", "instructions", "--image", image];
    Some(sweep(&[&machine[..], &clock, more].concat()))
}

#[test]
fn a_guest_has_a_row_for_each_node_part_and_number_of_threads() {
    for bytes in [8, 64] {
        let size = bytes.to_string();
        let more = ["--descriptor-bytes", &size, "--threads", "1,2", "--json"];
        let Some(output) = guest_sweep(&more) else {
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(record["schema"], "firstlight.sweep/1");
        assert_eq!(record["clock"], "instructions");
        let rows = record["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 3 * 2);
        for row in rows {
            assert_eq!(row["where"], "guest");
            assert_eq!(row["descriptor_bytes"], bytes);
            let (pages, ms) = (row["pages"].as_u64().unwrap(), &row["ms"]["median"]);
            assert_eq!(row["bytes_written"], pages * bytes);
            // One instruction is one nanosecond.
            let each = ms.as_f64().unwrap() * 1e6 / pages as f64;
            let given = row["instructions_per_page"].as_f64().unwrap();
            assert!((each - given).abs() < 0.01, "{row}");
            // Fewer would mean that nothing was written.
            assert!(given > 0.1 && given < 30.0, "{row}");
            assert!(row["fraction_of_best_memset"].is_null());
            assert_eq!(row["percent_of_cpus"].as_f64().unwrap() % 100.0, 0.0);
        }
        // Both nodes together are all of them.
        let pages = |node: Value, part: &str| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row["node"] == node && row["part"] == part);
            row.unwrap()["pages"].as_u64().unwrap()
        };
        for part in ["whole", "deferred"] {
            let all = pages(Value::Null, part);
            assert_eq!(pages(0.into(), part) + pages(1.into(), part), all);
        }
    }
}

#[test]
fn the_table_of_a_guest_counts_instructions() {
    let Some(output) = guest_sweep(&["--threads", "1,2"]) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["64 bytes in a guest", "a page, whole", "take turns", "all "] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn a_guest_that_makes_no_sense_is_wrong_usage() {
    for (arguments, part) in [
        (&["--cpus", "2"][..], "need --memory"),
        (&["--memory", "1G", "--shape", "memory=1G"], "--shape"),
        (&["--memory", "1G", "--padata"], "--padata"),
        (&["--memory", "1G", "--threads", "0"], "at least 1"),
        (&["--memory", "1G", "--runs", "0"], "at least 1"),
        (
            &["--memory", "1G", "--descriptor-bytes", "32"],
            "[8, 16, 64]",
        ),
        (&["--memory", "1000000G"], "smaller guest"),
    ] {
        let output = sweep(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn a_list_of_cpus_belongs_to_a_kernel() {
    for (arguments, part) in [
        (&["--kernel", "/nowhere"][..], "--memory"),
        (&["--memory", "1G", "--cpus", "1,2"], "expected one"),
        (&["--memory", "1G", "--beside", "skylake"], "--kernel"),
        (
            &[
                "--kernel", "/nowhere", "--memory", "1G", "--beside", "other",
            ],
            "skylake-384g",
        ),
        (
            &[
                "--kernel",
                "/nowhere",
                "--memory",
                "1G",
                "--clock",
                "instructions",
            ],
            "--clock wall",
        ),
    ] {
        let output = sweep(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(part), "{part:?} in {told}");
    }
}

/// A Linux that dies as only an emulator lets it die, twice at every number of CPUs.
#[test]
fn a_boot_that_died_of_the_emulator_is_made_again_and_the_table_says_so() {
    let body = r#"cpus=$(echo "$*" | grep -o 'smp [0-9]*')
count=$(cat "$here/$cpus" 2>/dev/null || echo 0)
echo $((count + 1)) > "$here/$cpus"
{
echo '[    0.100000] Linux version 6.12.0'
if [ $count -lt 2 ] && [ "$cpus" != 'smp 1' ]; then
    echo '[    0.300000] Oops: int3: 0000 [#1] PREEMPT SMP'
    echo '[    0.310000] Kernel panic - not syncing: Fatal exception'
elif [ "$cpus" = 'smp 3' ]; then
    echo '[    0.310000] Kernel panic - not syncing: out of ideas'
else
    echo '[    0.500000] node 0 deferred pages initialised in 20ms'
    echo '[    0.900000] Kernel panic - not syncing: VFS: Unable to mount root fs'
fi
} > $log"#;
    let fake = FakeQemu::new(body);
    let (qemu, kernel) = (fake.program(), fake.kernel());
    let words = |cpus| {
        let mut words = vec!["--kernel", kernel.to_str().unwrap(), "--memory", "1G"];
        words.extend(["--cpus", cpus, "--runs", "1", "--accel", "tcg", "--json"]);
        words.extend(["--qemu", qemu.to_str().unwrap()]);
        words
    };
    let output = sweep(&words("1,2"));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["rows"].as_array().unwrap().len(), 2);
    let repeated = record["repeated"].as_array().unwrap();
    assert_eq!(repeated.len(), 1, "{record}");
    let said = repeated[0].as_str().unwrap();
    assert!(
        said.starts_with("2 CPUs, 3 attempts") && said.contains("int3"),
        "{said}"
    );
    // What dies of something else is in no row, and the others stay.
    let output = sweep(&words("1,3"));
    assert_eq!(output.status.code(), Some(6));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["rows"].as_array().unwrap().len(), 1);
    assert!(
        record["failed"].to_string().contains("out of ideas"),
        "{record}"
    );
}
