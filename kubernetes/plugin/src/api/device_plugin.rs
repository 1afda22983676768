//! `v1beta1` of the device plugin interface: a plugin registers with kubelet, which then is its client.

use std::collections::HashMap;

/// The version that is spoken here.
pub const VERSION: &str = "v1beta1";
/// What a device is that pods may have.
pub const HEALTHY: &str = "Healthy";
/// What a device is that no further pod may have.
pub const UNHEALTHY: &str = "Unhealthy";

/// kubelet's: [`RegisterRequest`] to [`Empty`](super::Empty).
pub const REGISTER: &str = "/v1beta1.Registration/Register";
/// [`Empty`](super::Empty) to [`DevicePluginOptions`].
pub const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
/// [`Empty`](super::Empty) to a stream of [`ListAndWatchResponse`].
pub const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
/// [`PreferredAllocationRequest`] to [`PreferredAllocationResponse`].
pub const PREFERRED_ALLOCATION: &str = "/v1beta1.DevicePlugin/GetPreferredAllocation";
/// [`AllocateRequest`] to [`AllocateResponse`]: a pod is admitted.
pub const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
/// [`PreStartContainerRequest`] to [`Empty`](super::Empty): before each start of a container.
pub const PRE_START_CONTAINER: &str = "/v1beta1.DevicePlugin/PreStartContainer";

/// A plugin makes itself known.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegisterRequest {
    /// The version of the interface that it speaks.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Its socket's name in the folder of kubelet's.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// What pods ask for.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// What it wants to be called for.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// What a plugin wants to be called for.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DevicePluginOptions {
    /// Before containers start.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// Which devices go well together.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// All devices, whenever one of them changes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListAndWatchResponse {
    /// They.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    /// Its name.
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`HEALTHY`] or [`UNHEALTHY`].
    #[prost(string, tag = "2")]
    pub health: String,
    /// Where it is.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// Where a device is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TopologyInfo {
    /// The nodes it is on.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NumaNode>,
}

/// A node of the machine.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NumaNode {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Which devices containers are best given.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreferredAllocationRequest {
    /// A container each.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerPreferredAllocationRequest>,
}

/// Which devices a container is best given.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerPreferredAllocationRequest {
    /// From these.
    #[prost(string, repeated, tag = "1")]
    pub available_device_ids: Vec<String>,
    /// These among them.
    #[prost(string, repeated, tag = "2")]
    pub must_include_device_ids: Vec<String>,
    /// So many.
    #[prost(int32, tag = "3")]
    pub allocation_size: i32,
}

/// The devices that containers are best given.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreferredAllocationResponse {
    /// A container each.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerPreferredAllocationResponse>,
}

/// The devices that a container is best given.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerPreferredAllocationResponse {
    /// They.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// Containers of a pod that is admitted get devices.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AllocateRequest {
    /// A container each.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerAllocateRequest>,
}

/// A container gets devices.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAllocateRequest {
    /// They.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// What is to be done for containers so that they have their devices.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AllocateResponse {
    /// A container each.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// What is to be done for a container so that it has its devices: also each time that it is started again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAllocateResponse {
    /// Variables.
    #[prost(map = "string, string", tag = "1")]
    pub envs: HashMap<String, String>,
    /// Mounts.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
}

/// A file or folder of the host in a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mount {
    /// Where the container has it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the host has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether the container may not change it.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// A container is about to start.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreStartContainerRequest {
    /// Its devices.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}
