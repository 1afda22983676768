//! `v1` of kubelet's interface of drivers of claims.

use std::collections::HashMap;

/// The version that is spoken here, as registration has it.
pub const VERSION: &str = "v1.DRAPlugin";
/// [`Claims`] to [`Prepared`]: before the first container of a claim starts.
pub const PREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
/// [`Claims`] to [`Unprepared`]: after the last container of a claim has ended.
pub const UNPREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources";

/// Claims that begin, or end, to be used on this node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claims {
    /// They.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// A claim, by its names.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claim {
    /// Its name space.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its UID.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// What has been prepared.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Prepared {
    /// Of each claim, by its UID.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, PreparedClaim>,
}

/// What has been prepared of a claim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreparedClaim {
    /// Its devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// Why it has not been.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device of a claim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    /// What of the claim it is for.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// The pool it is of.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Its name there.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// What the container runtime is to add for it.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
}

/// What is no more prepared.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unprepared {
    /// Each claim, by its UID.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, UnpreparedClaim>,
}

/// A claim that is no more prepared.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UnpreparedClaim {
    /// Why it still is.
    #[prost(string, tag = "1")]
    pub error: String,
}
