//! Short forms: for numbers that are mostly small, and counts.

use super::{Coded, Input, Malformed, put_short_count};
use bytes::{BufMut, Bytes, BytesMut};

/// What has a second form, which is shorter where its numbers are small. A field that is coded in one is
/// never coded in the other.
pub trait Short: Sized {
    /// No value takes fewer bytes in this form.
    const SHORT_BYTES_MIN: usize = 1;

    /// Appends the short form, as [`Short::take_short`] reads it.
    fn put_short(&self, out: &mut BytesMut);

    /// Takes a value from the front.
    ///
    /// # Errors
    /// [`Malformed`] if there is none.
    fn take_short(input: &mut Input<'_>) -> Result<Self, Malformed>;
}

/// Bytes of the longest short number.
const BYTES_MAX: usize = 10;

impl Short for u64 {
    #[inline]
    fn put_short(&self, out: &mut BytesMut) {
        if *self < 0x80 {
            return out.put_u8(*self as u8);
        }
        let (mut bytes, mut count, mut rest) = ([0; BYTES_MAX], 0, *self);
        while rest >= 0x80 {
            bytes[count] = rest as u8 | 0x80;
            (count, rest) = (count + 1, rest >> 7);
        }
        bytes[count] = rest as u8;
        out.extend_from_slice(&bytes[..=count]);
    }

    #[inline]
    fn take_short(input: &mut Input<'_>) -> Result<u64, Malformed> {
        let mut number = 0;
        for place in 0..BYTES_MAX {
            let byte = input.byte()?;
            let bits = u64::from(byte & 0x7f);
            let placed = bits << (7 * place);
            if placed >> (7 * place) != bits {
                break;
            }
            number |= placed;
            if byte < 0x80 {
                if byte == 0 && place > 0 {
                    return Err(input.wrong("a number longer than it needs to be"));
                }
                return Ok(number);
            }
        }
        Err(input.wrong("a number too great"))
    }
}

macro_rules! short_number {
    ($($number:ty),*) => {$(
        impl Short for $number {
            #[inline]
            fn put_short(&self, out: &mut BytesMut) {
                // None has more than 64 bits.
                #[allow(clippy::cast_lossless)]
                (*self as u64).put_short(out);
            }

            #[inline]
            fn take_short(input: &mut Input<'_>) -> Result<$number, Malformed> {
                let number = u64::take_short(input)?;
                <$number>::try_from(number).map_err(|_| input.wrong("a number too great"))
            }
        }
    )*};
}
short_number!(u16, u32, usize);

impl<T: Short> Short for Option<T> {
    fn put_short(&self, out: &mut BytesMut) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put_short(out);
        }
    }

    fn take_short(input: &mut Input<'_>) -> Result<Option<T>, Malformed> {
        Ok(if bool::take(input)? { Some(T::take_short(input)?) } else { None })
    }
}

/// The count is short, the elements have their usual form.
impl<T: Coded> Short for Vec<T> {
    fn put_short(&self, out: &mut BytesMut) {
        put_short_count(self.len(), out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take_short(input: &mut Input<'_>) -> Result<Vec<T>, Malformed> {
        let count = input.short_count(T::BYTES_MIN)?;
        input.elements(count)
    }
}

/// A list with a short count whose elements are short too: `#[coded(with = short_elements)]`.
pub mod short_elements {
    use super::{BytesMut, Input, Malformed, Short, put_short_count};

    /// Appends the count and the elements.
    pub fn put<T: Short>(elements: &[T], out: &mut BytesMut) {
        put_short_count(elements.len(), out);
        elements.iter().for_each(|element| element.put_short(out));
    }

    /// Takes the count and the elements from the front.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer elements than the count says, or one of them is malformed.
    pub fn take<T: Short>(input: &mut Input<'_>) -> Result<Vec<T>, Malformed> {
        const {
            assert!(size_of::<T>() <= super::super::GROWTH_MAX * T::SHORT_BYTES_MIN);
        }
        let count = input.short_count(T::SHORT_BYTES_MIN)?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::take_short(input)?);
        }
        Ok(elements)
    }
}

impl Short for Box<str> {
    fn put_short(&self, out: &mut BytesMut) {
        put_short_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take_short(input: &mut Input<'_>) -> Result<Box<str>, Malformed> {
        let count = input.short_count(1)?;
        input.text(count).map(Box::from)
    }
}

/// Bytes have no other form.
impl Coded for Bytes {
    const BYTES_MIN: usize = 1;

    #[inline]
    fn put(&self, out: &mut BytesMut) {
        put_short_count(self.len(), out);
        out.extend_from_slice(self);
    }

    #[inline]
    fn take(input: &mut Input<'_>) -> Result<Bytes, Malformed> {
        let count = input.short_count(1)?;
        input.shared(count)
    }
}
