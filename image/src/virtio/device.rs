//! A device: [`Device`] resets it, negotiates features, hands it queues, and waits for its
//! answers with [`Patience`].

use super::{Buffer, MOST_QUEUES, Queue, Ring, Transport, VirtioError};

/// The feature of all modern devices.
pub const VERSION_1: u64 = 1 << 32;

/// Bits of the status.
mod status {
    pub(super) const ACKNOWLEDGE: u8 = 1;
    pub(super) const DRIVER: u8 = 2;
    pub(super) const DRIVER_OK: u8 = 4;
    pub(super) const FEATURES_OK: u8 = 8;
    pub(super) const NEEDS_RESET: u8 = 64;

    /// Whether a device with this status does its work: it needs no reset, and had none.
    pub(super) const fn works(status: u8) -> bool {
        status & (NEEDS_RESET | DRIVER_OK) == DRIVER_OK
    }
}

/// How long a driver waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time, in nanoseconds of some clock.
    pub now_ns: fn() -> u64,
    /// Marks a waiting loop.
    pub relax: fn(),
    /// The longest wait.
    pub longest_ns: u64,
}

impl Patience {
    /// Waits until `done` has an answer; `None` if it never does.
    fn wait<A>(&self, mut done: impl FnMut() -> Option<A>) -> Option<A> {
        let begin = (self.now_ns)();
        loop {
            if let Some(answer) = done() {
                return Some(answer);
            }
            if (self.now_ns)().saturating_sub(begin) > self.longest_ns {
                // An answer that came while this CPU was away counts.
                return done();
            }
            (self.relax)();
        }
    }
}

/// A device with a driver.
#[derive(Debug)]
pub struct Device<T> {
    transport: T,
    features: u64,
    patience: Patience,
}

impl<T: Transport> Device<T> {
    /// Resets a device of `kind` and negotiates: of `wanted` what it offers, and all of
    /// `needed`.
    ///
    /// # Errors
    /// [`VirtioError`]; the device is left reset.
    pub fn negotiate(
        transport: T,
        patience: Patience,
        kind: u32,
        needed: u64,
        wanted: u64,
    ) -> Result<Self, VirtioError> {
        let seen = transport.kind();
        if seen != kind {
            return Err(VirtioError::Kind {
                seen,
                expected: kind,
            });
        }
        let mut device = Self {
            transport,
            features: 0,
            patience,
        };
        device.reset()?;
        let transport = &mut device.transport;
        let found = status::ACKNOWLEDGE | status::DRIVER;
        transport.set_status(found);
        let offered = transport.offered();
        let needed = needed | VERSION_1;
        let missing = needed & !offered;
        if missing != 0 {
            transport.set_status(0);
            return Err(VirtioError::NotOffered { features: missing });
        }
        let features = offered & (needed | wanted);
        transport.choose(features);
        transport.set_status(found | status::FEATURES_OK);
        if transport.status() & status::FEATURES_OK == 0 {
            transport.set_status(0);
            return Err(VirtioError::NotAccepted { features });
        }
        device.features = features;
        Ok(device)
    }

    /// The features that both know.
    #[must_use]
    pub const fn features(&self) -> u64 {
        self.features
    }

    /// All features that the device offers.
    pub fn offered(&mut self) -> u64 {
        self.transport.offered()
    }

    /// Gives the device the queue `number`, whose ring is at the physical address `at`.
    ///
    /// # Errors
    /// [`VirtioError::Queue`] if it has none of that number, or a shorter one.
    pub fn queue<'r>(
        &mut self,
        number: u16,
        ring: &'r Ring,
        at: u64,
    ) -> Result<Queue<'r>, VirtioError> {
        let capacity = self.transport.capacity(number);
        let queue = Queue::new(number, ring);
        let needed = queue.size();
        if capacity < needed || usize::from(number) >= MOST_QUEUES {
            return Err(VirtioError::Queue {
                queue: number,
                capacity,
                needed,
            });
        }
        self.transport
            .set_queue(number, needed, Queue::addresses(at))?;
        Ok(queue)
    }

    /// The device may use its queues from now on.
    pub fn start(&mut self) {
        self.transport.set_status(
            status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK,
        );
    }

    /// Whether the device works still.
    ///
    /// # Errors
    /// [`VirtioError::NeedsReset`] after a reset of it.
    pub fn check(&mut self) -> Result<(), VirtioError> {
        let status = self.transport.status();
        if status::works(status) {
            return Ok(());
        }
        self.reset()?;
        Err(VirtioError::NeedsReset { status })
    }

    /// Resets it: it forgets its queues, and uses nothing of the driver's any more.
    ///
    /// # Errors
    /// [`VirtioError::Unreleased`].
    pub fn reset(&mut self) -> Result<(), VirtioError> {
        self.transport.set_status(0);
        let transport = &self.transport;
        let reset = || (transport.status() == 0).then_some(());
        self.patience
            .wait(reset)
            .ok_or_else(|| VirtioError::Unreleased {
                status: self.transport.status(),
                waited_ns: self.patience.longest_ns,
            })
    }

    /// Whether a reset that was not completed in time is complete now.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.transport.status() == 0
    }

    /// Sends a chain and waits until it is answered; the bytes that the device wrote.
    ///
    /// # Errors
    /// [`VirtioError`]: the device has been reset then, and works no more; unless the queue
    /// is full.
    pub fn exchange(
        &mut self,
        queue: &mut Queue<'_>,
        buffers: &[Buffer],
    ) -> Result<u32, VirtioError> {
        self.check()?;
        queue.send(buffers)?;
        self.transport.notify(queue.number());
        let transport = &self.transport;
        let answer = self.patience.wait(|| match queue.answer() {
            Ok(None) => {
                let status = transport.status();
                (!status::works(status)).then_some(Err(VirtioError::NeedsReset { status }))
            }
            answer => answer.transpose(),
        });
        let silent = VirtioError::NoAnswer {
            queue: queue.number(),
            waited_ns: self.patience.longest_ns,
        };
        answer.unwrap_or(Err(silent)).or_else(|error| {
            self.reset()?;
            Err(error)
        })
    }

    /// Sends a chain that the device answers when it likes: [`Device::answer`].
    ///
    /// # Errors
    /// [`VirtioError::Full`].
    pub fn send(&mut self, queue: &mut Queue<'_>, buffers: &[Buffer]) -> Result<(), VirtioError> {
        queue.send(buffers)?;
        self.transport.notify(queue.number());
        Ok(())
    }

    /// Whether the device has answered a chain.
    ///
    /// # Errors
    /// [`VirtioError::WrongAnswer`] after a reset.
    pub fn answer(&mut self, queue: &mut Queue<'_>) -> Result<bool, VirtioError> {
        match queue.answer() {
            Ok(answer) => Ok(answer.is_some()),
            Err(error) => {
                self.reset()?;
                Err(error)
            }
        }
    }

    /// Words of the configuration that belong together: the device may change them between
    /// two reads.
    ///
    /// # Errors
    /// [`VirtioError::Outside`] if the configuration is shorter, or never stays the same.
    pub fn config<const WORDS: usize>(
        &self,
        at: [u32; WORDS],
    ) -> Result<[u32; WORDS], VirtioError> {
        const TRIES: usize = 16;
        let transport = &self.transport;
        for _ in 0..TRIES {
            let before = transport.generation();
            let words = at.map(|at| transport.config(at));
            if transport.generation() == before && words.iter().all(Option::is_some) {
                return Ok(words.map(Option::unwrap_or_default));
            }
        }
        Err(VirtioError::Outside {
            what: "configuration",
            offset: at.first().copied().unwrap_or_default().into(),
            bytes: 4 * WORDS as u64,
            limit: 0,
        })
    }

    /// Writes a word of the configuration.
    pub fn set_config(&mut self, at: u32, value: u32) {
        self.transport.set_config(at, value);
    }
}
