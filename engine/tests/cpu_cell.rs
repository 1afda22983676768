//! CPUs' caches in per-CPU cells: threads in the place of CPUs, one at a time on each.
#![expect(
    clippy::unwrap_used,
    reason = "a test may stop on what it did not expect"
)]

mod kit;

use std::sync::{Mutex, MutexGuard};

use firstlight::addr::Order;
use firstlight::frames::{CpuCell, CpuError, CpuGuard, Frames, Request};
use firstlight::node::NodeId;
use kit::{GIB, MIB, Machine, range};

/// A thread that runs on a CPU keeps others off it.
struct OnCpu {
    cpu: usize,
    _alone: MutexGuard<'static, ()>,
}

// SAFETY: whoever holds it has locked its CPU.
unsafe impl CpuGuard for OnCpu {
    fn cpu(&self) -> usize {
        self.cpu
    }
}

/// A machine of some CPUs.
struct Cpus {
    frames: &'static Frames<'static>,
    cells: &'static [CpuCell],
    locks: &'static [Mutex<()>],
}

const PAGE: Request = Request::new(Order::PAGE);
const NODE: NodeId = NodeId(0);

impl Cpus {
    fn new(cpus: usize) -> Self {
        let machine = Machine::new(&[(0, range(4 * GIB, 4 * GIB + 64 * MIB))]);
        let new = |_| (CpuCell::new(), Mutex::default());
        let (cells, locks): (Vec<_>, Vec<_>) = (0..cpus).map(new).unzip();
        Self {
            frames: Box::leak(Box::new(machine.frames_with_cpus(cpus))),
            cells: cells.leak(),
            locks: locks.leak(),
        }
    }

    fn on(&self, cpu: usize) -> OnCpu {
        let _alone = self.locks[cpu].lock().unwrap();
        OnCpu { cpu, _alone }
    }

    fn assert_all_free(&self) {
        for cpu in 0..self.cells.len() {
            self.cells[cpu].close(&self.on(cpu)).unwrap().unwrap();
        }
        let statistics = self.frames.statistics();
        assert_eq!(statistics.free_frames, statistics.managed_frames);
        self.frames.validate().unwrap();
    }
}

#[test]
fn threads_take_turns_on_cpus() {
    let (cpus, rounds) = (&Cpus::new(2), if cfg!(miri) { 8 } else { 3000 });
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..rounds {
                    let on = cpus.on((thread + round) % 2);
                    let cell = &cpus.cells[on.cpu];
                    let done = cell.with(&on, cpus.frames, NODE, |cpu| {
                        if held.len() < 3 {
                            held.push(cpu.allocate(PAGE).unwrap());
                        } else {
                            held.drain(..)
                                .for_each(|page| cpu.free(page, Order::PAGE).unwrap());
                        }
                    });
                    done.unwrap();
                }
                held.iter()
                    .for_each(|&page| cpus.frames.free(page, Order::PAGE).unwrap());
            });
        }
    });
    cpus.assert_all_free();
}

#[test]
fn a_call_inside_a_call_is_refused_and_another_cpu_s_cell_is() {
    let cpus = Cpus::new(3);
    let (on, cell) = (cpus.on(0), &cpus.cells[0]);
    let inner = cell.with(&on, cpus.frames, NODE, |_| {
        // As a handler would that interrupts the call.
        let again = cell.with(&on, cpus.frames, NODE, |_| ());
        (again, cell.close(&on).map(drop))
    });
    assert_eq!(inner, Ok((Err(CpuError::InCall), Err(CpuError::InCall))));
    let other = cell.with(&cpus.on(1), cpus.frames, NODE, |_| ());
    assert_eq!(other, Err(CpuError::OtherCpu { cpu: 1, owner: 0 }));
    let frames = Cpus::new(1).frames;
    assert_eq!(
        cell.with(&on, frames, NODE, |_| ()),
        Err(CpuError::OtherFrames)
    );
    // One slot, two cells; no slot.
    let twice = cpus.cells[1].with(&on, cpus.frames, NODE, |_| ());
    assert_eq!(twice, Err(CpuError::Taken));
    let few = Cpus::new(3);
    let far = few.cells[2].with(&few.on(2), frames, NODE, |_| ());
    assert_eq!(far, Err(CpuError::NoSuchCpu { cpu: 2, cpus: 1 }));
    drop(on);
    cpus.cells[0].close(&cpus.on(0)).unwrap().unwrap();
}

#[test]
fn a_cell_works_again_after_a_call_that_panicked_and_after_close() {
    let cpus = Cpus::new(1);
    let cell = &cpus.cells[0];
    let on = OnCpu {
        cpu: 0,
        _alone: cpus.locks[0].lock().unwrap(),
    };
    let panics = std::panic::AssertUnwindSafe(|| {
        cell.with(&on, cpus.frames, NODE, |_| panic!("of a caller"))
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    for _ in 0..2 {
        let page = cell
            .with(&on, cpus.frames, NODE, |cpu| cpu.allocate(PAGE))
            .unwrap()
            .unwrap();
        let freed = cell.with(&on, cpus.frames, NODE, |cpu| cpu.free(page, Order::PAGE));
        assert_eq!(freed, Ok(Ok(())));
        cell.close(&on).unwrap().unwrap();
    }
    drop(on);
    cpus.assert_all_free();
}
