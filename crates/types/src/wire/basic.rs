//! The forms of what the language and its library have.

use super::{Coded, Input, Malformed, put_count};
use bytes::BytesMut;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

macro_rules! coded_number {
    ($($number:ty),*) => {$(
        impl Coded for $number {
            const BYTES_MIN: usize = size_of::<$number>();

            #[inline]
            fn put(&self, out: &mut BytesMut) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn take(input: &mut Input<'_>) -> Result<$number, Malformed> {
                let bytes = input.slice(size_of::<$number>())?;
                Ok(<$number>::from_le_bytes(bytes.try_into().expect("as many as asked for")))
            }
        }
    )*};
}
coded_number!(u8, u16, u32, u64, u128, i16, i64);

impl<T: Coded, const N: usize> Coded for [T; N] {
    const BYTES_MIN: usize = N * T::BYTES_MIN;

    fn put(&self, out: &mut BytesMut) {
        self.iter().for_each(|element| element.put(out));
    }

    fn take(input: &mut Input<'_>) -> Result<[T; N], Malformed> {
        let mut taken = [const { None }; N];
        for element in &mut taken {
            *element = Some(T::take(input)?);
        }
        Ok(taken.map(|element| element.expect("taken above")))
    }
}

/// Coded as a `u64`, so that both ends may have words of different sizes.
impl Coded for usize {
    const BYTES_MIN: usize = 8;

    fn put(&self, out: &mut BytesMut) {
        (*self as u64).put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<usize, Malformed> {
        usize::try_from(u64::take(input)?).map_err(|_| input.wrong("a count beyond all memory"))
    }
}

impl Coded for bool {
    const BYTES_MIN: usize = 1;

    #[inline]
    fn put(&self, out: &mut BytesMut) {
        u8::from(*self).put(out);
    }

    #[inline]
    fn take(input: &mut Input<'_>) -> Result<bool, Malformed> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(input.wrong("neither yes nor no")),
        }
    }
}

/// Seconds, and the nanoseconds that are less than one.
impl Coded for Duration {
    const BYTES_MIN: usize = 12;

    fn put(&self, out: &mut BytesMut) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Duration, Malformed> {
        let (seconds, nanos) = Coded::take(input)?;
        if nanos >= 1_000_000_000 {
            return Err(input.wrong("a second too much"));
        }
        Ok(Duration::new(seconds, nanos))
    }
}

/// Encoded as no bytes at all.
impl Coded for () {
    const BYTES_MIN: usize = 0;

    fn put(&self, _: &mut BytesMut) {}

    fn take(_: &mut Input<'_>) -> Result<(), Malformed> {
        Ok(())
    }
}

impl<T: Coded> Coded for Option<T> {
    const BYTES_MIN: usize = 1;

    fn put(&self, out: &mut BytesMut) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Option<T>, Malformed> {
        Ok(if bool::take(input)? { Some(T::take(input)?) } else { None })
    }
}

/// 0 and what succeeded, or 1 and what went wrong.
impl<T: Coded, E: Coded> Coded for Result<T, E> {
    const BYTES_MIN: usize =
        1 + if T::BYTES_MIN < E::BYTES_MIN { T::BYTES_MIN } else { E::BYTES_MIN };

    fn put(&self, out: &mut BytesMut) {
        self.is_err().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Result<T, E>, Malformed> {
        Ok(if bool::take(input)? { Err(E::take(input)?) } else { Ok(T::take(input)?) })
    }
}

/// 0 and the bound that is included, 1 and the bound that is excluded, or 2.
impl<T: Coded> Coded for Bound<T> {
    const BYTES_MIN: usize = 1;

    fn put(&self, out: &mut BytesMut) {
        match self {
            Bound::Included(value) => {
                0_u8.put(out);
                value.put(out);
            }
            Bound::Excluded(value) => {
                1_u8.put(out);
                value.put(out);
            }
            Bound::Unbounded => 2_u8.put(out),
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Bound<T>, Malformed> {
        match input.byte()? {
            0 => Ok(Bound::Included(T::take(input)?)),
            1 => Ok(Bound::Excluded(T::take(input)?)),
            2 => Ok(Bound::Unbounded),
            _ => Err(input.wrong("no such Bound")),
        }
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;

    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<(A, B), Malformed> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

impl<T: Coded> Coded for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(input: &mut Input<'_>) -> Result<Vec<T>, Malformed> {
        let count = input.count(T::BYTES_MIN)?;
        input.elements(count)
    }
}

/// Entries ascend by key; a key that does not is malformed.
impl<K: Coded + Ord, V: Coded> Coded for BTreeMap<K, V> {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<BTreeMap<K, V>, Malformed> {
        let pairs: Vec<(K, V)> = Coded::take(input)?;
        if !pairs.is_sorted_by(|(one, _), (two, _)| one < two) {
            return Err(input.wrong("keys in disorder"));
        }
        Ok(pairs.into_iter().collect())
    }
}

/// Encoded as the list of its elements, ascending.
impl<T: Coded + Ord> Coded for BTreeSet<T> {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(input: &mut Input<'_>) -> Result<BTreeSet<T>, Malformed> {
        let values: Vec<T> = Coded::take(input)?;
        if !values.is_sorted_by(|one, two| one < two) {
            return Err(input.wrong("elements in disorder"));
        }
        Ok(values.into_iter().collect())
    }
}

impl<T: Coded> Coded for Arc<T> {
    const BYTES_MIN: usize = T::BYTES_MIN;

    fn put(&self, out: &mut BytesMut) {
        (**self).put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Arc<T>, Malformed> {
        T::take(input).map(Arc::new)
    }
}

/// Bytes, where `Vec<u8>` would go one by one.
impl Coded for Box<[u8]> {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        out.extend_from_slice(self);
    }

    fn take(input: &mut Input<'_>) -> Result<Box<[u8]>, Malformed> {
        let count = input.count(1)?;
        Ok(input.slice(count)?.into())
    }
}

impl Input<'_> {
    /// So many bytes of text.
    pub(super) fn text(&mut self, count: usize) -> Result<&str, Malformed> {
        let text = std::str::from_utf8(self.slice(count)?);
        text.map_err(|_| self.wrong("text that is no UTF-8"))
    }
}

macro_rules! coded_text {
    ($($text:ty),*) => {$(
        impl Coded for $text {
            const BYTES_MIN: usize = 4;

            fn put(&self, out: &mut BytesMut) {
                put_count(self.len(), out);
                out.extend_from_slice(self.as_bytes());
            }

            fn take(input: &mut Input<'_>) -> Result<$text, Malformed> {
                let count = input.count(1)?;
                input.text(count).map(<$text>::from)
            }
        }
    )*};
}
coded_text!(String, Box<str>);
