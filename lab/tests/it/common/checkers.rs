//! A stick as Debian's checkers of file systems and partition tables see it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::here::missing;

/// Partitions begin at 1 MiB.
const START_BYTES: usize = 1 << 20;

/// Fails if `fsck.fat` or `sgdisk` finds anything wrong with the stick's content at `path`; where
/// they are not installed, that is said.
#[track_caller]
pub(crate) fn check_stick(path: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let partition = folder.path().join("partition");
    let disk = fs::read(path).unwrap();
    let sectors = u32::from_le_bytes(disk[458..462].try_into().unwrap());
    let end = START_BYTES + 512 * usize::try_from(sectors).unwrap();
    fs::write(&partition, &disk[START_BYTES..end]).unwrap();
    let table = run("sgdisk", &["-v"], path);
    let volume = run("fsck.fat", &["-n"], &partition);
    if let Some((status, said)) = table {
        // Its status is 0 where it counts problems, too.
        let is_good = status == Some(0) && said.contains("No problems found");
        assert!(is_good, "sgdisk -v: {status:?}\n{said}");
    }
    if let Some((status, said)) = volume {
        assert_eq!(status, Some(0), "fsck.fat -n\n{said}");
    }
}

/// Exit status and output of a checker, if it is installed.
fn run(program: &str, words: &[&str], path: &Path) -> Option<(Option<i32>, String)> {
    // Not every user has the folder of administrators' programs on the path.
    let at = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    let at = at.iter().find(|at| at.is_file());
    let at = at.map_or(program.as_ref(), |at| at.as_path());
    let Ok(output) = Command::new(at).args(words).arg(path).output() else {
        missing(&format!("{program} (Debian's packages dosfstools, gdisk)"));
        return None;
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Some((output.status.code(), said))
}
