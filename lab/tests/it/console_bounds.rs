//! A console is listened to with bounds: of what is kept, and of the command that power-cycles.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use firstlight_lab::boot::Unwatched;
use firstlight_lab::boot_log;
use firstlight_lab::console::{Console, Ended, Request, Watched, watch};
use firstlight_lab::matrix::Store;

const BOOT: &str = "[    0.000000] Linux version 6.1\n[    0.500000] smp: Bringing up\n\
    [    1.000000] reboot: Restarting system\n";

/// What `request` hears of `text` on a pipe that stays open.
fn heard(folder: &Path, text: String, request: impl Fn(Request) -> Request) -> Watched {
    let writes = move |mut writer: File| {
        // Nobody reads any more once it has ended.
        let _ = writer.write_all(text.as_bytes());
        Some(writer)
    };
    heard_of(folder, writes, request)
}

/// What `request` hears of what is written to a pipe, which stays open if its end is returned.
fn heard_of(
    folder: &Path,
    writes: impl FnOnce(File) -> Option<File> + Send + 'static,
    request: impl Fn(Request) -> Request,
) -> Watched {
    let pipe = folder.join("console");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let request = request(Request {
        console: Console::Path(pipe.clone()),
        baud: 115_200,
        until: Vec::new(),
        silence: Duration::from_secs(60),
        runs: None,
        most_bytes: 4 << 30,
        power_cycle: None,
        cycle_limit: Duration::from_secs(60),
        name: "boot".into(),
    });
    let writing = thread::spawn(move || {
        let writer = File::options().write(true).open(pipe).unwrap();
        writes(writer)
    });
    let store = Store::open(&folder.join("boots")).unwrap();
    let watched = watch(&request, &store, &AtomicUsize::new(0), &mut Unwatched).unwrap();
    drop(writing.join().unwrap());
    watched
}

#[test]
fn a_machine_that_restarts_in_a_loop_fills_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let most_bytes = 10 * (64 << 10);
    let watched = heard(folder.path(), BOOT.repeat(50), |request| Request {
        most_bytes,
        ..request
    });
    // A small boot counts as one of 64 KiB.
    assert_eq!(watched.ended, Ended::Full { bytes: most_bytes });
    assert_eq!(watched.boots.len(), 10);
    let kept = fs::read_dir(folder.path().join("boots")).unwrap();
    let records = kept.filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        path.extension().is_some_and(|ending| ending == "json")
    });
    assert_eq!(records.count(), 10);
}

#[test]
fn a_power_cycle_that_hangs_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let watched = heard(folder.path(), BOOT.into(), |request| Request {
        runs: Some(2),
        power_cycle: Some("sleep 1000".into()),
        cycle_limit: Duration::from_millis(100),
        ..request
    });
    let Ended::PowerCycle { code: None, words } = watched.ended else {
        panic!("{:?}", watched.ended);
    };
    assert!(words.contains("takes longer than"), "{words}");
    assert_eq!(watched.boots.len(), 1);
}

/// What the kernel of before still had to say is no sign of life of the next.
#[test]
fn last_words_after_a_power_cycle_do_not_hide_that_the_machine_is_dead() {
    let folder = tempfile::tempdir().unwrap();
    let cycled = folder.path().join("cycled");
    let signal = cycled.clone();
    let writes = move |mut writer: File| {
        writer.write_all(BOOT.as_bytes()).unwrap();
        while !signal.exists() {
            thread::yield_now();
        }
        // The command has to end, too.
        thread::sleep(Duration::from_millis(300));
        let words = b"[    1.100000] kvm: exiting hardware virtualization\n";
        let _ = writer.write_all(words);
        Some(writer)
    };
    let watched = heard_of(folder.path(), writes, |request| Request {
        runs: Some(2),
        silence: Duration::from_secs(1),
        power_cycle: Some(format!("touch {}", cycled.display())),
        ..request
    });
    assert_eq!(watched.ended, Ended::Dead { seconds: 1 });
    assert_eq!((watched.boots.len(), watched.passed_over_lines), (1, 1));
}

/// What is cut is kept, and none of the boots that were requested.
#[test]
fn a_boot_that_the_end_of_the_console_cuts_is_not_the_last_of_those_requested() {
    let folder = tempfile::tempdir().unwrap();
    let writes = |mut writer: File| {
        let cut = "[    0.000000] Linux version 6.1\n[    0.500000] smp: Bringing up\n";
        writer.write_all(format!("{BOOT}{cut}").as_bytes()).unwrap();
        None
    };
    let watched = heard_of(folder.path(), writes, |request| Request {
        runs: Some(2),
        ..request
    });
    assert_eq!((watched.ended, watched.boots.len()), (Ended::Closed, 2));
    let notes = watched.boots[1].notes.join("\n");
    assert!(notes.contains("cut: the pipe was closed"), "{notes}");
}

#[test]
fn lines_of_a_record_are_those_of_its_own_log() {
    let boot = "[    0.000000] Linux version 6.1\n[    0.100000] Command line: a\n\
        [    1.500000] initcall slow_init+0x0/0x2c returned 0 after 132000 usecs\n";
    let records = boot_log::records("two.log", boot.repeat(2).as_bytes());
    assert_eq!(records.len(), 2);
    for record in records {
        let step = &record.initcalls[0];
        assert!(record.log[step.line - 1].contains("slow_init"), "{step:?}");
        for said in record.gaps.iter().flat_map(|gap| [&gap.before, &gap.after]) {
            assert!(record.log[said.line - 1].contains(&said.text), "{said:?}");
        }
    }
}
