//! All there is of a guest's user space: built on its own, without libraries to
//! load, and started by a Linux as its first process.
//!
//! Makes the balloon report what is free, keeps some memory with a pattern, and
//! does what it is told on the serial port, a line at a time:
//!
//! - `take N`: N MiB more, written to; says how many bytes were not zero;
//! - `leave`: gives those up;
//! - `check`: says how many bytes of what it keeps are not as they were;
//! - `end`: powers off.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;

const KEPT_BYTES: usize = 32 << 20;
const PAGE_BYTES: usize = 4096;
const FINIT_MODULE: c_long = 313;
const COMPRESSED: c_int = 4;
const POWER_OFF: c_int = 0x4321_fedc;

unsafe extern "C" {
    fn mount(
        what: *const c_char,
        place: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn reboot(what: c_int) -> c_int;
}

fn load(module: &str) -> Result<(), std::io::Error> {
    let file = File::open(module)?;
    // SAFETY: the call reads a descriptor, an empty text and a number.
    let answer = unsafe { syscall(FINIT_MODULE, file.as_raw_fd(), c"".as_ptr(), COMPRESSED) };
    if answer == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

/// What a byte of the kept memory is: different from page to page.
fn pattern(at: usize) -> u8 {
    (at / PAGE_BYTES % 251) as u8 + 1
}

fn take(bytes: usize) -> (Vec<u8>, usize) {
    let mut taken = vec![0; bytes];
    let wrong = taken.iter().filter(|byte| **byte != 0).count();
    taken.fill(0xa5);
    (taken, wrong)
}

fn main() {
    // SAFETY: four texts that live on, and no data.
    unsafe {
        mount(
            c"dev".as_ptr(),
            c"/dev".as_ptr(),
            c"devtmpfs".as_ptr(),
            0,
            std::ptr::null(),
        );
    }
    let port = OpenOptions::new().read(true).write(true).open("/dev/ttyS0");
    let mut port = port.expect("a serial port");
    let input = BufReader::new(port.try_clone().expect("a descriptor"));
    let mut say = |text: String| writeln!(port, "guest: {text}").expect("the host reads");
    let mut kept = vec![0; KEPT_BYTES];
    for (at, byte) in kept.iter_mut().enumerate() {
        *byte = pattern(at);
    }
    match load("/virtio_balloon.ko.xz") {
        Ok(()) => say("ready".into()),
        Err(error) => say(format!("no balloon: {error}")),
    }
    let mut taken = Vec::new();
    for line in input.lines() {
        let line = line.expect("text");
        let mut words = line.split_whitespace();
        match (
            words.next(),
            words.next().and_then(|word| word.parse::<usize>().ok()),
        ) {
            (Some("take"), Some(mib)) => {
                let (memory, wrong) = take(mib << 20);
                taken = memory;
                say(format!("took {} with {wrong} wrong", taken.len() >> 20));
            }
            (Some("leave"), None) => {
                drop(std::mem::take(&mut taken));
                say("left".into());
            }
            (Some("check"), None) => {
                let wrong = kept
                    .iter()
                    .enumerate()
                    .filter(|(at, byte)| **byte != pattern(*at));
                say(format!("kept with {} wrong", wrong.count()));
            }
            (Some("end"), None) => {
                // SAFETY: nothing here is to be saved.
                let _ = unsafe { reboot(POWER_OFF) };
            }
            _ => say(format!("what is {line:?}?")),
        }
    }
}
