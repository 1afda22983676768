//! The size that the host wants: [`Resizable`] plugs blocks into the [`Memory`] of a kernel, and takes
//! others out of it again, until so many are plugged.
//!
//! It counts in units: one or more blocks, never less than the kernel can add. The lowest are plugged
//! first and the highest go first, those that are in use left out. Whatever the device or the kernel
//! refuses, each unit stays in one of three states, of which none is both unplugged and in use.

use core::fmt;

use firstlight::addr::PhysRange;

use super::{Config, ConfigFault, MemDevice, MemError, State};
use crate::virtio::Transport;

/// The memory of a kernel.
pub trait Memory {
    /// Why it refuses.
    type Why;

    /// Uses `range`, which was just plugged.
    ///
    /// # Errors
    /// Why none of it is used.
    fn add(&mut self, range: PhysRange) -> Result<(), Self::Why>;

    /// Uses `range` no more, whole units that were added, perhaps by several calls.
    ///
    /// # Errors
    /// Why all of it is still used.
    fn remove(&mut self, range: PhysRange) -> Result<(), Self::Why>;

    /// Whether a part of a range that was refused may be free.
    fn is_in_use(why: &Self::Why) -> bool;

    /// `range`, used no more, was unplugged.
    fn unplugged(&mut self, range: PhysRange);
}

/// What became of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Not memory.
    #[default]
    Unplugged,
    /// Memory that the kernel uses.
    Used,
    /// Memory, perhaps, that the kernel does not use: to be unplugged.
    Idle,
}

/// Why the size is not what the host wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault<W> {
    /// The device refused.
    Device(MemError),
    /// The kernel refused.
    Kernel(W),
    /// So many units of so many that were to go are in use.
    InUse {
        /// Bytes that are in use.
        bytes: u64,
        /// Of so many that were to go.
        of: u64,
        /// Why the last of them did not.
        why: W,
    },
    /// The device says yes and does something else.
    Disagrees {
        /// The range that was requested.
        range: PhysRange,
        /// What the device says of it.
        seen: State,
    },
    /// Bytes that are plugged, as the device says and as were requested.
    Count {
        /// By the device.
        seen: u64,
        /// By the answers to requests.
        expected: u64,
    },
}

impl<W> From<MemError> for Fault<W> {
    fn from(error: MemError) -> Self {
        Self::Device(error)
    }
}

impl<W: fmt::Display> fmt::Display for Fault<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Kernel(why) => why.fmt(f),
            Self::InUse { bytes, of, why } => {
                write!(f, "{bytes:#x} of {of:#x} bytes are in use: {why}")
            }
            Self::Disagrees { range, seen } => {
                write!(f, "it answers ACK, and then says that {range} is {seen:?}")
            }
            Self::Count { seen, expected } => write!(
                f,
                "it says that {seen:#x} bytes are plugged; expected {expected:#x} by its answers"
            ),
        }
    }
}

/// A device whose blocks are a kernel's memory.
#[derive(Debug)]
pub struct Resizable<'s, T> {
    device: MemDevice<'s, T>,
    /// As it was at first.
    config: Config,
    unit_bytes: u64,
    /// First byte of the first unit.
    start: u64,
    units: &'s mut [Unit],
    /// How many are used.
    used: u64,
    /// How many are idle.
    idle: u64,
    /// For so many the kernel had no use: not tried again before the host wants another number.
    refused: Option<u64>,
}

impl<'s, T: Transport> Resizable<'s, T> {
    /// The device, with all of its blocks unplugged, or idle where it refuses that now; a unit has `least_bytes`, a power
    /// of two, or more. `list` gives memory for a number of units.
    ///
    /// # Errors
    /// [`MemError`], also if the region has no whole unit, or there is no memory.
    pub fn new(
        mut device: MemDevice<'s, T>,
        least_bytes: u64,
        list: impl FnOnce(usize) -> Option<&'s mut [Unit]>,
    ) -> Result<Self, MemError> {
        let config = device.config()?;
        let unit_bytes = config.block_bytes.max(least_bytes);
        let nothing = MemError::Config(ConfigFault::Region {
            start: config.start,
            bytes: config.bytes,
            block_bytes: unit_bytes,
        });
        let start = config.start.checked_next_multiple_of(unit_bytes);
        let start = start.ok_or(nothing)?;
        // It ends below 2^64: the configuration was checked.
        let count = (config.start + config.bytes).saturating_sub(start) / unit_bytes;
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let units = count.and_then(list).ok_or(nothing)?;
        units.fill(Unit::Unplugged);
        let mut all = Self {
            device,
            config,
            unit_bytes,
            start,
            units,
            used: 0,
            idle: 0,
            refused: None,
        };
        if config.plugged_bytes > 0 {
            all.set(0, all.units.len(), Unit::Idle);
            all.unplug_all()?;
        }
        Ok(all)
    }

    /// Its configuration as it was at first.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of a unit.
    #[must_use]
    pub const fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Bytes that the kernel uses.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used * self.unit_bytes
    }

    /// Plugs and unplugs until the host has what it wants, rounded down to whole units: the bytes that the
    /// kernel uses.
    ///
    /// # Errors
    /// [`Fault`], the first that was met; what could be done is done. The rest is tried again by the next call;
    /// what the kernel did not take ([`Fault::Kernel`]), once the host wants another size.
    pub fn follow<M: Memory>(&mut self, memory: &mut M) -> Result<u64, Fault<M::Why>> {
        let config = self.device.config()?;
        config.check_same(&self.config).map_err(MemError::Config)?;
        let end = (config.start + config.usable_bytes).saturating_sub(self.start);
        let usable = usize::try_from(end / self.unit_bytes).unwrap_or(usize::MAX);
        let target = config.requested_bytes / self.unit_bytes;
        self.refused = self.refused.filter(|refused| *refused == target);
        let is_refused = self.refused.is_some() && self.used < target;
        if self.idle == 0 && (self.used == target || is_refused) {
            return Ok(self.used_bytes());
        }
        let unplugged = self.unplug_idle();
        if let Err(Fault::Device(error)) = unplugged
            && error.is_final()
        {
            return Err(error.into());
        }
        // What cannot be unplugged now does not keep the rest.
        let followed = self
            .grow(memory, target, usable)
            .and_then(|()| self.shrink(memory, target));
        unplugged.and(followed)?;
        let seen = self.device.config()?.plugged_bytes;
        let expected = self.used_bytes();
        if seen != expected {
            return Err(Fault::Count { seen, expected });
        }
        Ok(expected)
    }

    fn grow<M: Memory>(
        &mut self,
        memory: &mut M,
        target: u64,
        usable: usize,
    ) -> Result<(), Fault<M::Why>> {
        let mut most = usize::MAX;
        while self.refused.is_none() {
            // What is idle may be plugged, and the host counts it.
            let missing = target.saturating_sub(self.used + self.idle);
            let usable = usable.min(self.units.len());
            let free = self.units.iter().take(usable);
            let first = free.clone().position(|unit| *unit == Unit::Unplugged);
            let (Some(first), 1..) = (first, missing) else {
                return Ok(());
            };
            let run = free.skip(first).take(self.most(missing).min(most));
            let run = run.take_while(|unit| **unit == Unit::Unplugged).count();
            let range = self.range(first, run);
            // Until the device says otherwise it may be memory.
            self.set(first, run, Unit::Idle);
            if let Err(error) = self.device.plug(range, self.config.block_bytes) {
                if matches!(error, MemError::Refused { .. }) {
                    self.set(first, run, Unit::Unplugged);
                }
                return Err(error.into());
            }
            self.confirm(range, State::Plugged)?;
            match memory.add(range) {
                Ok(()) => self.set(first, run, Unit::Used),
                Err(why) => {
                    self.unplug(first, run)?;
                    // The first part of it may be of use.
                    most = run / 2;
                    if most == 0 {
                        self.refused = Some(target);
                        return Err(Fault::Kernel(why));
                    }
                }
            }
        }
        Ok(())
    }

    fn shrink<M: Memory>(&mut self, memory: &mut M, target: u64) -> Result<(), Fault<M::Why>> {
        let surplus = self.used.saturating_sub(target);
        let (mut left, mut kept, mut end) = (surplus, None, self.units.len());
        while left > 0 {
            let below = self.units.get(..end).unwrap_or_default();
            let Some(last) = below.iter().rposition(|unit| *unit == Unit::Used) else {
                break;
            };
            let run = below.get(..=last).unwrap_or_default().iter().rev();
            let mut run = run
                .take(self.most(left))
                .take_while(|unit| **unit == Unit::Used)
                .count();
            // The upper part of what is in use may be free.
            let removed = loop {
                let first = last + 1 - run;
                match memory.remove(self.range(first, run)) {
                    Ok(()) => break Some(first),
                    Err(why) if !M::is_in_use(&why) => return Err(Fault::Kernel(why)),
                    Err(why) if run == 1 => {
                        kept = Some(why);
                        break None;
                    }
                    Err(_) => run /= 2,
                }
            };
            end = last + 1 - run;
            let Some(first) = removed else { continue };
            left -= run as u64;
            self.set(first, run, Unit::Idle);
            if let Err(fault) = self.unplug(first, run) {
                // It is still memory: the kernel has it back.
                let is_refused = matches!(fault, Fault::Device(MemError::Refused { .. }));
                if is_refused && memory.add(self.range(first, run)).is_ok() {
                    self.set(first, run, Unit::Used);
                }
                return Err(fault);
            }
            memory.unplugged(self.range(first, run));
        }
        match kept {
            Some(why) if left > 0 => Err(Fault::InUse {
                bytes: left * self.unit_bytes,
                of: surplus * self.unit_bytes,
                why,
            }),
            _ => Ok(()),
        }
    }

    /// Unplugs all blocks, of which none is used; refused, they stay idle.
    fn unplug_all(&mut self) -> Result<(), MemError> {
        match self.device.unplug_all() {
            Err(MemError::Refused { .. }) => {}
            done => {
                done?;
                self.set(0, self.units.len(), Unit::Unplugged);
            }
        }
        Ok(())
    }

    /// Unplugs what the kernel does not use, as much of it as can be; the first fault.
    fn unplug_idle<W>(&mut self) -> Result<(), Fault<W>> {
        if self.used == 0 && self.idle > 0 {
            self.unplug_all()?;
        }
        let mut done = Ok(());
        for first in 0..self.units.len() {
            if self.units.get(first) != Some(&Unit::Idle) {
                continue;
            }
            let unplugged = self.unplug_one(first);
            let is_final = matches!(&unplugged, Err(Fault::Device(error)) if error.is_final());
            if is_final {
                return unplugged;
            }
            done = done.and(unplugged);
        }
        done
    }

    /// Unplugs a unit that is idle, unless it is not memory.
    fn unplug_one<W>(&mut self, first: usize) -> Result<(), Fault<W>> {
        let range = self.range(first, 1);
        if self.device.state(range, self.config.block_bytes)? == State::Unplugged {
            self.set(first, 1, Unit::Unplugged);
            return Ok(());
        }
        self.unplug(first, 1)
    }

    /// Unplugs units that are idle.
    fn unplug<W>(&mut self, first: usize, run: usize) -> Result<(), Fault<W>> {
        let range = self.range(first, run);
        self.set(first, run, Unit::Idle);
        self.device.unplug(range, self.config.block_bytes)?;
        self.confirm(range, State::Unplugged)?;
        self.set(first, run, Unit::Unplugged);
        Ok(())
    }

    /// Checks that the device did what it said.
    fn confirm<W>(&mut self, range: PhysRange, expected: State) -> Result<(), Fault<W>> {
        match self.device.state(range, self.config.block_bytes)? {
            seen if seen == expected => Ok(()),
            seen => Err(Fault::Disagrees { range, seen }),
        }
    }

    /// Most units of one request, of `wanted`.
    fn most(&self, wanted: u64) -> usize {
        let blocks = self.unit_bytes / self.config.block_bytes;
        let most = (MemDevice::<T>::MOST_BLOCKS / blocks).max(1);
        usize::try_from(wanted.min(most)).unwrap_or(usize::MAX)
    }

    fn range(&self, first: usize, run: usize) -> PhysRange {
        let start = self.start + first as u64 * self.unit_bytes;
        PhysRange::with_size(start, run as u64 * self.unit_bytes).unwrap_or_default()
    }

    fn set(&mut self, first: usize, run: usize, unit: Unit) {
        let units = self.units.get_mut(first..first + run).unwrap_or_default();
        let count =
            |units: &[Unit], wanted| units.iter().filter(|unit| **unit == wanted).count() as u64;
        self.used -= count(units, Unit::Used);
        self.idle -= count(units, Unit::Idle);
        units.fill(unit);
        self.used += count(units, Unit::Used);
        self.idle += count(units, Unit::Idle);
    }
}
