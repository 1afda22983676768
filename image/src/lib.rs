//! What of the bare-metal image needs no machine under it, and so can be tested
//! anywhere: how a run ends ([`outcome`]), the words it obeys ([`words`]), log
//! lines kept until they can be shown ([`record`]), the events it tells its host
//! ([`wire`]). The rest is the program in `main.rs`.
#![no_std]
#![deny(unsafe_code)]

pub mod outcome;
pub mod record;
pub mod wire;
pub mod words;
