//! The forms of the pool's `--json` documents: [`all`]. The files in `schemas/` are made from them.

use crate::output::{Document, Failed};
use crate::{bench, libvirt, plan, start};
use firstlight_pool::protocol::{Drained, Filling, Granted, Resized, Revoked, Status};
use firstlight_pool::server::Checked;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// The form that values of `T` have when they are printed.
#[must_use]
pub fn form<T: JsonSchema + ?Sized>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// Names and forms.
#[must_use]
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("error/1", form::<Failed<'_>>()),
        ("bench-pool/1", form::<bench::record::Record>()),
        ("bench-pool-load/1", form::<bench::load::record::Record>()),
        ("bench-pool-pin/1", form::<bench::pin::Record>()),
        ("pool-check/1", form::<Document<'_, Checked>>()),
        ("pool-drain/2", form::<Document<'_, Drained>>()),
        ("pool-fill/1", form::<Document<'_, Filling>>()),
        ("pool-grant/1", form::<Document<'_, Granted>>()),
        ("pool-libvirt/1", form::<libvirt::Record>()),
        ("pool-plan/1", form::<plan::Record>()),
        ("pool-resize/1", form::<Document<'_, Resized>>()),
        ("pool-revoke/1", form::<Document<'_, Revoked>>()),
        ("pool-run/1", form::<start::Record<'_>>()),
        ("pool-status/3", form::<Document<'_, Status>>()),
    ]
}
