//! The memory of Firstlight's pool in Kubernetes: as a resource of pods, or for claims.
//!
//! | module | what it decides |
//! |---|---|
//! | [`class`], [`label`] | names: of resources, of devices, of the grants that belong to them |
//! | [`devices`] | which devices there are, and which of them further pods may have; which go well together |
//! | [`grants`] | that a device is one pod's: grants of the daemon, the only state there is |
//! | [`plugin`] | slabs as a resource: all of it, again and again |
//! | [`endpoint`], [`pods`] | the server of one resource; which pod has which device, by kubelet |
//! | [`driver`] | slabs for claims: all of it, again and again |
//! | [`slices`], [`publisher`] | what the scheduler knows of devices, and that it goes on knowing it |
//! | [`claims`], [`cdi`] | a claim's devices are its, and what its containers have of them |
//! | [`events`], [`say`] | what is said of trouble |
//! | [`host`] | where all of it is |
//! | [`api`], [`rpc`], [`door`] | kubelet's messages, calls over Unix sockets, and sockets that stay |
//! | [`apiserver`] | calls of the apiserver |
//!
//! The daemon has neither an asynchronous runtime nor gRPC, so this is a program of its own; it may be killed at any
//! moment and keeps nothing that the next one would need.

pub mod api;
pub mod apiserver;
pub mod cdi;
pub mod claims;
pub mod class;
pub mod devices;
pub mod door;
pub mod driver;
pub mod endpoint;
pub mod events;
pub mod grants;
pub mod host;
pub mod label;
#[cfg(test)]
mod odd;
pub mod plugin;
pub mod pods;
pub mod publisher;
pub mod rpc;
pub mod say;
pub mod slices;
