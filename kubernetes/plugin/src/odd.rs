//! Documents that are nearly what they should be, for tests of what reads them.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(".{0,8}", inner, 0..4)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

/// Where the values of a document are, as JSON pointers.
fn places(document: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.into());
    let mut add = |key: &str, value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        places(value, &format!("{at}/{key}"), all);
    };
    match document {
        Value::Array(values) => {
            let values = values.iter().enumerate();
            values.for_each(|(key, value)| add(&key.to_string(), value));
        }
        Value::Object(values) => values.iter().for_each(|(key, value)| add(key, value)),
        _ => {}
    }
}

/// This document with up to three others in the place of values of it.
pub(crate) fn odd(document: Value) -> impl Strategy<Value = Value> {
    let mut all = Vec::new();
    places(&document, "", &mut all);
    vec((any::<Index>(), any_value()), 0..4).prop_map(move |changes| {
        let mut document = document.clone();
        for (at, value) in changes {
            if let Some(place) = document.pointer_mut(at.get::<String>(&all)) {
                *place = value;
            }
        }
        document
    })
}
