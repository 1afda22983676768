//! QEMU's arguments for a machine and what boots on it: [`Launch`]. Pure: the
//! same request always gives the same list.
//!
//! The human log leaves on the first serial port, events on the second or marked beside the
//! log, markers on port 0x80 or by semihosting; where they go on the host is the caller's choice, [`Ports`]: to
//! pipes for a run, to the terminal for a person who repeats it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::machine::{Accelerator, Board, Clock, Firmware, Machine, Processor, System};
use super::uefi::Uefi;

/// Where the guest's output goes: a QEMU character device each, without its name
/// (`stdio`, `null`, `file,path=...`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// First serial port.
    pub log: String,
    /// Second serial port, of our image, on boards that have one.
    pub events: String,
    /// Port 0x80, or characters by semihosting, of our image.
    pub markers: String,
    /// QEMU's machine protocol; none is needed.
    pub protocol: Option<String>,
}

impl Ports {
    /// For a person: the log on the terminal, the rest nowhere.
    #[must_use]
    pub fn terminal() -> Self {
        Self {
            log: "stdio".into(),
            events: "null".into(),
            markers: "null".into(),
            protocol: None,
        }
    }
}

/// What boots on which machine.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'l> {
    /// The machine.
    pub machine: &'l Machine,
    /// What runs it.
    pub accelerator: Accelerator,
    /// What boots.
    pub system: System,
    /// Its file.
    pub kernel: &'l Path,
    /// Its initial file system.
    pub initrd: Option<&'l Path>,
    /// Words of its command line, besides those it needs.
    pub append: &'l str,
    /// The files of a machine with UEFI; the image and its words are on its stick.
    pub uefi: Option<&'l Uefi>,
    /// Further arguments for QEMU, last.
    pub extra: &'l [String],
}

/// Where a microvm's first device is, in the words of Linux's command line.
const MMIO_WORD: &str = "virtio_mmio.device=512@0xfeb00000:5";
/// What asks our image to restart, and the place of its table where no word names one; by UEFI another, as OVMF
/// has memory of boot services there, which is left to firmware.
const RESTART_WORD: &str = "restart=warm";
const PLACE_WORD: &str = "preserve=64K@16M";
const UEFI_PLACE_WORD: &str = "preserve=64K@32M";
/// Names no place.
const VERIFIED_WORD: &str = "preserve=verified";
/// The balloon, in QEMU's words; `balloon0` is its name in QEMU's tree.
const BALLOON: &str = "id=balloon0,free-page-reporting=on";
/// What every Linux is told besides where to talk: to leave no line out, and to end at once
/// when it panics.
const LINUX_WORDS: &str = "ignore_loglevel panic=-1";
/// One tick of the instruction clock is one nanosecond.
const INSTRUCTION_HZ: u64 = 1_000_000_000;
/// A day to begin at, so that no run differs by its date.
const CLOCK_BASE: &str = "base=2026-01-01T00:00:00,clock=vm";

/// What makes a Linux print from its first line on: by the host's clock a line has a time
/// only once there is a console.
fn early_console(processor: Processor) -> &'static str {
    match processor {
        Processor::X86_64 => "earlyprintk=ttyS0",
        Processor::Aarch64 | Processor::Riscv64 => "earlycon",
    }
}

impl Launch<'_> {
    /// The guest's command line.
    #[must_use]
    pub fn command_line(&self) -> String {
        let counted = self.machine.clock == Clock::Instructions;
        let mut words = Vec::new();
        match self.system {
            System::Linux => {
                let console = match self.machine.board.processor() {
                    Processor::Aarch64 => "ttyAMA0",
                    Processor::X86_64 | Processor::Riscv64 => "ttyS0",
                };
                words.push(format!("console={console} {LINUX_WORDS}"));
                if !counted {
                    words.push(early_console(self.machine.board.processor()).to_owned());
                }
                if self.machine.board == Board::Microvm {
                    // It has no keyboard controller to ask for a restart.
                    words.push("reboot=t".to_owned());
                }
            }
            System::Image => {
                // The other processors' counters have a frequency that does not change.
                if counted && self.machine.board.processor() == Processor::X86_64 {
                    words.push(format!("tsc_hz={INSTRUCTION_HZ}"));
                }
                if let Some(hotplug) = self.machine.hotplug {
                    words.push(format!("hotplug={}", hotplug.slots));
                }
                if self.machine.balloon {
                    words.push("balloon=watched".to_owned());
                    if self.machine.board == Board::Microvm {
                        words.push(MMIO_WORD.to_owned());
                    }
                }
                let mut given = self.append.split_whitespace();
                let placed = given
                    .clone()
                    .any(|word| word.starts_with("preserve=") && word != VERIFIED_WORD);
                let restarts = self.machine.board.processor() == Processor::X86_64;
                if restarts && given.any(|word| word == RESTART_WORD) && !placed {
                    let place = match self.machine.firmware {
                        Firmware::Uefi => UEFI_PLACE_WORD,
                        Firmware::Loader => PLACE_WORD,
                    };
                    words.push(place.to_owned());
                }
            }
        }
        words.push(self.append.trim().to_owned());
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }

    /// QEMU's arguments.
    #[must_use]
    pub fn arguments(&self, ports: &Ports) -> Vec<OsString> {
        let mut list = List::default();
        self.board(&mut list);
        self.processor(&mut list);
        self.memory(&mut list);
        // Nothing that was not asked for: no display, no network, no disk, no
        // monitor that would read the terminal, no second run after the first.
        for option in ["-display none", "-monitor none", "-nodefaults"] {
            list.words(option);
        }
        list.words("-no-user-config");
        if self.uefi.is_none() {
            list.words("-no-reboot");
        }
        self.ports(&mut list, ports);
        self.balloon(&mut list);
        self.protocol(&mut list, ports);
        if let Some(uefi) = self.uefi {
            uefi_drives(&mut list, uefi);
            list.0.extend(self.extra.iter().map(OsString::from));
            return list.0;
        }
        list.pair("-kernel", self.kernel);
        if let Some(initrd) = self.initrd {
            list.pair("-initrd", initrd);
        }
        let words = self.command_line();
        if !words.is_empty() {
            list.pair("-append", words);
        }
        list.0.extend(self.extra.iter().map(OsString::from));
        list.0
    }

    fn board(&self, list: &mut List) {
        let mut board = self.machine.board.qemu_name().to_owned();
        match self.machine.board {
            // The older one takes 8 CPUs.
            Board::VirtAarch64 => board.push_str(",gic-version=max"),
            // Its usual interrupt controller cannot be on several nodes in QEMU 7.2.
            Board::VirtRiscv64 if self.has_nodes() => board.push_str(",aia=aplic-imsic"),
            _ => {}
        }
        // Without a table of nodes, memory is the board's own.
        if !self.has_nodes() {
            board.push_str(",memory-backend=memory0");
        }
        let emulated = self.accelerator == Accelerator::Tcg;
        if self.machine.board == Board::Microvm && self.system == System::Linux && emulated {
            // With ACPI this board has no timer that a Linux without a
            // paravirtual clock could measure its own clocks by, and it stops.
            board.push_str(",acpi=off");
        }
        list.pair("-machine", board);
    }

    fn processor(&self, list: &mut List) {
        let all = match self.machine.board.processor() {
            Processor::Riscv64 => "rv64",
            Processor::X86_64 | Processor::Aarch64 => "max",
        };
        let (accelerator, processor) = match (self.accelerator, self.machine.clock) {
            (Accelerator::Kvm, _) => ("kvm", "host"),
            (Accelerator::Tcg, Clock::Wall) => ("tcg", all),
            (Accelerator::Tcg, Clock::Instructions) => ("tcg,thread=single", all),
        };
        list.pair("-accel", accelerator);
        list.pair("-cpu", processor);
        let cpus = self.machine.cpus;
        // A package never spans nodes: one for each CPU where there are nodes.
        list.pair(
            "-smp",
            if self.machine.nodes > 1 {
                format!("{cpus},sockets={cpus},cores=1,threads=1")
            } else {
                cpus.to_string()
            },
        );
        if self.machine.clock == Clock::Instructions {
            list.pair("-icount", "shift=0,sleep=off");
            list.pair("-rtc", CLOCK_BASE);
            // What the guest takes for random is the same every time, too.
            list.pair("-seed", "1");
        }
    }

    fn memory(&self, list: &mut List) {
        let machine = self.machine;
        let mut size = format!("{}M", machine.memory_mib);
        if let Some(hotplug) = machine.hotplug {
            let (slots, most) = (hotplug.slots, hotplug.max_memory_mib);
            size.push_str(&format!(",slots={slots},maxmem={most}M"));
        }
        list.pair("-m", size);
        for (node, mib) in (0..).zip(machine.node_mib()) {
            // Address space only: the guest may be larger than the host.
            let backend = format!("memory-backend-ram,id=memory{node},size={mib}M,reserve=off");
            list.pair("-object", backend);
            if !self.has_nodes() {
                continue;
            }
            let cpus = machine.node_cpus(node);
            let cpus = match cpus.len() {
                0 => String::new(),
                1 => format!(",cpus={}", cpus.start),
                _ => format!(",cpus={}-{}", cpus.start, cpus.end - 1),
            };
            list.pair(
                "-numa",
                format!("node,nodeid={node},memdev=memory{node}{cpus}"),
            );
        }
    }

    fn balloon(&self, list: &mut List) {
        if !self.machine.balloon {
            return;
        }
        if self.machine.board.has_mmio() {
            // Modern registers, and at a known place.
            list.pair("-global", "virtio-mmio.force-legacy=off");
            let device = format!("virtio-balloon-device,bus=virtio-mmio-bus.0,{BALLOON}");
            list.pair("-device", device);
        } else {
            list.pair("-device", format!("virtio-balloon-pci,{BALLOON}"));
        }
    }

    /// Whether QEMU has a table of nodes: for DIMMs, too, which are of a node.
    fn has_nodes(&self) -> bool {
        self.machine.nodes > 1 || self.machine.hotplug.is_some()
    }

    fn protocol(&self, list: &mut List, ports: &Ports) {
        if let Some(protocol) = &ports.protocol {
            list.backend("protocol", protocol);
            list.pair("-mon", "chardev=protocol,mode=control");
        }
    }

    fn ports(&self, list: &mut List, ports: &Ports) {
        list.backend("log", &ports.log);
        list.pair("-serial", "chardev:log");
        if self.system != System::Image {
            return;
        }
        if self.machine.board.processor() == Processor::X86_64 {
            list.backend("events", &ports.events);
            // Named in full: a microvm has one port only, until it is told.
            let second = "isa-serial,chardev=events,index=1,iobase=0x2f8,irq=3";
            list.pair("-device", second);
            list.backend("markers", &ports.markers);
            list.pair("-device", "isa-debugcon,chardev=markers,iobase=0x80");
            // By UEFI the machine ends as a real one does.
            if self.uefi.is_none() {
                list.pair("-device", "isa-debug-exit,iobase=0xf4,iosize=0x04");
            }
        } else if self.uefi.is_none() {
            list.backend("markers", &ports.markers);
            let semihosting = "enable=on,target=native,chardev=markers";
            list.pair("-semihosting-config", semihosting);
        }
    }
}

/// Firmware, its variables, and the stick as a USB stick.
fn uefi_drives(list: &mut List, uefi: &Uefi) {
    let mut drive = |options: &str, path: &Path| {
        // A comma ends a file's name in QEMU, unless it is doubled.
        let name = path.to_string_lossy().replace(',', ",,");
        list.pair("-drive", format!("{options},format=raw,file={name}"));
    };
    drive("if=pflash,readonly=on", &uefi.code);
    drive("if=pflash", &uefi.variables);
    drive("if=none,id=stick", &uefi.stick);
    list.pair("-device", "qemu-xhci");
    list.pair("-device", "usb-storage,drive=stick,bootindex=0");
}

/// Arguments so far.
#[derive(Default)]
struct List(Vec<OsString>);

impl List {
    fn words(&mut self, words: &str) {
        self.0.extend(words.split(' ').map(OsString::from));
    }

    /// A character device: `kind,rest` becomes `kind,id=...,rest`.
    fn backend(&mut self, id: &str, device: &str) {
        let (kind, rest) = device.split_once(',').unwrap_or((device, ""));
        let comma = if rest.is_empty() { "" } else { "," };
        self.pair("-chardev", format!("{kind},id={id}{comma}{rest}"));
    }

    fn pair(&mut self, option: &str, value: impl AsRef<OsStr>) {
        self.0.push(option.into());
        self.0.push(value.as_ref().to_owned());
    }
}

/// Arguments as a shell takes them: quoted where that is needed.
///
/// ```
/// use firstlight_lab::boot::shell_words;
/// let words = ["qemu", "-append", "panic=-1 it's"].map(String::from);
/// assert_eq!(shell_words(&words), r#"qemu -append 'panic=-1 it'\''s'"#);
/// ```
#[must_use]
pub fn shell_words(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:+@%".contains(c);
    let quoted: Vec<String> = words
        .iter()
        .map(|word| {
            if !word.is_empty() && word.chars().all(plain) {
                word.clone()
            } else {
                format!("'{}'", word.replace('\'', r"'\''"))
            }
        })
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::machine::Slots;
    use super::*;

    fn list(launch: &Launch<'_>) -> String {
        let ports = Ports {
            log: "file,path=/dev/fd/3".into(),
            events: "null".into(),
            markers: "null".into(),
            protocol: (launch.machine.balloon || launch.machine.hotplug.is_some())
                .then(|| "socket,fd=9".into()),
        };
        let words = launch.arguments(&ports);
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    fn launch<'l>(machine: &'l Machine, system: System, extra: &'l [String]) -> Launch<'l> {
        Launch {
            machine,
            accelerator: Accelerator::Tcg,
            system,
            kernel: Path::new("/a kernel"),
            initrd: None,
            append: " one two ",
            uefi: None,
            extra,
        }
    }

    #[test]
    fn the_whole_list_for_our_image() {
        let machine = Machine {
            memory_mib: 4099,
            nodes: 2,
            cpus: 5,
            clock: Clock::Instructions,
            ..Machine::default()
        };
        assert_eq!(
            list(&launch(&machine, System::Image, &["-x".into()])),
            "-machine q35 -accel tcg,thread=single -cpu max -smp 5,sockets=5,cores=1,threads=1 \
             -icount shift=0,sleep=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1 -m 4099M \
             -object memory-backend-ram,id=memory0,size=2049M,reserve=off \
             -numa node,nodeid=0,memdev=memory0,cpus=0-2 \
             -object memory-backend-ram,id=memory1,size=2050M,reserve=off \
             -numa node,nodeid=1,memdev=memory1,cpus=3-4 \
             -display none -monitor none -nodefaults -no-user-config -no-reboot \
             -chardev file,id=log,path=/dev/fd/3 -serial chardev:log \
             -chardev null,id=events \
             -device isa-serial,chardev=events,index=1,iobase=0x2f8,irq=3 \
             -chardev null,id=markers -device isa-debugcon,chardev=markers,iobase=0x80 \
             -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
             -kernel /a kernel -append tsc_hz=1000000000 one two -x"
        );
    }

    #[test]
    fn the_whole_list_for_a_linux() {
        let machine = Machine {
            board: Board::Microvm,
            cpus: 2,
            ..Machine::default()
        };
        let mut launch = launch(&machine, System::Linux, &[]);
        launch.initrd = Some(Path::new("initrd"));
        let under_tcg = list(&launch);
        assert_eq!(
            under_tcg,
            "-machine microvm,memory-backend=memory0,acpi=off -accel tcg -cpu max -smp 2 -m 4096M \
             -object memory-backend-ram,id=memory0,size=4096M,reserve=off \
             -display none -monitor none -nodefaults -no-user-config -no-reboot \
             -chardev file,id=log,path=/dev/fd/3 -serial chardev:log \
             -kernel /a kernel -initrd initrd \
             -append console=ttyS0 ignore_loglevel panic=-1 earlyprintk=ttyS0 reboot=t one two"
        );
        launch.accelerator = Accelerator::Kvm;
        let under_kvm = under_tcg
            .replace(",acpi=off", "")
            .replace("-accel tcg -cpu max", "-accel kvm -cpu host");
        assert_eq!(list(&launch), under_kvm);
    }

    #[test]
    fn other_processors_have_one_port_and_semihosting() {
        let machine = Machine {
            board: Board::VirtRiscv64,
            nodes: 2,
            cpus: 2,
            clock: Clock::Instructions,
            ..Machine::default()
        };
        let words = list(&launch(&machine, System::Image, &[]));
        assert_eq!(
            words,
            "-machine virt,aia=aplic-imsic -accel tcg,thread=single -cpu rv64 \
             -smp 2,sockets=2,cores=1,threads=1 \
             -icount shift=0,sleep=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1 -m 4096M \
             -object memory-backend-ram,id=memory0,size=2048M,reserve=off \
             -numa node,nodeid=0,memdev=memory0,cpus=0 \
             -object memory-backend-ram,id=memory1,size=2048M,reserve=off \
             -numa node,nodeid=1,memdev=memory1,cpus=1 \
             -display none -monitor none -nodefaults -no-user-config -no-reboot \
             -chardev file,id=log,path=/dev/fd/3 -serial chardev:log \
             -chardev null,id=markers \
             -semihosting-config enable=on,target=native,chardev=markers \
             -kernel /a kernel -append one two"
        );
        let machine = Machine {
            board: Board::VirtAarch64,
            balloon: true,
            ..Machine::default()
        };
        let words = list(&launch(&machine, System::Linux, &[]));
        for expected in [
            "-machine virt,gic-version=max,memory-backend=memory0 -accel tcg -cpu max ",
            "-device virtio-balloon-device,bus=virtio-mmio-bus.0,",
            "-append console=ttyAMA0 ignore_loglevel panic=-1 earlycon one two",
        ] {
            assert!(words.contains(expected), "{expected}: {words}");
        }
        assert!(!words.contains("semihosting"), "{words}");
    }

    #[test]
    fn a_balloon_is_a_device_and_a_word() {
        let mut machine = Machine {
            balloon: true,
            ..Machine::default()
        };
        let protocol = " -chardev socket,id=protocol,fd=9 -mon chardev=protocol,mode=control ";
        let words = list(&launch(&machine, System::Image, &[]));
        let device = "-device virtio-balloon-pci,id=balloon0,free-page-reporting=on";
        assert!(words.contains(&format!("{device}{protocol}")), "{words}");
        assert!(words.contains("-append balloon=watched one two"), "{words}");
        machine.board = Board::Microvm;
        let words = list(&launch(&machine, System::Image, &[]));
        let device = "-global virtio-mmio.force-legacy=off -device virtio-balloon-device,\
                      bus=virtio-mmio-bus.0,id=balloon0,free-page-reporting=on";
        assert!(words.contains(&format!("{device}{protocol}")), "{words}");
        assert!(
            words.contains(&format!("balloon=watched {MMIO_WORD} one")),
            "{words}"
        );
        machine.balloon = false;
        let words = list(&launch(&machine, System::Image, &[]));
        assert!(
            !words.contains("balloon") && !words.contains("-mon "),
            "{words}"
        );
    }

    #[test]
    fn a_restart_has_a_place_for_its_table() {
        let machine = Machine::default();
        let line = |append| {
            let mut launch = launch(&machine, System::Image, &[]);
            launch.append = append;
            launch.command_line()
        };
        assert_eq!(line("restart=warm"), "preserve=64K@16M restart=warm");
        let given = "preserve=4K@1G restart=warm";
        assert_eq!(line(given), given);
        assert_eq!(line("restart=cold"), "restart=cold");
    }

    #[test]
    fn slots_are_a_size_nodes_and_a_word() {
        let machine = Machine {
            hotplug: Some(Slots {
                slots: 3,
                max_memory_mib: 8192,
            }),
            ..Machine::default()
        };
        let words = list(&launch(&machine, System::Image, &[]));
        for expected in [
            "-machine q35 ",
            "-m 4096M,slots=3,maxmem=8192M ",
            "-numa node,nodeid=0,memdev=memory0,cpus=0 ",
            "-mon chardev=protocol,mode=control ",
            "-append hotplug=3 one",
        ] {
            assert!(words.contains(expected), "{expected}: {words}");
        }
    }

    #[test]
    fn nothing_to_say_is_no_argument() {
        let machine = Machine::default();
        let mut launch = launch(&machine, System::Image, &[]);
        launch.append = " ";
        assert!(!list(&launch).contains("-append"));
    }
}
