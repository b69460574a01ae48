//! Keys as a topology file has them: text, bytes, or a tuple.

use super::error::Complaint;
use shoal_types::limits::KEY_BYTES_MAX;
use shoal_types::tuple;
use std::borrow::Cow;
use toml::{Spanned, Value};

/// The prefix of a key that is written as bytes.
const BYTES: &str = "0x";

/// The key that is written there.
pub(super) fn read(written: &Spanned<Value>) -> Result<Box<[u8]>, Complaint> {
    let key = match written.get_ref() {
        Value::String(text) => match text.strip_prefix(BYTES) {
            Some(digits) => bytes(digits),
            None => Some(text.as_bytes().into()),
        },
        Value::Array(elements) => tuple_key(elements),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Table(_) => None,
    };
    let Some(key) = key else {
        return Complaint::about(
            written.span(),
            "this is no key; write text (\"m\"), bytes in pairs of hexadecimal digits \
             (\"0x00ff\"), or a tuple of integers and text ([7, \"smith\"])",
        );
    };
    if key.len() > KEY_BYTES_MAX {
        let what = format!(
            "the key has {} bytes, KEY_BYTES_MAX is {KEY_BYTES_MAX}; shorten it",
            key.len()
        );
        return Complaint::about(written.span(), what);
    }
    Ok(key)
}

fn bytes(digits: &str) -> Option<Box<[u8]>> {
    let digits: Option<Vec<_>> = digits.chars().map(|digit| digit.to_digit(16)).collect();
    let (pairs, odd) = digits.as_ref()?.as_chunks();
    odd.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}

fn tuple_key(elements: &[Value]) -> Option<Box<[u8]>> {
    let element = |value: &Value| match value {
        Value::Integer(number) => Some(tuple::Value::Integer(i128::from(*number))),
        Value::String(text) => Some(tuple::Value::Text(Cow::Owned(text.clone()))),
        Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => None,
    };
    let elements: Vec<_> = elements.iter().map(element).collect::<Option<_>>()?;
    Some(tuple::encode(elements.as_slice()).as_ref().into())
}

/// The key as it is written: as text where it looks like a word, as a tuple where it is one, else
/// as bytes. Some bytes are both a word and a tuple; what is written then may not be what was read,
/// but always is the same key.
pub(super) fn write(key: &[u8]) -> String {
    word(key).or_else(|| tuple_text(key)).unwrap_or_else(|| {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\"{BYTES}{digits}\"")
    })
}

/// Letters, digits and a little punctuation. A single digit is more likely a tuple.
fn word(key: &[u8]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./: ".contains(byte);
    let begins = match key {
        [] => true,
        [only] => only.is_ascii_alphabetic(),
        [first, ..] => first.is_ascii_alphanumeric(),
    };
    let text = std::str::from_utf8(key).ok()?;
    (begins && key.iter().all(plain) && !text.starts_with(BYTES)).then(|| format!("\"{text}\""))
}

fn tuple_text(key: &[u8]) -> Option<String> {
    let element = |value| match value {
        tuple::Value::Integer(number) => Some(Value::Integer(i64::try_from(number).ok()?)),
        tuple::Value::Text(text) => Some(Value::String(text.into_owned())),
        tuple::Value::Null
        | tuple::Value::Boolean(_)
        | tuple::Value::Float32(_)
        | tuple::Value::Float64(_)
        | tuple::Value::Bytes(_)
        | tuple::Value::Nested(_) => None,
    };
    let elements: Option<Vec<_>> =
        tuple::Decoder::new(key).map(|value| element(value.ok()?)).collect();
    elements.map(|elements| Value::Array(elements).to_string())
}
