//! From bytes to values. The bytes come from outside: for any of them, the worst that happens is
//! a [`DecodeError`] that says what is wrong with them, and where.

use super::code;
use super::value::Value;
use crate::error::{Error, Rejected};
use std::borrow::Cow;

/// A value that can be read back from a tuple.
pub trait Decode<'a>: Sized {
    /// Reads the element that is next.
    ///
    /// # Errors
    /// Where the next element is of another type, or malformed.
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError>;
}

/// A tuple that can be read back from a key.
pub trait DecodeTuple<'a>: Sized {
    /// Reads its elements.
    ///
    /// # Errors
    /// Where one of them is missing, of another type, or malformed.
    fn decode_elements(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError>;
}

/// Why bytes are not the key of the tuple asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the key of such a tuple: byte {at} {problem}")]
pub struct DecodeError {
    /// The offset of the offending byte.
    pub at: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// So that the body of a transaction can decode keys with `?`.
impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Error {
        Rejected::KeyNotDecoded { reason: error.to_string().into() }.into()
    }
}

/// What is wrong with a key; see [`DecodeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The key ends inside an element, or before it.
    #[error("is missing: the key ends too early")]
    Missing,
    /// The element has another type, or the byte begins no element.
    #[error("is {found:#04x}, which does not begin {expected}")]
    Type {
        /// The byte that was found.
        found: u8,
        /// The type that the caller decodes, in words.
        expected: &'static str,
    },
    /// The number does not fit the type asked for.
    #[error("begins a number that is no {expected}")]
    Range {
        /// The type that was to be decoded.
        expected: &'static str,
    },
    /// A shorter or other encoding exists, which is the only one allowed.
    #[error("is not as an encoder writes it")]
    Form,
    /// The text is not UTF-8.
    #[error("begins a text that is not UTF-8")]
    Utf8,
    /// Tuples are nested deeper than [`Decoder::NESTING_MAX`].
    #[error("begins a tuple nested deeper than {}", Decoder::NESTING_MAX)]
    Nesting,
    /// The tuple is complete, and the key goes on.
    #[error("comes after the last element")]
    Trailing,
}

/// Reads a key element by element: with [`read`](Decoder::read) where the types are known, as an
/// iterator over [`Value`]s where they are not.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    nesting: usize,
}

impl<'a> Decoder<'a> {
    /// How deep a [`Value`] may nest, so that hostile bytes cannot exhaust the stack.
    pub const NESTING_MAX: usize = 64;

    /// Reads from the beginning of `key`.
    pub fn new(key: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes: key, at: 0, nesting: 0 }
    }

    /// The next element, which must be a `T`.
    ///
    /// # Errors
    /// Where it is not; the decoder then stands somewhere inside it.
    pub fn read<T: Decode<'a>>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Asserts the end of the key.
    ///
    /// # Errors
    /// Where it goes on.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error(Problem::Trailing)) }
    }

    fn error(&self, problem: Problem) -> DecodeError {
        DecodeError { at: self.at, problem }
    }

    fn peek(&self) -> Result<u8, DecodeError> {
        self.bytes.get(self.at).copied().ok_or(self.error(Problem::Missing))
    }

    fn unexpected<T>(&self, expected: &'static str) -> Result<T, DecodeError> {
        Err(self.error(Problem::Type { found: self.peek()?, expected }))
    }

    /// Steps over the code that must be next.
    fn expect(&mut self, code: u8, expected: &'static str) -> Result<(), DecodeError> {
        if self.peek()? != code {
            return self.unexpected(expected);
        }
        self.at += 1;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some(bytes) = self.bytes[self.at..].first_chunk() else {
            self.at = self.bytes.len();
            return Err(self.error(Problem::Missing));
        };
        self.at += N;
        Ok(*bytes)
    }

    fn integer(&mut self) -> Result<i128, DecodeError> {
        let expected = "an integer";
        let found = self.peek()?;
        if (code::ZERO..=code::WIDE).contains(&found) {
            self.at += 1;
            return Ok(i128::from(found - code::ZERO));
        }
        let negative = found < code::ZERO;
        let count = if negative { code::ZERO - found } else { found - code::WIDE };
        if count > code::INTEGER_BYTES_MAX {
            return self.unexpected(expected);
        }
        let start = self.at + 1;
        let Some(bytes) = self.bytes.get(start..start + usize::from(count)) else {
            self.at = self.bytes.len();
            return Err(self.error(Problem::Missing));
        };
        let sign = if negative { -1 } else { 0 };
        let number = bytes.iter().fold(sign, |number, byte| number << 8 | i128::from(*byte));
        if (number < 0) != negative {
            return Err(self.error(Problem::Range { expected: "i128" }));
        }
        let shortest = match (negative, count) {
            (true, 1) => true,
            (true, _) => bytes[0] != 0xff,
            (false, 1) => bytes[0] > code::SMALL_MAX,
            (false, _) => bytes[0] != 0,
        };
        if !shortest {
            return Err(self.error(Problem::Form));
        }
        self.at = start + usize::from(count);
        Ok(number)
    }

    /// The bytes between `code` and the end mark; borrowed where none was escaped.
    fn escaped(&mut self, code: u8, expected: &'static str) -> Result<Cow<'a, [u8]>, DecodeError> {
        self.expect(code, expected)?;
        let mut taken = Cow::Borrowed(&[][..]);
        loop {
            let rest = &self.bytes[self.at..];
            let Some(special) = rest.iter().position(|byte| *byte <= code::ESCAPE) else {
                self.at = self.bytes.len();
                return Err(self.error(Problem::Missing));
            };
            if taken.is_empty() {
                taken = Cow::Borrowed(&rest[..special]);
            } else {
                taken.to_mut().extend_from_slice(&rest[..special]);
            }
            self.at += special + 1;
            if rest[special] == code::END {
                return Ok(taken);
            }
            let escaped = self.peek()?;
            if !(1..=2).contains(&escaped) {
                return Err(self.error(Problem::Form));
            }
            taken.to_mut().push(escaped - 1);
            self.at += 1;
        }
    }

    fn text(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        let start = self.at;
        let not_utf8 = DecodeError { at: start, problem: Problem::Utf8 };
        match self.escaped(code::TEXT, "text")? {
            Cow::Borrowed(bytes) => str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| not_utf8),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| not_utf8),
        }
    }

    fn nested_values(&mut self) -> Result<Vec<Value<'a>>, DecodeError> {
        if self.nesting == Self::NESTING_MAX {
            return Err(self.error(Problem::Nesting));
        }
        self.expect(code::NESTED, "a tuple")?;
        self.nesting += 1;
        let mut values = Vec::new();
        while self.peek()? != code::END {
            values.push(self.read()?);
        }
        self.nesting -= 1;
        self.expect(code::END, "the end of a tuple")?;
        Ok(values)
    }
}

/// The elements that are left. After an error there are none.
impl<'a> Iterator for Decoder<'a> {
    type Item = Result<Value<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.bytes.len() {
            return None;
        }
        let value = self.read();
        if value.is_err() {
            self.at = self.bytes.len();
        }
        Some(value)
    }
}

impl<'a> Decode<'a> for Value<'a> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(match decoder.peek()? {
            code::NULL => {
                decoder.at += 1;
                Value::Null
            }
            code::FALSE | code::TRUE => Value::Boolean(decoder.read()?),
            code::FLOAT_32 => Value::Float32(decoder.read()?),
            code::FLOAT_64 => Value::Float64(decoder.read()?),
            code::TEXT => Value::Text(decoder.read()?),
            code::BYTES => Value::Bytes(decoder.read()?),
            code::NESTED => Value::Nested(decoder.nested_values()?),
            found if code::is_integer(found) => Value::Integer(decoder.read()?),
            _ => return decoder.unexpected("an element"),
        })
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        if decoder.peek()? == code::NULL {
            decoder.at += 1;
            return Ok(None);
        }
        decoder.read().map(Some)
    }
}

impl Decode<'_> for bool {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let value = match decoder.peek()? {
            code::FALSE => false,
            code::TRUE => true,
            _ => return decoder.unexpected("a boolean"),
        };
        decoder.at += 1;
        Ok(value)
    }
}

macro_rules! integer {
    ($($type:ty),+) => {
        $(impl Decode<'_> for $type {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let expected = stringify!($type);
                let out_of_range = decoder.error(Problem::Range { expected });
                <$type>::try_from(decoder.integer()?).map_err(|_| out_of_range)
            }
        })+
    };
}

integer!(u8, u16, u32, u64, i8, i16, i32, i64, i128);

impl Decode<'_> for f32 {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.expect(code::FLOAT_32, "an f32")?;
        let ordered = u32::from_be_bytes(decoder.take()?);
        Ok(f32::from_bits(if ordered >> 31 == 0 { !ordered } else { ordered & !(1 << 31) }))
    }
}

impl Decode<'_> for f64 {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.expect(code::FLOAT_64, "an f64")?;
        let ordered = u64::from_be_bytes(decoder.take()?);
        Ok(f64::from_bits(if ordered >> 63 == 0 { !ordered } else { ordered & !(1 << 63) }))
    }
}

impl<'a> Decode<'a> for Cow<'a, str> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.text()
    }
}

impl Decode<'_> for String {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.text().map(Cow::into_owned)
    }
}

impl<'a> Decode<'a> for Cow<'a, [u8]> {
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.escaped(code::BYTES, "bytes")
    }
}

impl Decode<'_> for Vec<u8> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.escaped(code::BYTES, "bytes").map(Cow::into_owned)
    }
}

macro_rules! tuple {
    ($($element:ident),*) => {
        impl<'a, $($element: Decode<'a>),*> DecodeTuple<'a> for ($($element,)*) {
            #[allow(clippy::unused_unit, reason = "the empty tuple is one")]
            fn decode_elements(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                // The empty tuple reads nothing.
                let _ = &decoder;
                Ok(($(decoder.read::<$element>()?,)*))
            }
        }

        impl<'a, $($element: Decode<'a>),*> Decode<'a> for ($($element,)*) {
            fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                decoder.expect(code::NESTED, "a tuple")?;
                let elements = <($($element,)*)>::decode_elements(decoder)?;
                decoder.expect(code::END, "the end of a tuple")?;
                Ok(elements)
            }
        }
    };
}

tuple!();
tuple!(A);
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, E);
tuple!(A, B, C, D, E, F);
tuple!(A, B, C, D, E, F, G);
tuple!(A, B, C, D, E, F, G, H);
