//! The laws of the encoding: order, round trip, prefixes, one form; and its golden bytes.

use super::*;
use proptest::prelude::*;
use std::fmt::Debug;

fn hex(tuple: impl Tuple) -> String {
    encode(tuple).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_bytes_are_those_of_the_format() {
    assert_eq!(hex((1, 300, -2, "a")), "21 a1 01 2c 1f fe c0 61 00");
    assert_eq!(hex((0_u8, 127_u64, 128_u64, 255_i16, 256_u32)), "20 9f a0 80 a0 ff a1 01 00");
    assert_eq!(hex((-1, -256, -257, i64::MIN)), "1f ff 1f 00 1e fe ff 18 80 00 00 00 00 00 00 00");
    assert_eq!(
        hex((u64::MAX, 1_i128 << 64)),
        "a7 ff ff ff ff ff ff ff ff a8 01 00 00 00 00 00 00 00 00"
    );
    assert_eq!(hex((None::<u8>, Some(5_u8), false, true)), "02 25 03 04");
    assert_eq!(hex((0.0_f64, -0.0_f32)), "b1 80 00 00 00 00 00 00 00 b0 7f ff ff ff");
    assert_eq!(
        hex(("", b"a\0b\x01", (1, ("x",)), ())),
        "c0 00 c1 61 01 01 62 01 02 00 d0 21 d0 c0 78 00 00 00 d0 00"
    );
    assert_eq!(encode((1_u32, 10_u8, 3001_u32, 15_u8)).len(), 6);
}

/// Integers near the places where their length changes are as likely as others.
fn integer() -> impl Strategy<Value = i128> {
    let near = (0_u32..127, -2_i128..=2, any::<bool>()).prop_map(|(bits, off, negative)| {
        let number = (1_i128 << bits) + off;
        if negative { -number } else { number }
    });
    prop_oneof![near, any::<i128>(), any::<i64>().prop_map(i128::from), -300_i128..300]
}

/// Few distinct bytes, those that are escaped among them, so that values share prefixes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0), Just(1), Just(2), Just(0xc0), Just(0xff), any::<u8>()];
    prop::collection::vec(byte, 0..6)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[\\x00-\\x02a]{0,4}", "\\PC{0,8}"]
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        integer().prop_map(Value::Integer),
        prop::num::f32::ANY.prop_map(Value::Float32),
        prop::num::f64::ANY.prop_map(Value::Float64),
        text().prop_map(|text| Value::Text(text.into())),
        bytes().prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 12, 3, |element| {
        prop::collection::vec(element, 0..3).prop_map(Value::Nested)
    })
}

fn values() -> impl Strategy<Value = Vec<Value<'static>>> {
    prop::collection::vec(value(), 0..4)
}

/// One tuple and another that shares a beginning with it.
fn related() -> impl Strategy<Value = (Vec<Value<'static>>, Vec<Value<'static>>)> {
    (values(), values(), values())
        .prop_map(|(common, one, two)| ([common.clone(), one].concat(), [common, two].concat()))
}

fn round_trip<'a, T: Tuple + DecodeTuple<'a> + Debug + PartialEq>(tuple: &T, key: &'a KeyBuffer) {
    assert_eq!(decode::<T>(key).as_ref(), Ok(tuple));
}

proptest! {
    #[test]
    fn encodings_order_as_tuples((one, two) in related()) {
        let keys = (encode(one.as_slice()), encode(two.as_slice()));
        prop_assert_eq!(keys.0.cmp(&keys.1), one.cmp(&two), "{:?} {:?}", keys.0, keys.1);
    }

    #[test]
    fn encodings_begin_as_tuples_do((one, two) in related()) {
        let keys = (encode(one.as_slice()), encode(two.as_slice()));
        prop_assert_eq!(keys.1.starts_with(&keys.0), two.starts_with(&one));
        let in_range = *keys.0 <= *keys.1 && *keys.1 < *prefix_end(one.as_slice());
        prop_assert_eq!(in_range, two.starts_with(&one));
    }

    #[test]
    fn values_round_trip(values in values()) {
        let key = encode(values.as_slice());
        let back: Result<Vec<_>, _> = Decoder::new(&key).collect();
        prop_assert_eq!(back.as_ref(), Ok(&values));
        let mut appended = vec![1, 2];
        encode_into(&mut appended, values.as_slice());
        prop_assert_eq!(&appended[2..], &*key);
        let mut buffer = encode(("an earlier key", 1));
        prop_assert_eq!(buffer.encode(values.as_slice()), &*key);
    }

    #[test]
    fn typed_tuples_round_trip(
        whole in any::<(u8, u16, u32, u64, i8, i16, i32, i64)>(),
        wide in integer(),
        floats in any::<(f32, f64)>(),
        (text, bytes) in (text(), bytes()),
        options in any::<(Option<bool>, Option<u64>)>(),
    ) {
        round_trip(&whole, &encode(whole));
        let mixed = (wide, floats, (text, (bytes,)), options, ());
        round_trip(&mixed, &encode(&mixed));
    }

    #[test]
    fn all_integer_types_write_alike(number in any::<i64>(), small in any::<u8>()) {
        prop_assert_eq!(encode((number,)), encode((i128::from(number),)));
        prop_assert_eq!(encode((number.unsigned_abs(),)), encode((i128::from(number).abs(),)));
        prop_assert_eq!(encode((small,)), encode((i64::from(small),)));
    }

    /// What decodes at all is what an encoder writes.
    #[test]
    fn hostile_bytes_are_refused_or_canonical(key in hostile()) {
        if let Ok(values) = Decoder::new(&key).collect::<Result<Vec<_>, _>>() {
            prop_assert_eq!(&*encode(values.as_slice()), &*key);
        }
        if let Ok(typed) = decode::<(i64, String, (Option<Vec<u8>>, f64))>(&key) {
            prop_assert_eq!(&*encode(&typed), &*key);
        }
    }

    #[test]
    fn damaged_keys_never_panic(values in values(), at in any::<usize>(), byte in any::<u8>()) {
        let mut key = encode(values.as_slice()).to_vec();
        if !key.is_empty() {
            let at = at % key.len();
            key[at] = byte;
            Decoder::new(&key).for_each(drop);
            Decoder::new(&key[..at]).for_each(drop);
        }
    }
}

/// Bytes that look like elements more often than chance would have it.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let codes = (0_u8..0x30).chain(0x9e..0xb4).chain([0xc0, 0xc1, 0xd0, 0xff]).collect::<Vec<_>>();
    let byte = prop_oneof![prop::sample::select(codes), any::<u8>()];
    prop::collection::vec(byte, 0..24)
}

#[test]
fn errors_say_what_and_where() {
    let message = |key: &[u8]| decode::<(u8, String)>(key).unwrap_err().to_string();
    let cases: [(&[u8], &str); 8] = [
        (b"", "byte 0 is missing: the key ends too early"),
        (b"\x21", "byte 1 is missing: the key ends too early"),
        (b"\xa1\x01\x00\xc0\x00", "byte 0 begins a number that is no u8"),
        (b"\xa0\x7f\xc0\x00", "byte 0 is not as an encoder writes it"),
        (b"\x21\xc1\x00", "byte 1 is 0xc1, which does not begin text"),
        (b"\x21\xc0\xff\x00", "byte 1 begins a text that is not UTF-8"),
        (b"\x21\xc0\x01\x03\x00", "byte 3 is not as an encoder writes it"),
        (b"\x21\xc0\x00\x21", "byte 3 comes after the last element"),
    ];
    for (key, expected) in cases {
        assert_eq!(message(key), format!("not the key of such a tuple: {expected}"));
    }
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let deepest =
        [vec![code::NESTED; Decoder::NESTING_MAX], vec![0; Decoder::NESTING_MAX]].concat();
    assert!(Decoder::new(&deepest).all(|value| value.is_ok()));
    let hostile = vec![code::NESTED; 1 << 20];
    let problem = Decoder::new(&hostile).next().unwrap().unwrap_err().problem;
    assert_eq!(problem, Problem::Nesting);
}
