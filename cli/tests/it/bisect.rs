//! `firstlight bisect` over real trees and real guests on the instruction clock.

use crate::common;
use crate::common::guest;
use crate::common::tree;

use common::{document, told};
use guest::{image, qemu_is_here};
use std::fs;
use tree::{git, tree};

#[test]
fn the_commit_is_named_and_the_tree_is_left_as_it_was() {
    let Some(image) = image().filter(|_| qemu_is_here()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (fast, slow) = ("descriptors=lazy", "descriptors=eager");
    // One that cannot be built, one that does not boot.
    let words = [fast, fast, "broken", fast, slow, slow, "test=panic", slow];
    let commits = tree(path, &words);
    let build = format!("! grep -q broken words && cp '{image}' built");
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
        "--memory 1G --clock instructions",
        "--json",
        "--",
        "sh",
        "-c",
        &build,
    ]);
    assert_eq!(answer["schema"], "firstlight.bisect/1");
    assert_eq!(answer["first_bad"], commits[4].as_str(), "{answer}");
    assert!(
        answer["about"]
            .as_str()
            .unwrap()
            .ends_with("change 4, descriptors=eager"),
        "{answer}"
    );
    assert_eq!(
        (&answer["figure"]["kind"], &answer["figure"]["name"]),
        (&"phase".into(), &"descriptors".into())
    );
    assert_eq!(git(path, &["symbolic-ref", "--short", "HEAD"]), "main");
    assert_eq!(
        git(path, &["status", "--porcelain", "--untracked-files=no"]),
        ""
    );
    assert!(!path.join(".git/BISECT_START").exists());
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let commits = tree(folder.path(), &["a", "b"]);
    let refused = |arguments: &[&str], code: i32, part: &str| {
        let (exit_code, _, stderr) = told(&[&["bisect"], arguments].concat());
        assert_eq!(exit_code, code, "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{part} in {stderr}");
    };
    refused(
        &["--good", "none", "--bad", "main", "--tree", path],
        2,
        "none",
    );
    refused(
        &["--good", &commits[1], "--bad", &commits[0], "--tree", path],
        2,
        "no ancestor",
    );
    refused(
        &[
            "--good",
            &commits[0],
            "--bad",
            "main",
            "--tree",
            path,
            "--",
            "false",
        ],
        1,
        "an end",
    );
    refused(&["--images", "/nowhere/a", "/nowhere/b"], 1, "/nowhere/a");
    refused(
        &["--good", "a", "--bad", "b", "--tree", "/nowhere"],
        2,
        "/nowhere",
    );
    refused(
        &["--images", "a", "b", "--boot", "--nonsense"],
        2,
        "--nonsense",
    );
    fs::write(folder.path().join("words"), "changed").unwrap();
    refused(
        &["--good", &commits[0], "--bad", "main", "--tree", path],
        2,
        "not committed",
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("words")).unwrap(),
        "changed"
    );
}
