//! Derives `shoal_types::wire::Coded` and `shoal_types::wire::Short` for structs and enums.
//!
//! The macros are re-exported by `shoal_types::wire`, beside the traits they implement; the page of that
//! module describes the bytes and has an example. The generated code names the traits by their full path,
//! so a type needs no import besides that of the macro.
//!
//! Attributes that `Coded` understands:
//!
//! ```text
//! on a type     #[coded(check = function)]   fn(&Self) -> Result<(), &'static str>, called once a value is read
//!               #[coded(via = Other)]        encoded as Other: From<&Self> for Other, and
//!                                            TryFrom<Other> for Self with the error &'static str
//! on a variant  #[coded(tag = 3)]            the byte that stands for it; each variant has one
//! on a field    #[coded(short)]              in the short encoding of its type
//!               #[coded(skip)]               not encoded: a value that is read has the default of the type
//!               #[coded(with = module)]      by the functions `put` and `take` of a module
//! ```
//!
//! Fields are encoded in the order in which they are declared.

mod attributes;
mod coded;
mod short;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `Coded`: a struct is encoded as its fields, an enum as the tag of the variant and its fields.
/// The least number of bytes of a value is computed from that of its fields.
#[proc_macro_derive(Coded, attributes(coded))]
pub fn coded(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    coded::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `Short` for a struct: all of its fields in their short encodings. It is independent of the
/// encoding that `Coded` gives the same struct.
#[proc_macro_derive(Short)]
pub fn short(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    short::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
