//! From values to bytes.

use super::code;
use super::sink::Sink;

/// A value that can stand in a tuple.
pub trait Element {
    /// Whether one of its values is null. The option of such a type could not be read back.
    const NULLABLE: bool = false;

    /// Appends the element's encoding, whose code and end mark separate it from what follows.
    fn encode(&self, sink: &mut impl Sink);
}

/// A tuple, or what stands for one: its elements without the nesting around them.
pub trait Tuple {
    /// Appends the encodings of its elements.
    fn encode_elements(&self, sink: &mut impl Sink);
}

impl<T: Element + ?Sized> Element for &T {
    const NULLABLE: bool = T::NULLABLE;

    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        T::encode(self, sink);
    }
}

impl<T: Element> Element for Option<T> {
    const NULLABLE: bool = true;

    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        const { assert!(!T::NULLABLE, "an option of an option has two ways to be null") };
        match self {
            None => sink.put(&[code::NULL]),
            Some(element) => element.encode(sink),
        }
    }
}

impl Element for bool {
    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        sink.put(&[if *self { code::TRUE } else { code::FALSE }]);
    }
}

/// How many bytes hold `number`, which is one for 0.
#[inline]
fn byte_count(number: u64) -> u8 {
    8 - ((number | 1).leading_zeros() / 8) as u8
}

/// The last `count` bytes of `number`, of 1 to 8, moved to the front.
#[inline]
fn last_bytes(number: u64, count: u8) -> [u8; 8] {
    (number << (64 - 8 * u32::from(count))).to_be_bytes()
}

#[inline]
fn encode_unsigned(number: u64, sink: &mut impl Sink) {
    // A column's numbers are of about one size, so this branch is foreseen.
    if number <= u64::from(code::SMALL_MAX) {
        return sink.put(&[code::ZERO + number as u8]);
    }
    let count = byte_count(number);
    sink.put_word(code::WIDE + count, last_bytes(number, count), usize::from(count));
}

#[inline]
fn encode_signed(number: i64, sink: &mut impl Sink) {
    if number >= 0 {
        return encode_unsigned(number as u64, sink);
    }
    let count = byte_count(!number as u64);
    sink.put_word(code::ZERO - count, last_bytes(number as u64, count), usize::from(count));
}

/// Integers outside the range of both 64-bit types; rare, so plain.
#[cold]
fn encode_wide(number: i128, sink: &mut impl Sink) {
    let magnitude = if number < 0 { !number } else { number } as u128;
    let count = (128 - magnitude.leading_zeros()).div_ceil(8) as u8;
    let code = if number < 0 { code::ZERO - count } else { code::WIDE + count };
    sink.put(&[code]);
    sink.put(&number.to_be_bytes()[16 - usize::from(count)..]);
}

macro_rules! integer {
    ($encode:ident as $wide:ty: $($type:ty),+) => {
        $(impl Element for $type {
            #[inline]
            fn encode(&self, sink: &mut impl Sink) {
                $encode(<$wide>::from(*self), sink);
            }
        })+
    };
}

integer!(encode_unsigned as u64: u8, u16, u32, u64);
integer!(encode_signed as i64: i8, i16, i32, i64);

impl Element for i128 {
    fn encode(&self, sink: &mut impl Sink) {
        if let Ok(number) = u64::try_from(*self) {
            encode_unsigned(number, sink);
        } else if let Ok(number) = i64::try_from(*self) {
            encode_signed(number, sink);
        } else {
            encode_wide(*self, sink);
        }
    }
}

impl Element for f32 {
    fn encode(&self, sink: &mut impl Sink) {
        let bits = self.to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        sink.put_word(code::FLOAT_32, last_bytes(u64::from(ordered), 4), 4);
    }
}

impl Element for f64 {
    fn encode(&self, sink: &mut impl Sink) {
        let bits = self.to_bits();
        let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        sink.put_word(code::FLOAT_64, ordered.to_be_bytes(), 8);
    }
}

#[inline]
fn encode_escaped(code: u8, bytes: &[u8], sink: &mut impl Sink) {
    sink.put(&[code]);
    let mut rest = bytes;
    while let Some(special) = rest.iter().position(|byte| *byte <= code::ESCAPE) {
        sink.put(&rest[..special]);
        sink.put(&[code::ESCAPE, rest[special] + 1]);
        rest = &rest[special + 1..];
    }
    sink.put(rest);
    sink.put(&[code::END]);
}

impl Element for str {
    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        encode_escaped(code::TEXT, self.as_bytes(), sink);
    }
}

impl Element for String {
    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        self.as_str().encode(sink);
    }
}

impl Element for [u8] {
    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        encode_escaped(code::BYTES, self, sink);
    }
}

impl<const N: usize> Element for [u8; N] {
    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        self.as_slice().encode(sink);
    }
}

impl Element for Vec<u8> {
    #[inline]
    fn encode(&self, sink: &mut impl Sink) {
        self.as_slice().encode(sink);
    }
}

impl<T: Tuple> Tuple for &T {
    #[inline]
    fn encode_elements(&self, sink: &mut impl Sink) {
        T::encode_elements(self, sink);
    }
}

macro_rules! tuple {
    ($($element:ident),*) => {
        impl<$($element: Element),*> Tuple for ($($element,)*) {
            #[inline]
            fn encode_elements(&self, sink: &mut impl Sink) {
                #[allow(non_snake_case, reason = "elements are named as their types")]
                let ($($element,)*) = self;
                $($element.encode(sink);)*
                // The empty tuple has nothing to put.
                let _ = sink;
            }
        }

        impl<$($element: Element),*> Element for ($($element,)*) {
            fn encode(&self, sink: &mut impl Sink) {
                sink.put(&[code::NESTED]);
                self.encode_elements(sink);
                sink.put(&[code::END]);
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
