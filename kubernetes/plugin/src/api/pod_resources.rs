//! `v1` of kubelet's interface of pod resources: which pod has which devices.

/// kubelet's: [`Empty`](super::Empty) to [`ListResponse`].
pub const LIST: &str = "/v1.PodResourcesLister/List";

/// All pods of the node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListResponse {
    /// They.
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<Pod>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Pod {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its name space.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Container {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its devices.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<Devices>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Devices {
    /// The resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// They.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}
