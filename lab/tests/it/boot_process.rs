//! Whole boots, with a script in QEMU's place that behaves in every way a guest
//! should not.

use crate::fake_qemu;

use fake_qemu::{FakeQemu, good_image, runs, wait_for};
use firstlight_lab::boot::{
    self, Accelerator, BootError, Fault, Misdeed, Request, Unwatched, Watch, Wish,
};
use firstlight_lab::record::Record;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn request(fake: &FakeQemu) -> Request {
    Request {
        wish: Wish::This(Accelerator::Tcg),
        image: Some(fake.kernel()),
        qemu: Some(fake.program()),
        ..Request::default()
    }
}

fn linux(fake: &FakeQemu) -> Request {
    Request {
        image: None,
        kernel: Some(fake.kernel()),
        ..request(fake)
    }
}

fn run(request: &Request) -> Result<Record, BootError> {
    boot::run(request, &AtomicUsize::new(0), &mut Unwatched)
}

/// Runs `request`, and sees to it that nothing of the `count` processes stays.
fn fault(fake: &FakeQemu, request: &Request, count: usize) -> Fault {
    let error = run(request).unwrap_err();
    for process in fake.processes(count) {
        gone(process);
    }
    error.fault().unwrap_or_else(|| panic!("{error:?}")).clone()
}

/// Waits for the end of a process that has been killed.
fn gone(process: u32) {
    wait_for(|| (!runs(process)).then_some(()));
}

#[test]
fn what_the_image_says_becomes_a_record() {
    let fake = FakeQemu::new(&good_image());
    let record = run(&request(&fake)).unwrap();
    assert_eq!((record.schema, record.kind), ("firstlight.run/1", "boot"));
    assert_eq!(record.source.command_line, "selftest");
    // Two ticks a nanosecond.
    let milestones = &record.milestones;
    assert_eq!(milestones.entry_ns, Some(1000));
    assert_eq!(milestones.layout_ns, Some(2000));
    assert_eq!(milestones.first_frame_ns, Some(2500));
    assert_eq!(milestones.all_allocatable_ns, Some(2500));
    assert_eq!(milestones.cpus_started_ns, Some(4500));
    let phases: Vec<_> = record
        .phases
        .iter()
        .map(|phase| (&*phase.name, phase.start_ns, phase.end_ns))
        .collect();
    assert_eq!(
        phases,
        [("firmware and loader", 0, 1000), ("memory map", 1000, 1500)]
    );
    assert_eq!(record.machine.memory_bytes, Some(256 << 20));
    assert_eq!(record.machine.asked.as_ref().unwrap().memory_bytes, 4 << 30);
    assert_eq!(record.memory.reserved_frames, Some(36));
    assert_eq!(record.memory.metadata_resident_bytes, None);
    assert_eq!(record.nodes[0].distances, [10, 20]);
    assert_eq!(record.zones[0].zone, "DMA");
    assert_eq!(record.corrections, ["an entry was corrected"]);
    assert_eq!(record.notes, ["a note"]);
    assert_eq!(record.selftest.unwrap().all_frames, 65_500);
    assert_eq!(record.bench[0].duration_ns, Some(2000));
    assert_eq!(record.log, ["[    0.000001] hello"]);
    // What nobody here knows is kept as it came.
    let unknown = &record.events[15];
    assert_eq!(unknown["what"][2], 3);
    let host = record.host.unwrap();
    assert_eq!(host.qemu_version.as_deref(), Some("9.8.7"));
    assert_eq!((host.attempts, host.exit_status), (1, Some(85)));
    let markers: Vec<_> = host.markers.iter().map(|marker| marker.name).collect();
    assert_eq!(markers, [Some("entry"), Some("all allocatable")]);
    assert!(host.first_output_ns.is_some());
    // What is told to be repeated is what was started, but for where output goes.
    let started = fs::read_to_string(fake.file("arguments")).unwrap();
    let told = host.command[1..].join(" ");
    let rest = |text: &str| -> Vec<String> {
        let words = text.split_whitespace();
        let words = words.filter(|word| !word.contains(",id="));
        words.map(str::to_owned).collect()
    };
    assert_eq!(rest(&started), rest(&told));
}

#[test]
fn events_among_the_log_count_as_well() {
    let body = good_image().replace("> $events", "| sed 's/^/noise @firstlight /' >> $log");
    let fake = FakeQemu::new(&body);
    let record = run(&request(&fake)).unwrap();
    assert_eq!(record.milestones.entry_ns, Some(1000));
    assert_eq!(record.log.len(), 20);
}

#[test]
fn an_image_that_does_not_know_its_clock_has_no_times() {
    let body = good_image().replace(r#"{"event":"clock""#, r#"{"event":"clock of another kind""#);
    let record = run(&request(&FakeQemu::new(&body))).unwrap();
    assert_eq!(record.milestones.entry_ns, None);
    assert_eq!(record.phases, []);
    assert_eq!(record.bench[0].duration_ns, None);
    let said = record
        .notes
        .iter()
        .any(|note| note.contains("how fast its clock is"));
    assert!(said, "{:?}", record.notes);
}

#[test]
fn a_guest_that_hangs_is_ended_with_all_it_started() {
    let fake =
        FakeQemu::new("echo begins > $log\nsleep 1000 &\necho $! >> $here/pids\nexec sleep 1000");
    let request = Request {
        silence: Duration::from_millis(500),
        ..request(&fake)
    };
    let fault = fault(&fake, &request, 2);
    assert!(matches!(fault.misdeed, Misdeed::Hung(_)), "{fault:?}");
    assert_eq!(fault.tail, ["begins"]);
    assert_eq!(fault.command[0], fake.program().display().to_string());
}

#[test]
fn a_guest_that_closes_its_ports_and_stays_hangs() {
    let fake = FakeQemu::new(
        "exec sh -c 'for n in 1 2 3 4 5 6 7 8 9; do eval \"exec $n>&-\"; done; sleep 1000' > /dev/null 2>&1",
    );
    let request = Request {
        silence: Duration::from_millis(500),
        ..request(&fake)
    };
    let fault = fault(&fake, &request, 1);
    assert!(matches!(fault.misdeed, Misdeed::Hung(_)), "{fault:?}");
}

#[test]
fn rubbish_is_quoted_without_its_control_characters() {
    for (junk, quoted) in [
        (r"\033[31mno json\n", "no json"),
        (
            r#"{\042event\042:\042end\042,\042outcome\042:\042maybe\042}\n"#,
            "maybe",
        ),
        (
            r#"{\042event\042:\042milestone\042,\042name\042:\042entry\042,\042ticks\042:-1}\n"#,
            "ticks",
        ),
        (r#"[1]\n"#, "[1]"),
        (
            r#"{\042event\042:\042region\042,\042start\042:2,\042end\042:1,\042kind\042:\042usable\042}\n"#,
            "before it starts",
        ),
    ] {
        let body = good_image().replace("exit 85", &format!("printf '{junk}' > $events\nexit 85"));
        let body = body.replace("{\"event\":\"end\",\"outcome\":\"ok\"}\n", "");
        let fake = FakeQemu::new(&body);
        let fault = fault(&fake, &request(&fake), 1);
        let Misdeed::Rubbish(text) = &fault.misdeed else {
            panic!("{junk}: {fault:?}");
        };
        assert!(text.contains(quoted), "{junk}: {text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn every_way_to_end_has_its_verdict() {
    let end = |outcome: &str, code: u32| {
        let body = good_image().replace(r#""outcome":"ok""#, &format!(r#""outcome":"{outcome}""#));
        FakeQemu::new(&body.replace("exit 85", &format!("echo why >> $log; exit {code}")))
    };
    let error = |fake: FakeQemu| run(&request(&fake)).unwrap_err();
    let is_check = matches!(error(end("check failed", 87)), BootError::CheckFailed(_));
    assert!(is_check);
    let is_machine = matches!(error(end("machine", 93)), BootError::Machine(_));
    assert!(is_machine);
    for (outcome, code, misdeed) in [
        ("fault", 89, Misdeed::Faulted("why".into())),
        ("panic", 91, Misdeed::Panicked("why".into())),
        ("ok", 0, Misdeed::Died(Some(0))),
        ("ok", 77, Misdeed::Died(Some(77))),
    ] {
        let error = error(end(outcome, code));
        assert_eq!(error.fault().unwrap().misdeed, misdeed);
        assert!(matches!(error, BootError::Guest(_)));
    }
    for (outcome, code) in [("machine", 85), ("ok", 93), ("ok", 87)] {
        let error = error(end(outcome, code));
        let misdeed = &error.fault().unwrap().misdeed;
        assert!(matches!(misdeed, Misdeed::Contradicted(_)), "{misdeed:?}");
    }
}

#[test]
fn a_qemu_that_a_signal_ends_is_a_death() {
    let fake = FakeQemu::new("echo begins > $log\nkill -9 $$");
    let fault = fault(&fake, &request(&fake), 1);
    assert_eq!(fault.misdeed, Misdeed::Died(None));
    assert_eq!(fault.tail, ["begins"]);
}

#[test]
fn a_qemu_that_refuses_is_quoted() {
    let fake = FakeQemu::new("echo 'qemu: no such thing' >&2\nexit 1");
    let error = run(&request(&fake)).unwrap_err();
    let BootError::QemuRefused { words, command } = error else {
        panic!("{error:?}");
    };
    assert_eq!(words, "qemu: no such thing");
    assert!(command.contains(&"-kernel".to_owned()));
}

#[test]
fn a_guest_that_does_not_stop_talking_is_stopped() {
    let fake = FakeQemu::new("exec yes 'all work and no play' > $log");
    let fault = fault(&fake, &request(&fake), 1);
    assert!(matches!(fault.misdeed, Misdeed::Flooded(_)), "{fault:?}");
    assert_eq!(fault.tail.len(), 20);
    for port in ["$markers", "&2"] {
        let fake = FakeQemu::new(&format!("exec yes > {port}").replace("> &", ">&"));
        let fault = self::fault(&fake, &request(&fake), 1);
        let flooded = matches!(fault.misdeed, Misdeed::Flooded(_));
        assert!(flooded, "{port}: {:?}", fault.misdeed);
    }
}

#[test]
fn an_event_that_our_end_cuts_off_is_no_rubbish() {
    let fake = FakeQemu::new("printf '{\"event\":\"st' > $events\nexec sleep 1000");
    let request = Request {
        silence: Duration::from_millis(500),
        ..request(&fake)
    };
    let fault = fault(&fake, &request, 1);
    assert!(matches!(fault.misdeed, Misdeed::Hung(_)), "{fault:?}");
}

#[test]
fn an_image_that_counts_failures_is_not_well() {
    let body = good_image().replace(r#""failures":0"#, r#""failures":7"#);
    let fake = FakeQemu::new(&body);
    let fault = fault(&fake, &request(&fake), 1);
    let Misdeed::Contradicted(text) = &fault.misdeed else {
        panic!("{fault:?}");
    };
    assert!(text.contains("7 failures"), "{text}");
}

/// Asked for its version, it says nothing and stays.
#[test]
fn a_qemu_that_does_not_answer_can_be_stopped() {
    let fake = FakeQemu::new("");
    let program = fake.program();
    fs::write(
        &program,
        "#!/bin/sh\necho $$ > $(dirname $0)/pids\nexec sleep 1000\n",
    )
    .unwrap();
    let stop = AtomicUsize::new(0);
    /// Asks to stop once the program runs.
    struct Asks<'a>(&'a AtomicUsize, &'a FakeQemu);
    impl Watch for Asks<'_> {
        fn tick(&mut self) {
            let told = fs::read_to_string(self.1.file("pids")).unwrap_or_default();
            if told.ends_with('\n') {
                self.0.store(15, Ordering::Relaxed);
            }
        }
    }
    let error = boot::run(&request(&fake), &stop, &mut Asks(&stop, &fake)).unwrap_err();
    assert!(matches!(error, BootError::Interrupted(15)), "{error:?}");
    for process in fake.processes(1) {
        gone(process);
    }
}

#[test]
fn a_program_that_is_no_qemu_is_not_taken_for_a_guest() {
    let fake = FakeQemu::new("");
    let request = Request {
        qemu: Some("true".into()),
        ..request(&fake)
    };
    let error = run(&request).unwrap_err();
    assert!(matches!(error, BootError::NoQemu { .. }), "{error:?}");
}

/// To open a pipe is to wait for whoever writes it, and no signal ends that.
#[test]
fn a_kernel_that_is_a_pipe_is_refused() {
    let fake = FakeQemu::new("");
    let pipe = fake.file("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let request = Request {
        kernel: Some(pipe),
        ..linux(&fake)
    };
    let error = run(&request).unwrap_err();
    assert!(error.to_string().contains("no regular file"), "{error}");
}

#[test]
fn who_asks_to_stop_is_obeyed() {
    let fake = FakeQemu::new("echo begins > $log\nexec sleep 1000");
    let stop = AtomicUsize::new(0);
    /// Asks to stop as soon as the guest says something.
    struct Asks<'a>(&'a AtomicUsize);
    impl Watch for Asks<'_> {
        fn line(&mut self, line: &str) {
            assert_eq!(line, "begins");
            self.0.store(2, Ordering::Relaxed);
        }
    }
    let error = boot::run(&request(&fake), &stop, &mut Asks(&stop)).unwrap_err();
    assert!(matches!(error, BootError::Interrupted(2)), "{error:?}");
    for process in fake.processes(1) {
        gone(process);
    }
}

const ROOTLESS: &str = "echo '[    0.500] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)' > $log";
const PATCHED: &str = "echo '[    0.300] Oops: int3: 0000 [#1] PREEMPT SMP\n[    0.310] Kernel panic - not syncing: Fatal exception' > $log";

#[test]
fn a_linux_ends_well_without_a_root_file_system() {
    let fake = FakeQemu::new(ROOTLESS);
    let record = run(&linux(&fake)).unwrap();
    assert_eq!(record.source.kind, "linux");
    assert_eq!(record.host.unwrap().attempts, 1);
    // With an initial file system the same panic is a failure.
    let request = Request {
        initrd: Some(fake.kernel()),
        ..linux(&fake)
    };
    let fault = fault(&fake, &request, 2);
    assert!(matches!(fault.misdeed, Misdeed::Panicked(_)), "{fault:?}");
}

#[test]
fn a_linux_that_stays_in_its_panic_is_ended() {
    let halted =
        "echo '---[ end Kernel panic - not syncing: VFS: Unable to mount root fs ]---' >> $log";
    let fake = FakeQemu::new(&format!("{ROOTLESS}\n{halted}\nexec sleep 1000"));
    let record = run(&linux(&fake)).unwrap();
    assert_eq!(record.log.len(), 2);
    for process in fake.processes(1) {
        gone(process);
    }
}

#[test]
fn a_linux_that_is_reset_without_a_word_died() {
    let fake = FakeQemu::new("echo '[    0.500] booting' > $log\nexit 0");
    let fault = fault(&fake, &linux(&fake), 1);
    assert_eq!(fault.misdeed, Misdeed::Died(Some(0)));
    let fake = FakeQemu::new("echo '[    0.500] reboot: Power down' > $log\nexit 0");
    assert!(run(&linux(&fake)).is_ok());
}

#[test]
fn a_word_that_is_waited_for_ends_the_guest() {
    let fake = FakeQemu::new("echo 'debian login: ' > $log\nexec sleep 1000");
    let request = Request {
        initrd: Some(fake.kernel()),
        until: Some("login:".into()),
        ..linux(&fake)
    };
    let record = run(&request).unwrap();
    assert_eq!(record.log, ["debian login:"]);
    assert_eq!(record.host.unwrap().exit_status, None);
    for process in fake.processes(1) {
        gone(process);
    }
}

/// A prompt has no end of line.
#[test]
fn a_prompt_that_is_waited_for_ends_the_guest() {
    let fake = FakeQemu::new("printf 'debian login: ' > $log\nexec sleep 1000");
    let request = Request {
        initrd: Some(fake.kernel()),
        until: Some("login:".into()),
        ..linux(&fake)
    };
    assert_eq!(run(&request).unwrap().log, ["debian login:"]);
    // One that goes at once has said it as well.
    let fake = FakeQemu::new("echo 'debian login: ' > $log");
    let request = Request {
        qemu: Some(fake.program()),
        ..request
    };
    assert_eq!(run(&request).unwrap().log, ["debian login:"]);
}

#[test]
fn a_linux_that_died_of_qemu_is_booted_again() {
    let body =
        format!("[ -e $here/again ] && {{ {ROOTLESS}; exit 0; }}\ntouch $here/again\n{PATCHED}");
    let record = run(&several(linux(&FakeQemu::new(&body)))).unwrap();
    let host = record.host.unwrap();
    assert_eq!(host.attempts, 2);
    assert!(host.retried_because.unwrap().contains("int3"));
    // Nothing of the first boot is in the record.
    assert_eq!(record.log.len(), 1);

    let fake = FakeQemu::new(PATCHED);
    let fault = fault(&fake, &several(linux(&fake)), 5);
    assert_eq!(fault.attempts, 5);
    assert!(fault.to_string().contains("boot 5"), "{fault}");

    // A timer that stands still, also with one CPU.
    let timer =
        "echo \"[    0.036] Kernel panic - not syncing: IO-APIC + timer doesn't work!\" > $log";
    let body =
        format!("[ -e $here/again ] && {{ {ROOTLESS}; exit 0; }}\ntouch $here/again\n{timer}");
    let host = run(&linux(&FakeQemu::new(&body))).unwrap().host.unwrap();
    assert_eq!(host.attempts, 2);
    assert!(host.retried_because.unwrap().contains("timer"));

    // Under KVM it is not QEMU's doing.
    let fake = FakeQemu::new(PATCHED);
    let request = Request {
        wish: Wish::This(Accelerator::Kvm),
        ..several(linux(&fake))
    };
    let error = run(&request).unwrap_err();
    assert_eq!(error.fault().unwrap().attempts, 1);

    // Nor is it where no other CPU could have met the half of an instruction.
    let fake = FakeQemu::new(PATCHED);
    let error = run(&linux(&fake)).unwrap_err();
    assert_eq!(error.fault().unwrap().attempts, 1);
}

/// With several CPUs, without which nobody meets the half of an instruction.
fn several(request: Request) -> Request {
    let machine = boot::Machine {
        cpus: 2,
        ..request.machine
    };
    Request { machine, ..request }
}

#[test]
fn what_is_missing_is_named_before_anything_starts() {
    let fake = FakeQemu::new(&good_image());
    let missing = fake.file("missing");
    let table = [
        Request {
            qemu: Some(missing.clone()),
            ..request(&fake)
        },
        Request {
            image: Some(missing.clone()),
            ..request(&fake)
        },
        Request {
            image: Some(fake.file("")),
            ..request(&fake)
        },
        Request {
            kernel: Some(missing.clone()),
            ..linux(&fake)
        },
        Request {
            initrd: Some(missing.clone()),
            ..linux(&fake)
        },
    ];
    for request in table {
        let error = run(&request).unwrap_err();
        let text = error.to_string();
        let folder = fake.file("");
        assert!(text.contains(folder.to_str().unwrap()), "{text}");
        match error {
            BootError::NoQemu { .. } => assert!(text.contains("qemu-system-x86"), "{text}"),
            BootError::Unreadable { .. } => {}
            error => panic!("{error:?}"),
        }
    }
    assert!(!fake.file("pids").exists());
}
