//! Flattened device trees made to order.
#![allow(clippy::allow_attributes, reason = "each binary uses some of these")]
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each binary uses some of these; bad input is a bug of the test"
)]

/// A tree in the making: the blocks, joined by [`Blob::finish`].
#[derive(Default)]
pub(crate) struct Blob {
    structure: Vec<u8>,
    strings: Vec<u8>,
    reservations: Vec<u8>,
    boot_cpu: u32,
}

impl Blob {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn word(&mut self, word: u32) -> &mut Self {
        self.structure.extend(word.to_be_bytes());
        self
    }

    fn pad(&mut self) -> &mut Self {
        let length = self.structure.len().next_multiple_of(4);
        self.structure.resize(length, 0);
        self
    }

    pub(crate) fn begin(&mut self, name: &str) -> &mut Self {
        self.word(1);
        self.structure.extend(name.as_bytes());
        self.structure.push(0);
        self.pad()
    }

    pub(crate) fn end(&mut self) -> &mut Self {
        self.word(2)
    }

    pub(crate) fn property(&mut self, name: &str, value: &[u8]) -> &mut Self {
        let name = [name.as_bytes(), b"\0"].concat();
        let known = self
            .strings
            .windows(name.len())
            .position(|window| window == name);
        let at = known.unwrap_or(self.strings.len());
        if known.is_none() {
            self.strings.extend(name);
        }
        self.word(3)
            .word(u32::try_from(value.len()).unwrap())
            .word(u32::try_from(at).unwrap());
        self.structure.extend(value);
        self.pad()
    }

    pub(crate) fn cells(&mut self, name: &str, cells: &[u32]) -> &mut Self {
        let value: Vec<u8> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        self.property(name, &value)
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.property(name, &[text.as_bytes(), b"\0"].concat())
    }

    pub(crate) fn reserve(&mut self, start: u64, bytes: u64) -> &mut Self {
        self.reservations.extend(start.to_be_bytes());
        self.reservations.extend(bytes.to_be_bytes());
        self
    }

    /// Version 17: header, reservations, structure, strings.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.word(9).reserve(0, 0);
        let size = |block: &Vec<u8>| u32::try_from(block.len()).unwrap();
        let structure_at = 40 + size(&self.reservations);
        let strings_at = structure_at + size(&self.structure);
        let total = strings_at + size(&self.strings);
        let strings = size(&self.strings);
        let header = [
            0xd00d_feed,
            total,
            structure_at,
            strings_at,
            40,
            17,
            16,
            self.boot_cpu,
            strings,
            size(&self.structure),
        ];
        let header: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
        [
            &header[..],
            &self.reservations,
            &self.structure,
            &self.strings,
        ]
        .concat()
    }
}

/// Two nodes, three CPUs, and one reservation of every sort.
pub(crate) fn virt() -> Vec<u8> {
    let mut blob = Blob {
        boot_cpu: 1,
        ..Blob::new()
    };
    blob.reserve(0x4800_0000, 0x1_0000);
    blob.begin("")
        .cells("#address-cells", &[2])
        .cells("#size-cells", &[2])
        .text("model", "made up");
    blob.begin("reserved-memory")
        .cells("#address-cells", &[2])
        .cells("#size-cells", &[2])
        .cells("ranges", &[]);
    blob.begin("secure@50000000")
        .cells("reg", &[0, 0x5000_0000, 0, 0x10_0000])
        .cells("no-map", &[])
        .end();
    blob.begin("pool")
        .cells("size", &[0, 0x400_0000])
        .cells("alignment", &[0, 0x20_0000])
        .cells("reusable", &[])
        .end();
    blob.begin("off@1")
        .text("status", "disabled")
        .cells("reg", &[0, 1, 0, 1])
        .end();
    blob.end();
    blob.begin("cpus")
        .cells("#address-cells", &[1])
        .cells("#size-cells", &[0]);
    blob.begin("cpu@0")
        .text("device_type", "cpu")
        .cells("reg", &[0])
        .cells("numa-node-id", &[0])
        .end();
    blob.begin("cpu@1")
        .text("device_type", "cpu")
        .cells("reg", &[1])
        .cells("numa-node-id", &[1])
        .end();
    blob.begin("cpu@100")
        .text("device_type", "cpu")
        .cells("reg", &[0x100])
        .text("status", "disabled")
        .end();
    blob.begin("cpu-map").begin("socket0").end().end();
    blob.end();
    blob.word(4); // a no-op between nodes
    for (start, node) in [(0x4000_0000, 0), (0x8000_0000, 1)] {
        blob.begin(&format!("memory@{start:x}"))
            .text("device_type", "memory");
        blob.cells("reg", &[0, start, 0, 0x4000_0000])
            .cells("numa-node-id", &[node]);
        if node == 1 {
            blob.cells("hotpluggable", &[]);
        }
        blob.end();
    }
    blob.begin("distance-map")
        .text("compatible", "numa-distance-map-v1");
    blob.cells("distance-matrix", &[0, 0, 10, 0, 1, 20, 1, 1, 10])
        .end();
    blob.end();
    blob.finish()
}
