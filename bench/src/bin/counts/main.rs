//! Counts the instructions of the engine's paths and guards them.
//!
//! ```text
//! counts            count all paths and compare with bench/counts.txt
//! counts update     write bench/counts.txt
//! counts run PATH   one path (run under valgrind)
//! counts profile ROW FILE
//!                   one path, ROW or ROW_NUMBER, by function and line to FILE
//! ```
//!
//! Built with the feature `page-16k` it counts some of them with pages of 16 KiB (`counts-16k.txt`).
//!
//! Every path runs in a process of its own under `valgrind --tool=callgrind`,
//! which collects only inside [`measured`]. Meant to be built for
//! `x86_64-unknown-linux-musl`: then no C library picks its `memcpy` by the
//! processor, and the counts are the same on every machine. `make counts` does
//! all that.

mod expected;
mod paths;

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

use expected::{Expected, Verdict};

/// Everything inside this function is counted, and nothing else.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}

/// Counts the instructions of one path; by function and line, to the file `profile`.
fn count(path: &str, profile: &str) -> Result<u64, Box<dyn Error>> {
    let itself = std::env::current_exe()?;
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            &format!("--callgrind-out-file={profile}"),
            "--compress-strings=no",
            "--compress-pos=no",
            "--toggle-collect=counts::measured*",
        ])
        .arg(itself)
        .args(["run", path])
        .output()
        .map_err(|error| format!("valgrind does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{path} fails under valgrind:\n{text}").into());
    }
    // ==1234== Collected : 5678
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("{path}: valgrind printed no count:\n{text}"))?;
    if collected == 0 {
        return Err(format!("{path}: nothing was counted; are symbols missing?").into());
    }
    Ok(collected)
}

fn compare(file: &Path, update: bool) -> Result<ExitCode, Box<dyn Error>> {
    let expected = Expected::read(file)?;
    let mut counted = Vec::new();
    let mut sound = true;
    println!("| path | instructions | expected | |");
    println!("|---|---|---|---|");
    for path in paths::all() {
        let instructions = count(path.name, "/dev/null")?;
        let verdict = expected.judge(path.name, instructions);
        sound &= verdict.is_sound();
        let before = expected
            .of(path.name)
            .map_or("-".into(), |count| count.to_string());
        println!("| {} | {instructions} | {before} | {verdict} |", path.name);
        counted.push((path.name, instructions));
    }
    for name in expected
        .names()
        .filter(|name| paths::all().all(|path| path.name != *name))
    {
        println!("| {name} | - | | {} |", Verdict::Gone);
        sound = false;
    }
    let is_counted = |name: &str| paths::all().any(|path| path.name == name);
    for doubled in paths::DOUBLED.iter().filter(|one| is_counted(one.name)) {
        let of = |name: &str| counted.iter().find(|one| one.0 == name).map(|one| one.1);
        if let Some(complaint) = doubled.complaint(of) {
            return Err(complaint.into());
        }
    }
    if update {
        expected::write(file, &counted)?;
        println!("\nwritten: {}", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    if !sound {
        eprintln!("\nIf the change is meant: make counts UPDATE=1, and say why in the commit.");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(paths::FILE);
    match arguments[..] {
        [] => compare(&file, false),
        ["update"] => compare(&file, true),
        ["run", name] => {
            let path = paths::all().find(|path| path.name == name);
            (path.ok_or_else(|| format!("no path '{name}'"))?.run)()?;
            Ok(ExitCode::SUCCESS)
        }
        ["profile", row, profile] => {
            let is_row = |name: &str| {
                name == row || name.rsplit_once('_').is_some_and(|(name, _)| name == row)
            };
            let path = paths::all().find(|path| is_row(path.name));
            let path = path.ok_or_else(|| format!("no path '{row}'"))?;
            println!("{} {}", path.name, count(path.name, profile)?);
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("usage: counts [update | run PATH | profile ROW FILE]".into()),
    }
}
