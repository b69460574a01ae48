//! Keys and values as text. What is printed can be typed, and stands for the same bytes.
//!
//! ```text
//! literal = tuple | text | hex | number | word
//! tuple   = "(" [ element { "," element } [ "," ] ] ")"   the key of a tuple (shoal::tuple)
//! text    = '"' { character | escape } '"'                 the bytes of the text in UTF-8
//! hex     = "x'" { two hexadecimal digits } "'"            these bytes
//! number  = "i64(" integer ")"                             eight bytes, little-endian: what `add` works on
//! word    = any characters that begin none of the above    their bytes in UTF-8
//!
//! element = "null" | "true" | "false" | integer | float | text | hex | tuple
//! float   = digits with "." or "e" | ( "f64(" | "f32(" ) ( float | integer | "inf" | "-inf" | bits ) ")"
//! bits    = hex of 8 bytes, or of 4: for what is no number
//! escape  = \" | \' | \\ | \n | \r | \t | \0 | \u{HEX}
//! ```
//! Blanks may stand around elements. The same bytes can be written in several ways, since a store knows only bytes: the
//! text `"!"` is also the tuple `(1)`. [`Form`] says which is printed.
//!
//! Read in this order: `parse.rs`, `show.rs`.

mod parse;
mod show;

pub use parse::{LiteralError, parse};
pub use show::{Form, hex_digits, show};

use bytes::Bytes;

/// Bytes that were written as a literal, on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal(pub Bytes);

impl Literal {
    /// The bytes that `text` stands for.
    ///
    /// # Errors
    /// Where it begins as a literal does and is none.
    pub fn parse(text: &str) -> Result<Literal, LiteralError> {
        parse(text).map(|bytes| Literal(bytes.into()))
    }
}

#[cfg(test)]
mod tests;
