//! `firstlight-pool bench`: the pool's package alone measures what the pool brings.

use crate::schema;
use firstlight_pool::os::need::skip;
use std::process::Command;

#[test]
fn the_daemon_measured_is_this_programs() {
    if let Err(error) = Command::new("qemu-system-x86_64").arg("-version").output() {
        return skip("qemu", error);
    }
    let output = Command::new(env!("CARGO_BIN_EXE_firstlight-pool"))
        .args(["bench", "--page", "thp", "--sizes", "32M", "--runs", "1"])
        .args(["--at-once", "0", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let document = schema::document(&output.stdout);
    assert_eq!(document["schema"], "firstlight.bench-pool/1");
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["variant"] == "pool"), "{rows:?}");
}

#[test]
fn its_examples_are_its_own() {
    let output = Command::new(env!("CARGO_BIN_EXE_firstlight-pool"))
        .args(["bench", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("firstlight-pool bench --sizes"), "{help}");
    assert!(!help.contains("firstlight bench"), "{help}");
}
