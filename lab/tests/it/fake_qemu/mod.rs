//! A stand-in for QEMU: a shell script that is started like QEMU, finds the guest's
//! ports among its arguments and says what a test wants said. A real process, so
//! that hanging, dying and being left behind are real.

#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot run has failed; each test file uses some of these"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A folder with the script, and whatever it writes.
#[derive(Debug)]
pub struct FakeQemu {
    folder: tempfile::TempDir,
}

impl FakeQemu {
    /// One that does `body`, in which `$log`, `$events` and `$markers` are files to
    /// write to, and `$here` is its folder.
    pub fn new(body: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            r#"#!/bin/sh
if [ "$1" = --version ]; then
    echo "QEMU emulator version 9.8.7 (a test)"
    exit 0
fi
here=$(dirname "$0")
echo $$ >> "$here/pids"
echo "$*" > "$here/arguments"
log=/dev/null events=/dev/null markers=/dev/null
for word in "$@"; do
    case $word in
    file,id=log,path=*) log=${{word##*path=}} ;;
    file,id=events,path=*) events=${{word##*path=}} ;;
    file,id=markers,path=*) markers=${{word##*path=}} ;;
    esac
done
{body}
"#
        );
        let fake = Self { folder };
        executable(&fake.program(), &script);
        fs::write(fake.file("kernel"), "a kernel").unwrap();
        fake
    }

    /// To be started instead of QEMU.
    pub fn program(&self) -> PathBuf {
        self.file("qemu")
    }

    /// Something that can be read as a kernel or an image.
    pub fn kernel(&self) -> PathBuf {
        self.file("kernel")
    }

    /// A file of its folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Processes it consisted of, once it has written so many of their numbers.
    pub fn processes(&self, count: usize) -> Vec<u32> {
        wait_for(|| {
            let text = fs::read_to_string(self.file("pids")).unwrap_or_default();
            let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            (numbers.len() >= count && text.ends_with('\n')).then_some(numbers)
        })
    }
}

/// A script that can be run. Another process writes it: a child that some other test starts
/// while this one has the file open would keep it from being run ("text file busy").
pub fn executable(path: &Path, script: &str) {
    let text = path.with_extension("text");
    fs::write(&text, script).unwrap();
    let mut install = Command::new("install");
    let done = install.args(["-m", "755"]).arg(&text).arg(path).status();
    assert!(done.unwrap().success(), "{}", path.display());
}

/// What `look` finds, as soon as it does; a minute is more than any machine needs.
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
pub fn runs(process: u32) -> bool {
    let path = Path::new("/proc").join(process.to_string()).join("stat");
    let Ok(stat) = fs::read_to_string(path) else {
        return false;
    };
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.starts_with('Z')
}

/// The events of a small machine, up to the end.
pub const EVENTS: &str = r#"{"event":"start","schema":"firstlight.events/1","version":"0.1.0","command_line":"selftest"}
{"event":"milestone","name":"entry","ticks":2000}
{"event":"phase","name":"memory map","start_ticks":2000,"end_ticks":3000}
{"event":"clock","hz":2000000000,"source":"command line"}
{"event":"milestone","name":"layout","ticks":4000}
{"event":"milestone","name":"first_frame","ticks":5000}
{"event":"milestone","name":"all_allocatable","ticks":5000}
{"event":"milestone","name":"cpus_started","ticks":9000}
{"event":"machine","memory_bytes":268435456,"nodes":2,"cpus":2,"cpus_started":2}
{"event":"region","start":0,"end":654336,"kind":"usable","more_reliable":false,"special_purpose":false}
{"event":"node","node":0,"domain":0,"cpus":2,"start_frame":1,"end_frame":32768,"present_frames":32767,"distances":[10,20]}
{"event":"zone","node":0,"zone":"DMA","start_frame":1,"spanned_frames":4095,"present_frames":3998}
{"event":"memory","present_frames":65536,"managed_frames":65500,"reserved_frames":36,"metadata_written_bytes":100,"metadata_reserved_bytes":4096}
{"event":"correction","text":"an entry was corrected"}
{"event":"note","text":"a note"}
{"event":"of a later image","what":[1,2,3]}
{"event":"selftest","cpus":2,"allocated_blocks":10,"freed_blocks":10,"all_frames":65500,"failures":0}
{"event":"bench","contestant":"firstlight","workload":"pair","order":0,"threads":2,"operations":1000,"ticks":4000}"#;

/// A script that says all of [`EVENTS`], and the last one, and ends.
pub fn good_image() -> String {
    format!(
        r#"echo "[    0.000001] hello" > $log
cat > $events <<'END'
{EVENTS}
{{"event":"end","outcome":"ok"}}
END
printf '\020\045' > $markers
exit 85"#
    )
}
