//! From bytes to text.

use clap::ValueEnum;
use shoal_types::tuple::{Decoder, Value};
use std::fmt::Write;
use std::mem::{Discriminant, discriminant};

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Form {
    /// The first that fits of text, tuple, number of eight bytes, hex
    #[default]
    Auto,
    /// Printable bytes as "text"
    Text,
    /// The bytes of a tuple as ("users", 42)
    Tuple,
    /// Eight bytes as i64(-30)
    Number,
    /// All bytes as x'00ff'
    Hex,
}

impl Form {
    /// The form in which all of these can be written, so that keys of a listing look alike: text, or tuples with elements of
    /// the same types. Where there is none, each has its own.
    pub fn of_all<'b>(self, mut all: impl Iterator<Item = &'b [u8]> + Clone) -> Form {
        if self != Form::Auto {
            return self;
        }
        if all.clone().all(|bytes| Form::Text.try_show(bytes).is_some()) {
            return Form::Text;
        }
        // Most texts are tuples of small numbers, too.
        let first = all.next().and_then(shape);
        match first.is_some() && all.all(|bytes| shape(bytes) == first) {
            true => Form::Tuple,
            false => Form::Auto,
        }
    }

    /// The literal in this form, if the bytes have one.
    fn try_show(self, bytes: &[u8]) -> Option<String> {
        match self {
            Form::Auto => [Form::Text, Form::Tuple, Form::Number]
                .into_iter()
                .find_map(|form| form.try_show(bytes)),
            Form::Text => str::from_utf8(bytes).ok().filter(|text| is_printable(text)).map(text),
            // An empty value is no tuple that was meant.
            Form::Tuple if bytes.is_empty() => None,
            Form::Tuple => {
                let elements: Result<Vec<Value<'_>>, _> = Decoder::new(bytes).collect();
                elements.ok().map(|elements| tuple(&elements))
            }
            Form::Number => {
                let number = i64::from_le_bytes(bytes.try_into().ok()?);
                Some(format!("i64({number})"))
            }
            Form::Hex => Some(hex(bytes)),
        }
    }
}

/// The types of a tuple's elements, if the bytes are one.
fn shape(bytes: &[u8]) -> Option<Vec<Discriminant<Value<'_>>>> {
    let elements = Decoder::new(bytes).map(|element| element.map(|element| discriminant(&element)));
    elements.collect::<Result<_, _>>().ok()
}

/// The literal for these bytes in the form asked for, and in hex where they do not have that.
pub fn show(bytes: &[u8], form: Form) -> String {
    form.try_show(bytes).unwrap_or_else(|| hex(bytes))
}

/// Text without characters that terminals obey, but for the ends of lines.
fn is_printable(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}

fn text(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '\'' => literal.push(c),
            // Also what a terminal does not show as it is, such as a mark of direction.
            _ => literal.extend(c.escape_debug()),
        }
    }
    literal.push('"');
    literal
}

fn hex(bytes: &[u8]) -> String {
    format!("x'{}'", hex_digits(bytes))
}

/// Two hexadecimal digits for each byte.
pub fn hex_digits(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into a String cannot fail.
        _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn tuple(elements: &[Value<'_>]) -> String {
    let elements: Vec<String> = elements.iter().map(element).collect();
    format!("({})", elements.join(", "))
}

fn element(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        // What `{:?}` prints of a finite number reads as the same number, and has a point or an exponent.
        Value::Float64(value) if value.is_finite() => format!("{value:?}"),
        Value::Float64(value) if value.is_nan() => format!("f64({})", hex(&value.to_be_bytes())),
        Value::Float64(value) => format!("f64({value})"),
        Value::Float32(value) if value.is_nan() => format!("f32({})", hex(&value.to_be_bytes())),
        Value::Float32(value) => format!("f32({value:?})"),
        Value::Text(value) => text(value),
        Value::Bytes(value) => hex(value),
        Value::Nested(values) => tuple(values),
    }
}
