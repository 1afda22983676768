//! What requests and replies share: one JSON object, its version, its fields.

use super::{MessageError, VERSION};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A message's fields, from what is left of its object.
pub(super) fn fields<T: DeserializeOwned>(
    message: &'static str,
    object: Map<String, Value>,
) -> Result<T, MessageError> {
    serde_json::from_value(Value::Object(object)).map_err(|error| MessageError::Field {
        message,
        text: error.to_string(),
    })
}

/// The object of a message whose version is ours, without its version.
pub(super) fn object(message: &[u8], most: usize) -> Result<Map<String, Value>, MessageError> {
    if message.len() > most {
        return Err(MessageError::TooLong {
            bytes: message.len(),
            most,
        });
    }
    let mut object: Map<String, Value> = serde_json::from_slice(message)
        .map_err(|error| MessageError::NoObject(error.to_string()))?;
    let version = object.remove("v").unwrap_or(Value::Null);
    if version.as_u64() != Some(VERSION) {
        return Err(MessageError::Version(shown(&version)));
    }
    Ok(object)
}

/// A value that should have been another, short enough to be shown.
pub(super) fn shown(value: &Value) -> String {
    const MOST_CHARACTERS: usize = 40;
    if value.is_null() {
        return "missing".into();
    }
    let text = value.to_string();
    if text.chars().count() <= MOST_CHARACTERS {
        return text;
    }
    let start: String = text.chars().take(MOST_CHARACTERS).collect();
    format!("{start}...")
}

/// As many as almost all messages have.
const USUAL_BYTES: usize = 4096;

/// The bytes of a message, if they are no more than may be sent.
pub(super) fn bounded(
    message: &impl Serialize,
    kind: &'static str,
    most: usize,
) -> Result<Vec<u8>, MessageError> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    serde_json::to_writer(&mut bytes, message).map_err(|error| MessageError::Field {
        message: kind,
        text: error.to_string(),
    })?;
    if bytes.len() > most {
        return Err(MessageError::TooLong {
            bytes: bytes.len(),
            most,
        });
    }
    Ok(bytes)
}
