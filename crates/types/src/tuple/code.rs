//! The first byte of each element; the grammar is in the [module's header](super).

/// Ends text, bytes and nested tuples. Below every code, so that what ends sorts before what goes
/// on.
pub(super) const END: u8 = 0x00;
/// Begins an escaped byte: 00 as 01 01, 01 as 01 02. Never the first byte of an element.
pub(super) const ESCAPE: u8 = 0x01;
/// The absence of a value.
pub(super) const NULL: u8 = 0x02;
/// Orders before [`TRUE`].
pub(super) const FALSE: u8 = 0x03;
/// The greater truth value.
pub(super) const TRUE: u8 = 0x04;
/// Zero; the codes below it are negative numbers by falling length, the codes from it to
/// [`SMALL_MAX`] more are the numbers themselves.
pub(super) const ZERO: u8 = 0x20;
/// The greatest number that is its own code.
pub(super) const SMALL_MAX: u8 = 0x7f;
/// The code of a greater number is this plus the count of its bytes.
pub(super) const WIDE: u8 = ZERO + SMALL_MAX;
/// Four bytes follow, changed such that their order is that of the numbers.
pub(super) const FLOAT_32: u8 = 0xb0;
/// Eight bytes follow, changed such that their order is that of the numbers.
pub(super) const FLOAT_64: u8 = 0xb1;
/// Text in UTF-8, escaped, up to an end mark.
pub(super) const TEXT: u8 = 0xc0;
/// Bytes that need not be UTF-8, escaped, up to an end mark.
pub(super) const BYTES: u8 = 0xc1;
/// The elements of the inner tuple follow, up to an end mark.
pub(super) const NESTED: u8 = 0xd0;
/// No element begins with it.
pub(super) const ABOVE_ALL: u8 = 0xff;

/// Most bytes of an integer.
pub(super) const INTEGER_BYTES_MAX: u8 = 16;

// The order between types is the order of the codes.
const _: () = assert!(ESCAPE < NULL && TRUE < ZERO - INTEGER_BYTES_MAX);
const _: () = assert!(WIDE + INTEGER_BYTES_MAX < FLOAT_32);
const _: () = assert!(FLOAT_64 < TEXT && BYTES < NESTED && NESTED < ABOVE_ALL);

/// Whether an element that begins with `code` is an integer.
pub(super) fn is_integer(code: u8) -> bool {
    (ZERO - INTEGER_BYTES_MAX..=WIDE + INTEGER_BYTES_MAX).contains(&code)
}
