//! The memory of Firstlight's pool as a resource of Kubernetes.
//!
//! | module | what it decides |
//! |---|---|
//! | [`class`] | names: of resources, of devices, of the grants that belong to them |
//! | [`devices`] | which devices there are, and which of them further pods may have; which go well together |
//! | [`grants`] | that a device is one pod's: grants of the daemon, the only state there is |
//! | [`pods`] | which pod has which device, by kubelet |
//! | [`endpoint`] | the server of one resource, and its registration with kubelet |
//! | [`plugin`] | all of it, again and again |
//! | [`api`], [`rpc`] | kubelet's messages, and calls over Unix sockets |
//!
//! The daemon has neither an asynchronous runtime nor gRPC, so this is a program of its own; it may be killed at any
//! moment and keeps nothing that the next one would need.

pub mod api;
pub mod class;
pub mod devices;
pub mod endpoint;
pub mod grants;
pub mod plugin;
pub mod pods;
pub mod rpc;
