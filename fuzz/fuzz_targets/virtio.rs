//! A virtio device: the configuration space of its function on PCI, then what it writes into
//! a queue while the driver sends and takes answers.
#![no_main]

use core::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

use firstlight_image::virtio::mmio::Named;
use firstlight_image::virtio::pci::{ConfigSpace, Function, Places, find};
use firstlight_image::virtio::{Buffer, MOST_BUFFERS, Queue, Ring, VirtioError};
use libfuzzer_sys::fuzz_target;

/// 256 bytes at every function of bus 0. Its BARs have 16 KiB.
struct Space([u8; 256]);

/// What can be written of a BAR.
const BAR_MASK: u32 = 0xffff_c000;

impl ConfigSpace for Space {
    fn read(&self, function: Function, at: u8) -> u32 {
        let word = usize::from(at & !3);
        let bytes = &self.0[word..word + 4];
        match function.bus {
            0 => u32::from_le_bytes(bytes.try_into().unwrap()),
            _ => u32::MAX,
        }
    }

    fn write(&mut self, _: Function, at: u8, value: u32) {
        let word = usize::from(at & !3);
        let value = match word {
            0x10..0x28 => (value & BAR_MASK) | (self.read(Function::default(), at) & !BAR_MASK),
            4 => value,
            _ => return,
        };
        self.0[word..word + 4].copy_from_slice(&value.to_le_bytes());
    }
}

fuzz_target!(|data: &[u8]| {
    let (space, rest) = data.split_at(data.len().min(256));
    let mut bytes = [0; 256];
    bytes[..space.len()].copy_from_slice(space);
    let mut space = Space(bytes);
    let before = space.0;
    let _ = find(&space, 5);
    if let Ok(places) = Places::read(&mut space, Function::default()) {
        let regions = [Some(places.common), Some(places.notify), places.config];
        for region in regions.into_iter().flatten() {
            assert!(region.address > 0);
            assert!(region.address.checked_add(region.bytes.into()).is_some());
        }
    }
    // Sizing leaves what was there.
    assert_eq!(before[0x10..0x28], space.0[0x10..0x28]);
    if let Some(named) = Named::parse(rest) {
        assert!(named.address + u64::from(named.bytes) <= 1 << 32);
        assert!(named.bytes >= 256);
    }
    queue(rest);
});

/// Every two bytes are a step.
fn queue(steps: &[u8]) {
    let ring = Box::new(Ring::new());
    let at = Queue::addresses(&raw const *ring as u64);
    // SAFETY: both are atomics of the ring, which the device may write at any time.
    let (index, heads) = unsafe {
        let used = at.used as *const u8;
        let heads = used.add(4).cast::<[[AtomicU32; 2]; MOST_BUFFERS]>();
        (&*used.add(2).cast::<AtomicU16>(), &*heads)
    };
    let mut queue = Queue::new(0, &ring);
    // Buffers of the chains in flight; their heads are the driver's secret.
    let mut lengths = Vec::new();
    let mut broken = false;
    for step in steps.chunks_exact(2) {
        let [kind, value] = [step[0], step[1]];
        match kind % 4 {
            0 => {
                let count = usize::from(value) % (MOST_BUFFERS + 2);
                let buffers = vec![
                    Buffer {
                        address: 0,
                        bytes: 1,
                        device_writes: true,
                    };
                    count
                ];
                let in_use: usize = lengths.iter().sum();
                let fits = count > 0 && (broken || in_use + count <= MOST_BUFFERS);
                match queue.send(&buffers) {
                    Ok(()) => {
                        assert!(fits, "{count} on {in_use}");
                        lengths.push(count);
                    }
                    Err(error) => {
                        assert_eq!(error, VirtioError::Full { queue: 0 });
                        assert!(!fits || broken);
                    }
                }
            }
            1 => heads[usize::from(kind / 4) % MOST_BUFFERS][0].store(value.into(), Relaxed),
            2 => index.store(index.load(Relaxed).wrapping_add(value.into()), Relaxed),
            _ => match queue.answer() {
                Ok(Some(_)) => {
                    assert!(!lengths.is_empty());
                    // Which one it was is not known here: the sum of the others is not either.
                    lengths.pop();
                    broken = true;
                }
                Ok(None) => {}
                Err(VirtioError::WrongAnswer { queue: 0, .. }) => return,
                Err(error) => panic!("{error}"),
            },
        }
        assert_eq!(queue.is_busy(), !lengths.is_empty());
    }
}
