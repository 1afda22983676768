//! The parts of the bare-metal image that need no machine, and so can be tested
//! anywhere: the words on its command line ([`words`]), what goes wrong on purpose when it
//! restarts ([`damage`]), log lines kept until they
//! can be shown ([`record`]), events as JSON ([`json`]), kept for
//! firmware's variables ([`kept`]), text and a QR code on a screen ([`screen`]),
//! UEFI's memory map without its many borders ([`merged`]), virtio devices ([`virtio`]) and the
//! drivers of two ([`balloon`], [`virtio_mem`]), slots of DIMMs ([`hotplug`]). The rest is the program in `main.rs`; the interface to the
//! host is `firstlight-wire`.
#![no_std]
#![deny(unsafe_code)]

pub mod balloon;
pub mod damage;
pub mod hotplug;
pub mod json;
pub mod kept;
pub mod merged;
pub mod record;
pub mod screen;
pub mod virtio;
pub mod virtio_mem;
pub mod words;
