//! `v1` of kubelet's registration of plugins: it finds a socket in a folder, and asks what is there.

/// [`Empty`](super::Empty) to [`PluginInfo`].
pub const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
/// [`RegistrationStatus`] to [`Empty`](super::Empty).
pub const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";
/// The type of a driver of claims.
pub const DRA_PLUGIN: &str = "DRAPlugin";

/// What a plugin is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PluginInfo {
    /// What kind of one: [`DRA_PLUGIN`].
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its socket.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// The interfaces that it speaks.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Whether a plugin is known now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatus {
    /// It is.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}
