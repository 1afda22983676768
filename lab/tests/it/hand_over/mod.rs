//! A loader of our own, for telling the image lies: [`HandOver`].
//!
//! It is a kernel that QEMU boots by PVH. It has a start info, a memory map, a
//! command line and ACPI tables in its one segment, and code that does nothing
//! but jump to the image, which QEMU has loaded beside it.

pub(crate) mod acpi;
pub(crate) mod qemu;
pub(crate) mod random;
pub(crate) mod uefi;

use crate::common::image::image;
use firstlight_lab::boot::Machine;
use qemu::Boot;
use random::Damage;

/// Where the segment lies.
const START: u64 = 0x500_0000;
/// The code lies behind the note that names it.
const CODE: usize = 0x20;
/// Parts begin on pages of their own.
const PAGE: usize = 0x1000;
/// Where the image lies.
pub(crate) const IMAGE: u64 = 0x20_0000;
/// Registers of the interrupt controller.
pub(crate) const DEVICE: u64 = 0xfee0_0000;
pub(crate) const MIB: u64 = 1 << 20;

/// Kinds of the memory map.
pub(crate) const USABLE: u32 = 1;
pub(crate) const RESERVED: u32 = 2;
pub(crate) const ACPI: u32 = 3;
pub(crate) const NVS: u32 = 4;

/// Start, bytes, kind.
pub(crate) type Row = (u64, u64, u32);

/// What QEMU has, at 256 MiB.
pub(crate) const MAP: [Row; 3] = [
    (0, 0x9_f000, USABLE),
    (0xf_0000, 0x1_0000, RESERVED),
    (MIB, 255 * MIB, USABLE),
];

/// The loader's own table.
#[derive(Clone, Debug)]
pub(crate) struct StartInfo {
    pub(crate) version: u32,
    pub(crate) modules: u32,
    pub(crate) module_list: u64,
    pub(crate) command_line: u64,
    pub(crate) root: u64,
    pub(crate) map: u64,
    pub(crate) map_rows: u32,
}

impl StartInfo {
    fn bytes(&self) -> Vec<u8> {
        [
            0x336e_c578_u32.to_le_bytes().as_slice(),
            &self.version.to_le_bytes(),
            &[0; 4],
            &self.modules.to_le_bytes(),
            &self.module_list.to_le_bytes(),
            &self.command_line.to_le_bytes(),
            &self.root.to_le_bytes(),
            &self.map.to_le_bytes(),
            &self.map_rows.to_le_bytes(),
            &[0; 4],
        ]
        .concat()
    }
}

/// What is handed over, and on which machine.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) machine: Machine,
    pub(crate) map: Vec<Row>,
    /// As it is in memory; its end is part of it.
    pub(crate) command_line: Vec<u8>,
    pub(crate) tables: Vec<Vec<u8>>,
    /// More that the root table points to, before its tables.
    pub(crate) pointers: Vec<u64>,
    /// Lies of the start info; they come last.
    pub(crate) lie: fn(&mut StartInfo),
    /// Where the image is told to find the start info, if not where it is.
    pub(crate) start_info: Option<u64>,
    pub(crate) damages: Vec<Damage>,
    /// A module that it hands over.
    pub(crate) module: Option<Vec<u8>>,
    /// What else is in memory, and where.
    pub(crate) memory: Vec<(u64, Vec<u8>)>,
}

impl HandOver {
    /// One without a mistake, of two CPUs.
    pub(crate) fn good() -> Self {
        Self {
            machine: Machine {
                memory_mib: 256,
                cpus: 2,
                ..Machine::default()
            },
            map: MAP.to_vec(),
            command_line: Vec::new(),
            tables: vec![acpi::madt(&[acpi::local_apic(0), acpi::local_apic(1)])],
            pointers: Vec::new(),
            lie: |_| {},
            start_info: None,
            damages: Vec::new(),
            module: None,
            memory: Vec::new(),
        }
        // The frequency is not measured: it could be wrong on a busy host.
        .command_line("tsc_hz=2000000000")
    }

    pub(crate) fn command_line(mut self, text: &str) -> Self {
        self.command_line = [text.as_bytes(), &[0]].concat();
        self
    }

    /// With more rows in the map.
    pub(crate) fn rows(mut self, rows: impl IntoIterator<Item = Row>) -> Self {
        self.map.extend(rows);
        self
    }

    /// With more tables.
    pub(crate) fn tables(mut self, tables: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.tables.extend(tables);
        self
    }

    /// With other CPUs.
    pub(crate) fn cpus(mut self, entries: &[Vec<u8>]) -> Self {
        self.tables[0] = acpi::madt(entries);
        self
    }

    /// With a start info that lies.
    pub(crate) fn lie(mut self, lie: fn(&mut StartInfo)) -> Self {
        self.lie = lie;
        self
    }

    /// What comes of it.
    pub(crate) fn boot(&self) -> Boot {
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("kernel");
        std::fs::write(&kernel, self.kernel()).unwrap();
        let loaded = format!("loader,file={}", image().display());
        let mut extra = vec!["-device".to_owned(), loaded];
        for (address, bytes) in &self.memory {
            let file = folder.path().join(format!("{address:x}"));
            std::fs::write(&file, bytes).unwrap();
            let loaded = format!(
                "loader,file={},addr={address:#x},force-raw=on",
                file.display()
            );
            extra.extend(["-device".to_owned(), loaded]);
        }
        Boot::run(&self.machine, &kernel, "", &extra)
    }

    /// The file.
    fn kernel(&self) -> Vec<u8> {
        let (mut memory, told) = self.contents(START);
        memory[..CODE].copy_from_slice(&note(START + CODE as u64));
        let jump = jump(told, entry());
        memory[CODE..CODE + jump.len()].copy_from_slice(&jump);
        elf(&memory)
    }

    /// What lies from `start` on, after a free page, and where the image is told to find the start info.
    pub(crate) fn contents(&self, start: u64) -> (Vec<u8>, u64) {
        let mut memory = vec![0; PAGE];
        let mut put = |part, mut bytes: Vec<u8>| {
            random::apply(&self.damages, part, &mut bytes);
            let at = start + memory.len() as u64;
            memory.extend(bytes);
            memory.resize(memory.len().next_multiple_of(PAGE), 0);
            at
        };
        let mut pointers = self.pointers.clone();
        for (number, table) in self.tables.iter().enumerate() {
            pointers.push(put(random::Part::Table(number), table.clone()));
        }
        let xsdt = put(random::Part::Xsdt, acpi::xsdt(&pointers));
        let root = put(random::Part::Root, acpi::root(xsdt, 0));
        let rows = self.map.iter().flat_map(|&(start, bytes, kind)| {
            let numbers = [start.to_le_bytes(), bytes.to_le_bytes()];
            [numbers.concat(), u64::from(kind).to_le_bytes().to_vec()].concat()
        });
        let modules = self.module.iter().map(|module| {
            let bytes = module.len() as u64;
            let at = put(random::Part::Module, module.clone());
            [at, bytes, 0, 0].map(u64::to_le_bytes).concat()
        });
        let modules: Vec<u8> = modules.flatten().collect();
        let mut info = StartInfo {
            version: 1,
            modules: u32::try_from(modules.len() / 32).unwrap(),
            module_list: match modules.len() {
                0 => 0,
                _ => put(random::Part::Module, modules),
            },
            command_line: put(random::Part::CommandLine, self.command_line.clone()),
            root,
            map: put(random::Part::Map, rows.collect()),
            map_rows: u32::try_from(self.map.len()).unwrap(),
        };
        (self.lie)(&mut info);
        let info = put(random::Part::StartInfo, info.bytes());
        (memory, self.start_info.unwrap_or(info))
    }
}

/// The image's entry, as its file says.
fn entry() -> u64 {
    let file = std::fs::read(image()).unwrap();
    u64::from_le_bytes(file[24..32].try_into().unwrap())
}

fn low(address: u64) -> [u8; 4] {
    u32::try_from(address).unwrap().to_le_bytes()
}

/// Xen's note of the 32-bit entry point.
fn note(entry: u64) -> [u8; CODE] {
    let mut note = [0; CODE];
    note[..16].copy_from_slice(b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0");
    note[16..24].copy_from_slice(&entry.to_le_bytes());
    note
}

/// `mov ebx, start_info; mov ecx, image; jmp ecx`
fn jump(start_info: u64, image: u64) -> Vec<u8> {
    let [ebx, ecx, jmp]: [&[u8]; 3] = [&[0xbb], &[0xb9], &[0xff, 0xe1]];
    [ebx, &low(start_info), ecx, &low(image), jmp].concat()
}

/// A file of one segment, which begins with a note.
fn elf(memory: &[u8]) -> Vec<u8> {
    let segment = |kind: u32, bytes: usize, align: usize| {
        let flags = 7;
        let bytes = bytes as u64;
        let head = [kind.to_le_bytes(), u32::to_le_bytes(flags)].concat();
        let rest = [PAGE as u64, START, START, bytes, bytes, align as u64];
        [head, rest.map(u64::to_le_bytes).concat()].concat()
    };
    let head = [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".as_slice(),
        &(START + CODE as u64).to_le_bytes(),
        &64_u64.to_le_bytes(),
        &[0; 12],
        &[64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0],
    ];
    let mut file = head.concat();
    file.extend(segment(4, 24, 4));
    file.extend(segment(1, memory.len(), PAGE));
    file.resize(PAGE, 0);
    file.extend(memory);
    file
}
