//! Regressions that Linux had, brought back in the image (`regress=`), are found from end
//! to end: by `gate` with one boot each, both published ones by `bisect` as well.

use crate::common;
use crate::common::guest;
use crate::common::tree;

use common::{document, told};
use guest::{image, qemu_is_here};
use serde_json::Value;
use std::path::Path;

/// A machine whose last zone has two ranges, as where the regression of Linux 5.8 showed.
const TWO_RANGES: &str = "--memory 8G --clock instructions";
const TWO_RANGES_WORDS: &str = "descriptors=early memmap=1M$9G";

/// What the gate says of a machine without and with a regression.
fn judged(machine: &str, words: &str, regression: &str) -> Option<Vec<String>> {
    let image = image().filter(|_| qemu_is_here())?;
    let side = |more: &str| format!("{machine} --image '{image}' --append '{words}{more}'");
    let (good, bad) = (side(""), side(&format!(" regress={regression}")));
    let (code, stdout, stderr) = told(&["gate", &good, &bad, "--json"]);
    assert_eq!(code, 7, "{regression}: {stdout}{stderr}");
    let verdict: Value = serde_json::from_str(&stdout).unwrap();
    let moved = verdict["moved"].as_array().unwrap();
    Some(
        moved
            .iter()
            .map(|row| row.as_str().unwrap().to_owned())
            .collect(),
    )
}

/// The figure expected is the first, but for at most two that are the same time.
fn is_found(machine: &str, words: &str, regression: &str, figure: &str) {
    if let Some(moved) = judged(machine, words, regression) {
        let mut first = moved.iter().take(3);
        assert!(
            first.any(|row| row.starts_with(figure)),
            "{regression}: {moved:?}"
        );
    }
}

#[test]
fn eager_zones_are_found_where_the_last_zone_has_two_ranges() {
    is_found(
        TWO_RANGES,
        TWO_RANGES_WORDS,
        "eager-zones",
        "phase \"descriptors\"",
    );
    // Where it has one there is no regression: the boots are the same.
    let Some(image) = image().filter(|_| qemu_is_here()) else {
        return;
    };
    let side =
        |more: &str| format!("{TWO_RANGES} --image '{image}' --append 'descriptors=early{more}'");
    // A word is not free: it is read.
    let (good, bad) = (side(" regress=small-blocks"), side(" regress=eager-zones"));
    let (_, stdout, _) = told(&["gate", &good, &bad, "--json"]);
    let verdict: Value = serde_json::from_str(&stdout).unwrap();
    let rows = verdict["groups"][0]["rows"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("descriptors")["state"], "same", "{verdict}");
}

#[test]
fn nodes_walked_page_by_page_are_found() {
    is_found(
        "--memory 2G --nodes 2 --clock instructions",
        "",
        "node-ranges",
        "phase \"topology\"",
    );
}

#[test]
fn hash_tables_initialised_bucket_by_bucket_are_found() {
    is_found(
        "--memory 2G --clock instructions",
        "",
        "hash-buckets",
        "phase \"hash tables\"",
    );
}

#[test]
fn small_memory_blocks_in_a_list_are_found() {
    is_found(
        "--memory 64G --clock instructions",
        "",
        "small-blocks",
        "phase \"memory blocks\"",
    );
}

#[test]
fn one_thread_is_found_by_the_cpus_that_took_work() {
    is_found(
        "--memory 8G --cpus 4 --clock instructions",
        "descriptors=early turns_hz=5000",
        "one-thread",
        "descriptors \"deferred, each CPU's part\"",
    );
}

/// Bisects a tree whose commits differ in their words; the answer.
fn bisected(machine: &str, good: &str, regression: &str) -> Option<(Vec<String>, Value)> {
    let image = image().filter(|_| qemu_is_here())?;
    let folder = tempfile::tempdir().unwrap();
    let bad = format!("{good} regress={regression}");
    let unrelated = format!("{good} test=late-cpu");
    let words = [good, good, &unrelated, &bad, &bad];
    let path: &Path = folder.path();
    let commits = tree::tree(path, &words);
    let answer = document(&[
        "bisect",
        "--good",
        &commits[0],
        "--bad",
        "main",
        "--tree",
        path.to_str().unwrap(),
        "--own-image",
        "--built",
        "built",
        "--append-file",
        "words",
        "--boot",
        machine,
        "--json",
        "--",
        "cp",
        image,
        "built",
    ]);
    Some((commits, answer))
}

#[test]
fn both_published_regressions_are_bisected_to_their_commit() {
    for (machine, good, regression, phase) in [
        (TWO_RANGES, TWO_RANGES_WORDS, "eager-zones", "descriptors"),
        (
            "--memory 64G --clock instructions",
            "",
            "small-blocks",
            "memory blocks",
        ),
    ] {
        let Some((commits, answer)) = bisected(machine, good, regression) else {
            return;
        };
        assert_eq!(answer["first_bad"], commits[3].as_str(), "{answer}");
        let figure = (&answer["figure"]["kind"], &answer["figure"]["name"]);
        assert_eq!(figure, (&"phase".into(), &phase.into()), "{answer}");
    }
}
