//! Elements whose types are known only when they are read.

use super::code;
use super::encode::{Element, Tuple};
use super::sink::Sink;
use std::borrow::Cow;
use std::cmp::Ordering;

/// One element of any type. Values compare as their encodings do.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// The absence of a value, as `None` is encoded.
    Null,
    /// `false` or `true`; `false` is the lesser.
    Boolean(bool),
    /// An integer of any type.
    Integer(i128),
    /// An `f32`, in the total order of floats: -0.0 is less than 0.0.
    Float32(f32),
    /// An `f64`, in the total order of floats.
    Float64(f64),
    /// A string, compared by its bytes in UTF-8.
    Text(Cow<'a, str>),
    /// A string of bytes that need not be UTF-8. Greater than all text.
    Bytes(Cow<'a, [u8]>),
    /// A nested tuple. Nested deeper than
    /// [`NESTING_MAX`](super::Decoder::NESTING_MAX), it cannot be read back.
    Nested(Vec<Value<'a>>),
}

impl Value<'_> {
    /// The place of the type in the order between types.
    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Boolean(_) => 1,
            Value::Integer(_) => 2,
            Value::Float32(_) => 3,
            Value::Float64(_) => 4,
            Value::Text(_) => 5,
            Value::Bytes(_) => 6,
            Value::Nested(_) => 7,
        }
    }
}

impl Ord for Value<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Boolean(one), Value::Boolean(two)) => one.cmp(two),
            (Value::Integer(one), Value::Integer(two)) => one.cmp(two),
            (Value::Float32(one), Value::Float32(two)) => one.total_cmp(two),
            (Value::Float64(one), Value::Float64(two)) => one.total_cmp(two),
            (Value::Text(one), Value::Text(two)) => one.cmp(two),
            (Value::Bytes(one), Value::Bytes(two)) => one.cmp(two),
            (Value::Nested(one), Value::Nested(two)) => one.cmp(two),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value<'_> {}

impl Element for Value<'_> {
    const NULLABLE: bool = true;

    fn encode(&self, sink: &mut impl Sink) {
        match self {
            Value::Null => sink.put(&[code::NULL]),
            Value::Boolean(value) => value.encode(sink),
            Value::Integer(value) => value.encode(sink),
            Value::Float32(value) => value.encode(sink),
            Value::Float64(value) => value.encode(sink),
            Value::Text(value) => value.as_ref().encode(sink),
            Value::Bytes(value) => value.as_ref().encode(sink),
            Value::Nested(values) => {
                sink.put(&[code::NESTED]);
                values.as_slice().encode_elements(sink);
                sink.put(&[code::END]);
            }
        }
    }
}

impl Tuple for &[Value<'_>] {
    fn encode_elements(&self, sink: &mut impl Sink) {
        for value in *self {
            value.encode(sink);
        }
    }
}
