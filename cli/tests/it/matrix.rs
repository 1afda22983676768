//! `firstlight matrix` with real guests: what is kept, resumed, marked and refused.

use crate::common;
use crate::common::guest;

use common::{document, told};
use firstlight_pool::os::need::skip;
use guest::{image, qemu_is_here};
use std::fs;
use std::path::{Path, PathBuf};

/// A matrix of our image in `folder`; `None` where no guest can run.
fn matrix(folder: &Path, more: &str) -> Option<(String, String)> {
    // The lab finds the image beside itself or builds it.
    image().filter(|_| qemu_is_here())?;
    let file = folder.join("matrix.toml");
    let text = format!(
        "runs = 2\nclocks = [\"instructions\"]\nwords = [\"\", \"descriptors=eager\"]\n\
         [[kernel]]\nname = \"image\"\n[[shape]]\nmemory_mib = 256\n{more}"
    );
    fs::write(&file, text).unwrap();
    let runs = folder.join("runs");
    Some((
        file.to_str().unwrap().to_owned(),
        runs.to_str().unwrap().to_owned(),
    ))
}

#[test]
fn what_is_done_is_not_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some((file, runs)) = matrix(folder.path(), "") else {
        return;
    };
    let result = document(&["matrix", &file, "-o", &runs, "--json"]);
    assert_eq!(result["schema"], "firstlight.matrix/1");
    let cells = result["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    assert!(
        cells
            .iter()
            .all(|cell| cell["done"] == 1 && cell["missing"] == 0)
    );
    // Records, and logs as they came.
    let first = folder
        .path()
        .join("runs/image-256m-1n-1c-w0-instructions-0000.json");
    assert!(first.is_file() && first.with_extension("log").is_file());
    let time = fs::metadata(&first).unwrap().modified().unwrap();
    fs::write(
        folder
            .path()
            .join("runs/image-256m-1n-1c-w1-instructions-0000.json"),
        "{\"cut",
    )
    .unwrap();
    let result = document(&["matrix", &file, "-o", &runs, "--json"]);
    assert_eq!(result["cells"][1]["done"], 1);
    assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), time);
    // A word that changes is not what was booted.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("eager", "early")).unwrap();
    let (code, _, stderr) = told(&["matrix", &file, "-o", &runs]);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("eager") && stderr.contains("another folder"),
        "{stderr}"
    );
    let (code, page, _) = told(&["report", &runs, "--format", "table"]);
    assert!(code == 0 && page.contains("descriptors=eager"), "{page}");
}

#[test]
fn a_boot_that_fails_is_marked_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let rubbish = folder.path().join("rubbish");
    fs::write(&rubbish, [0; 4096]).unwrap();
    let more = "[[kernel]]\nname = \"rubbish\"\npath = \"rubbish\"\n";
    let Some((file, runs)) = matrix(folder.path(), more) else {
        return;
    };
    let (code, stdout, stderr) = told(&["matrix", &file, "-o", &runs, "--json"]);
    assert_eq!(code, 6, "{stderr}");
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let done = |at: usize, key: &str| result["cells"][at][key].as_u64().unwrap();
    assert_eq!(
        (done(0, "done"), done(1, "done"), done(2, "failed")),
        (1, 1, 1)
    );
    assert!(!result["failed"][0]["message"].as_str().unwrap().is_empty());
    // Not made again without --retry.
    let (code, _, _) = told(&["matrix", &file, "-o", &runs]);
    assert_eq!(code, 6);
}

#[test]
fn what_makes_no_matrix_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.toml");
    let runs = folder.path().join("runs");
    let refused = |text: &str, code: i32, part: &str| {
        fs::write(&file, text).unwrap();
        let arguments = [
            "matrix",
            file.to_str().unwrap(),
            "-o",
            runs.to_str().unwrap(),
        ];
        let (exit_code, _, stderr) = told(&arguments);
        assert_eq!(exit_code, code, "{stderr}");
        assert!(stderr.contains(part), "{part} in {stderr}");
    };
    refused("kernel = 1", 2, "kernel");
    refused("kernel = []\nshape = []", 2, "nothing to boot");
    refused(
        "[[kernel]]\nname = \"a\"\n[[shape]]\nmemory_mib = 1\nwheels = 4",
        2,
        "wheels",
    );
    let (code, _, _) = told(&["matrix", "/nowhere.toml"]);
    assert_eq!(code, 3);
}

#[test]
fn a_host_without_slurm_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.toml");
    // A kernel of its own: our image is not looked for.
    let text = "[[kernel]]\nname = \"a\"\npath = \"k\"\n[[shape]]\nmemory_mib = 64\n";
    fs::write(&file, text).unwrap();
    fs::write(folder.path().join("k"), "one").unwrap();
    let runs = folder.path().join("runs");
    let paths = [&file, &runs].map(|path| path.to_str().unwrap());
    let mut command = common::command(&["matrix", paths[0], "-o", paths[1], "--on", "slurm"]);
    let output = command.env("PATH", folder.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.contains("squeue") && stderr.contains("slurm-client"),
        "{stderr}"
    );
    // A task has a copy of the matrix, whatever becomes of the file.
    fs::remove_file(&file).unwrap();
    let copy = runs.join("slurm/matrix-0.json");
    let copy = copy.to_str().unwrap();
    let (code, _, stderr) = told(&["matrix", copy, "-o", paths[1], "--task", "a/0"]);
    assert!(code == 2 && stderr.contains("no such run"), "{stderr}");
    // It boots no other kernel than the one that was submitted.
    fs::write(folder.path().join("k"), "longer").unwrap();
    let task = "a-64m-1n-1c-w0-wall/0";
    let (code, _, stderr) = told(&["matrix", copy, "-o", paths[1], "--task", task]);
    assert_eq!(code, 0, "{stderr}");
    let why = fs::read_to_string(runs.join("a-64m-1n-1c-w0-wall-0000.failed")).unwrap();
    assert!(why.contains("another folder"), "{why}");
}

#[test]
fn a_linux_runs_to_its_end_on_the_labs_own_initrd() {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let kernel = target.join("linux/6.12/vmlinuz");
    if !kernel.is_file() {
        return skip("linux", format!("no {} (make linux)", kernel.display()));
    }
    if !qemu_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.toml");
    let text = format!(
        "runs = 1\n[[kernel]]\nname = \"linux\"\npath = {:?}\n[[shape]]\nmemory_mib = 1024\n",
        kernel.to_str().unwrap()
    );
    fs::write(&file, text).unwrap();
    let runs = folder.path().join("runs");
    let result = document(&[
        "matrix",
        file.to_str().unwrap(),
        "-o",
        runs.to_str().unwrap(),
        "--json",
    ]);
    assert_eq!(result["cells"][0]["done"], 1, "{result}");
    let log = fs::read_to_string(runs.join("linux-1024m-1n-1c-w0-wall-0000.log")).unwrap();
    assert!(
        log.contains("firstlight: init runs") && log.contains("reboot: Power down"),
        "{log}"
    );
}
