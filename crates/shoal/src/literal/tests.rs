//! Literals: each form, each error, and the round trip of all bytes.

use super::*;
use proptest::prelude::*;
use shoal_types::tuple::{self, Value};

const FORMS: [Form; 5] = [Form::Auto, Form::Text, Form::Tuple, Form::Number, Form::Hex];

#[test]
fn literals_stand_for_bytes() {
    let is = |text: &str, bytes: &[u8]| {
        assert_eq!(parse(text).as_deref(), Ok(bytes), "{text}");
    };
    is("alice", b"alice");
    is("42", b"42");
    is(r#"{"a": 1}"#, br#"{"a": 1}"#);
    is("xylophone", b"xylophone");
    is("", b"");
    is(r#""""#, b"");
    is(r#""a \"b\" \\ \n \u{e9}""#, "a \"b\" \\ \n é".as_bytes());
    is("x'00fF'", b"\x00\xff");
    is("x''", b"");
    is("i64(-30)", &(-30_i64).to_le_bytes());
    is(r#"("users", 42)"#, &tuple::encode(("users", 42)));
    is(r#"( "users" ,42, )"#, &tuple::encode(("users", 42)));
    is(
        r#"(null, true, -1, 1.5, f32(1.5), x'0001', ("a", ()), 170141183460469231731687303715884105727)"#,
        &tuple::encode((None::<u8>, true, -1, 1.5_f64, 1.5_f32, b"\0\x01", ("a", ()), i128::MAX)),
    );
    is("(f64(inf), f64(1), 1e3)", &tuple::encode((f64::INFINITY, 1.0, 1000.0)));
}

#[test]
fn errors_say_where_and_what_to_write() {
    let says = |text: &str, at: usize, what: &str| {
        let error = parse(text).expect_err(text);
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.to_string().contains(what), "{text}: {error}");
    };
    says(r#"("users", 42"#, 1, "the tuple has no end: write )");
    says("(users, 42)", 2, "text needs its quotes here");
    says(r#"("é" 42)"#, 6, "`,` or `)` is expected");
    says("(1, 2) 3", 8, "ends before this");
    says(r#""alice"#, 1, "the text has no end: write \"");
    says(r#""a\qb""#, 4, "no such escape");
    says(r#""\u{110000}""#, 3, "no such escape");
    says("x'0'", 3, "two hexadecimal digits");
    says("x'é'", 3, "two hexadecimal digits");
    says("x'00", 1, "the hex has no end: write '");
    says("x00ff", 1, "\"x'00ff'\"");
    says("i64(1.5)", 5, "no i64");
    says("i64(1", 1, "the number has no end");
    says("(1_000)", 2, "no integer of 128 bits");
    says("(f32(x'00'))", 6, "two hexadecimal digits");
    says(&"(".repeat(1 << 20), 66, "nested deeper than 64");
}

#[test]
fn bytes_are_shown_in_the_form_that_reads_best() {
    let shows = |bytes: &[u8], form: Form, literal: &str| assert_eq!(show(bytes, form), literal);
    shows(b"alice", Form::Auto, r#""alice""#);
    shows("l'été\n\u{202e}".as_bytes(), Form::Auto, r#""l'été\n\u{202e}""#);
    shows(b"", Form::Auto, r#""""#);
    shows(&tuple::encode(("users", 42)), Form::Auto, r#"("users", 42)"#);
    shows(&70_i64.to_le_bytes(), Form::Auto, "i64(70)");
    shows(b"\x00\xff", Form::Auto, "x'00ff'");
    shows(b"\x1b[2J", Form::Auto, "x'1b5b324a'");
    shows(b"\x21", Form::Tuple, "(1)");
    shows(b"\xff", Form::Tuple, "x'ff'");
    let keys: Vec<_> = (0..200).map(|number| tuple::encode((number,))).collect();
    let keys = || keys.iter().map(|key| &**key);
    assert_eq!(Form::Auto.of_all(keys()), Form::Tuple, "not one half as text");
    assert_eq!(Form::Hex.of_all(keys()), Form::Hex);
    assert_eq!(Form::Auto.of_all([&b"a"[..], b"b"].into_iter()), Form::Text);
    assert_eq!(Form::Auto.of_all([&b"a"[..], b"\xff"].into_iter()), Form::Auto);
    let mixed = [&b"alice"[..], &tuple::encode(("users", 42))];
    assert_eq!(Form::Auto.of_all(mixed.into_iter()), Form::Auto, "alice is no tuple of numbers");
    assert_eq!(Form::Auto.of_all([].into_iter()), Form::Text);
}

fn element() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        prop_oneof![any::<i128>(), -200_i128..200].prop_map(Value::Integer),
        any::<u32>().prop_map(|bits| Value::Float32(f32::from_bits(bits))),
        any::<u64>().prop_map(|bits| Value::Float64(f64::from_bits(bits))),
        (-100_i32..100).prop_map(|whole| Value::Float64(f64::from(whole))),
        any::<String>().prop_map(|text| Value::Text(text.into())),
        prop::collection::vec(any::<u8>(), 0..6).prop_map(|bytes| Value::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 12, 3, |element| {
        prop::collection::vec(element, 0..3).prop_map(Value::Nested)
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let tuples = prop::collection::vec(element(), 0..4);
    prop_oneof![
        tuples.prop_map(|elements| tuple::encode(elements.as_slice()).to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
        any::<i64>().prop_map(|number| number.to_le_bytes().to_vec()),
        any::<String>().prop_map(String::into_bytes),
    ]
}

/// Text that looks like literals more often than chance would have it.
fn lookalike() -> impl Strategy<Value = String> {
    const PARTS: [&str; 23] = [
        "(", ")", ",", "\"", "x'", "'", "i64(", "f32(", "f64(", "1", "-", ".5", "e9", "00", "ff",
        "null", "true", "\\", "\\u{", "}", " ", "é", "a",
    ];
    prop::collection::vec(prop::sample::select(&PARTS[..]), 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn what_is_shown_parses_to_the_same_bytes(bytes in bytes()) {
        for form in FORMS {
            let literal = show(&bytes, form);
            prop_assert_eq!(parse(&literal), Ok(bytes.clone()), "{:?}: {}", form, literal);
            prop_assert!(!literal.chars().any(char::is_control), "{:?}", literal);
        }
    }

    #[test]
    fn any_text_parses_or_is_refused(text in prop_oneof![lookalike(), any::<String>()]) {
        match parse(&text) {
            Ok(bytes) => prop_assert_eq!(parse(&show(&bytes, Form::Auto)), Ok(bytes)),
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.at)),
        }
    }
}
