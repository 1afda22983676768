//! The messages of kubelet's interfaces, by hand: a field's number is all of a `.proto` file that counts on the wire,
//! and nothing has to be generated from one. What this program doesn't read is left out; protobuf passes over it.

pub mod device_plugin;
pub mod dra;
pub mod pod_resources;
pub mod registration;

/// A message without fields.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Empty {}
