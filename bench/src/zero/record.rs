//! The results: [`Record`], schema `firstlight.bench-zero/1`.

use crate::alloc::Spread;
use serde::Serialize;

/// Name and version of the record's form.
pub const SCHEMA: &str = "firstlight.bench-zero/1";

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// All figures.
    pub rows: Vec<Row>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Row {
    /// A block that is allocated zeroed.
    Allocate {
        /// Its order.
        order: u8,
        /// From memory known to be zero; else it was zeroed on the spot.
        stock: bool,
        /// Nanoseconds a block.
        ns: Spread,
    },
    /// The worker on one CPU.
    Worker {
        /// Bytes it zeroes a second.
        bytes_per_second: u64,
        /// Divided by the fastest stores past the caches, in the same turns on the same CPU.
        fraction_of_best: f64,
    },
    /// A way to fill memory by itself.
    Stores {
        /// Which.
        name: String,
        /// Whether it leaves the caches alone.
        past_caches: bool,
        /// Bytes it fills a second.
        bytes_per_second: u64,
        /// Divided by the fastest that leaves the caches alone.
        fraction_of_best: f64,
    },
    /// Work in the caches beside a worker.
    Neighbour {
        /// What it reads, over and over.
        working_set_bytes: u64,
        /// It takes turns with the worker on one CPU; else each has its own.
        same_cpu: bool,
        /// The worker's stores.
        stores: Stores,
        /// How much longer it takes than alone.
        slowdown_percent: f64,
    },
}

/// How a worker stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Stores {
    /// Past the caches.
    NonTemporal,
    /// Through them.
    Temporal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_that_of_the_schema() {
        let ns = Spread {
            median: 2.0,
            min: 1.0,
            max: 3.0,
        };
        let record = Record {
            schema: SCHEMA,
            rows: vec![
                Row::Allocate {
                    order: 9,
                    stock: true,
                    ns,
                },
                Row::Worker {
                    bytes_per_second: 5,
                    fraction_of_best: 0.5,
                },
                Row::Stores {
                    name: "movnti".into(),
                    past_caches: true,
                    bytes_per_second: 3,
                    fraction_of_best: 0.25,
                },
                Row::Neighbour {
                    working_set_bytes: 7,
                    same_cpu: false,
                    stores: Stores::NonTemporal,
                    slowdown_percent: 1.5,
                },
            ],
        };
        let expected = serde_json::json!({"schema": "firstlight.bench-zero/1", "rows": [
            {"what": "allocate", "order": 9, "stock": true, "ns": {"median": 2.0, "min": 1.0, "max": 3.0}},
            {"what": "worker", "bytes_per_second": 5, "fraction_of_best": 0.5},
            {"what": "stores", "name": "movnti", "past_caches": true, "bytes_per_second": 3,
             "fraction_of_best": 0.25},
            {"what": "neighbour", "working_set_bytes": 7, "same_cpu": false,
             "stores": "non-temporal", "slowdown_percent": 1.5},
        ]});
        assert_eq!(serde_json::to_value(record).unwrap(), expected);
    }
}
