//! What runs the guest: KVM only where it has shown that it does, [`choose`].
//!
//! There are machines whose `/dev/kvm` opens and whose guests never get anywhere,
//! as a rule virtual ones. So a guest of eleven bytes is started first.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use super::command::Launch;
use super::error::{BootError, Refusal};
use super::guest::{Limits, listen};
use super::heard::How;
use super::machine::{Accelerator, Board, Clock, Machine, System};
use super::probe;
use super::watch::{Unwatched, Watch};
use crate::log::clean_text;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// KVM if it works, else TCG.
    #[default]
    Auto,
    /// This one and no other.
    This(Accelerator),
}

/// What runs the guest, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What.
    pub accelerator: Accelerator,
    /// Why, in words.
    pub reason: String,
}

impl Choice {
    fn new(accelerator: Accelerator, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            accelerator,
            reason,
        }
    }
}

/// Chooses for a machine.
///
/// # Errors
/// [`BootError`] if QEMU cannot be started, or somebody asks to stop.
pub(super) fn choose(
    wish: Wish,
    machine: &Machine,
    qemu: &Path,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> Result<Choice, BootError> {
    if let Wish::This(accelerator) = wish {
        return Ok(Choice::new(accelerator, "it was asked for"));
    }
    if machine.check_accelerator(Accelerator::Kvm)
        == Err(Refusal::KvmOther(machine.board.processor()))
    {
        let why = format!(
            "another processor is emulated: {}",
            machine.board.processor()
        );
        return Ok(Choice::new(Accelerator::Tcg, why));
    }
    if machine.clock == Clock::Instructions {
        let why = "the instruction clock is the emulator's";
        return Ok(Choice::new(Accelerator::Tcg, why));
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if let Err(error) = device {
        let why = format!("/dev/kvm cannot be opened: {error}");
        return Ok(Choice::new(Accelerator::Tcg, why));
    }
    watch.stage("trying KVM");
    try_kvm(qemu, stop)
}

/// Starts a guest that does nothing but end.
fn try_kvm(qemu: &Path, stop: &AtomicUsize) -> Result<Choice, BootError> {
    let host = |error| BootError::Host {
        what: "make the guest that tries KVM",
        error,
    };
    let (file, path) = guest_file().map_err(host)?;
    let machine = Machine {
        board: Board::Q35,
        memory_mib: 16,
        ..Machine::default()
    };
    let launch = Launch {
        machine: &machine,
        accelerator: Accelerator::Kvm,
        system: System::Image,
        kernel: &path,
        initrd: None,
        append: "",
        uefi: None,
        extra: &[],
    };
    let limits = Limits {
        silence: probe::PATIENCE,
        total: Some(probe::PATIENCE),
        until: &[],
        stop,
    };
    let heard = listen(qemu, &launch, vec![file], None, &limits, &mut Unwatched)?;
    let seconds = probe::PATIENCE.as_secs();
    Ok(match heard.how {
        How::Interrupted(signal) => return Err(BootError::Interrupted(signal)),
        How::Exited if heard.status.code() == Some(probe::STATUS) => Choice::new(
            Accelerator::Kvm,
            format!("a guest ran under KVM after {} ms", heard.wall.as_millis()),
        ),
        How::Exited => Choice::new(
            Accelerator::Tcg,
            format!("QEMU has no KVM here: {}", first_line(&heard.complaints)),
        ),
        _ => Choice::new(
            Accelerator::Tcg,
            format!(
                "/dev/kvm opens, but a guest did not get past its first instructions in {seconds} s"
            ),
        ),
    })
}

/// The guest as a file that has no name and goes with its descriptor.
fn guest_file() -> io::Result<(OwnedFd, PathBuf)> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("firstlight-probe", flags)?;
    let mut file = std::fs::File::from(file);
    file.write_all(&probe::image())?;
    let path = PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd()));
    Ok((file.into(), path))
}

/// What QEMU complained about first.
pub(super) fn first_line(complaints: &[u8]) -> String {
    let mut lines = complaints.split(|byte| *byte == b'\n');
    let line = lines.find(|line| !line.trim_ascii().is_empty());
    line.map_or("it does not say why".into(), clean_text)
}

#[cfg(test)]
#[path = "../../tests/it/fake_qemu/mod.rs"]
mod fake_qemu;

#[cfg(test)]
mod tests {
    use super::fake_qemu::{FakeQemu, runs, wait_for};
    use super::*;
    use std::time::Duration;

    fn tried(body: &str) -> (FakeQemu, Result<Choice, BootError>) {
        let fake = FakeQemu::new(body);
        let choice = try_kvm(&fake.program(), &AtomicUsize::new(0));
        (fake, choice)
    }

    #[test]
    fn kvm_is_taken_where_a_guest_shows_that_it_works() {
        // What is started as a kernel is the guest of eleven bytes, and under KVM.
        let body = "case \"$*\" in *'-accel kvm '*) ;; *) exit 9 ;; esac
for word in \"$@\"; do case $last in -kernel) head -c 4 $word | grep -q ELF || exit 8 ;; esac; last=$word; done
exit 85";
        let choice = tried(body).1.unwrap();
        assert_eq!(choice.accelerator, Accelerator::Kvm, "{}", choice.reason);
    }

    #[test]
    fn a_guest_that_does_not_get_there_is_ended_and_kvm_is_not_taken() {
        let (fake, choice) = tried("exec sleep 1000");
        let choice = choice.unwrap();
        assert_eq!(choice.accelerator, Accelerator::Tcg);
        assert!(choice.reason.contains("2 s"), "{}", choice.reason);
        for process in fake.processes(1) {
            wait_for(|| (!runs(process)).then_some(()));
        }
    }

    #[test]
    fn a_qemu_without_kvm_says_so_itself() {
        for (body, words) in [
            ("echo 'no KVM in here' >&2; exit 1", "no KVM in here"),
            ("exit 0", "does not say why"),
        ] {
            let choice = tried(body).1.unwrap();
            assert_eq!(choice.accelerator, Accelerator::Tcg);
            assert!(choice.reason.contains(words), "{}", choice.reason);
        }
    }

    /// The guest that tries KVM has to work where there is none, or nobody could say
    /// that its silence is KVM's fault.
    #[test]
    fn the_guest_that_tries_runs_under_emulation() {
        let (file, path) = guest_file().unwrap();
        let machine = Machine {
            memory_mib: 16,
            ..Machine::default()
        };
        let launch = Launch {
            machine: &machine,
            accelerator: Accelerator::Tcg,
            system: System::Image,
            kernel: &path,
            initrd: None,
            append: "",
            uefi: None,
            extra: &[],
        };
        let limits = Limits {
            silence: Duration::from_secs(60),
            total: None,
            until: &[],
            stop: &AtomicUsize::new(0),
        };
        let qemu = Path::new("qemu-system-x86_64");
        let heard = match listen(qemu, &launch, vec![file], None, &limits, &mut Unwatched) {
            Ok(heard) => heard,
            Err(error) => {
                assert!(matches!(error, BootError::NoQemu { .. }), "{error}");
                let _ = writeln!(io::stderr(), "skipped: {error}");
                return;
            }
        };
        let words = first_line(&heard.complaints);
        assert_eq!(heard.how, How::Exited, "{words}");
        assert_eq!(heard.status.code(), Some(probe::STATUS), "{words}");
    }

    #[test]
    fn the_clock_and_the_wish_decide_before_anything_is_tried() {
        let nowhere = Path::new("/nonexistent");
        let stop = AtomicUsize::new(0);
        let choose = |wish, clock| {
            let machine = Machine {
                clock,
                ..Machine::default()
            };
            choose(wish, &machine, nowhere, &stop, &mut Unwatched)
        };
        let asked = choose(Wish::This(Accelerator::Kvm), Clock::Wall).unwrap();
        assert_eq!(asked.accelerator, Accelerator::Kvm);
        let counted = choose(Wish::Auto, Clock::Instructions).unwrap();
        assert_eq!(counted.accelerator, Accelerator::Tcg);
        assert!(counted.reason.contains("instruction clock"));
    }
}
