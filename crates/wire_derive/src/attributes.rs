//! The attributes `#[coded(…)]` of types, variants and fields, read and checked.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, LitInt, Path, Result, Type};

/// Calls a function for each item of the attributes `#[coded(…)]` in a list.
fn each(
    attributes: &[Attribute],
    mut item: impl FnMut(&ParseNestedMeta<'_>) -> Result<()>,
) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("coded")) {
        attribute.parse_nested_meta(|meta| item(&meta))?;
    }
    Ok(())
}

/// What is said of a type.
#[derive(Default)]
pub(crate) struct OfType {
    /// The function that checks a value once it is read.
    pub(crate) check: Option<Path>,
    /// The type as which it is encoded.
    pub(crate) via: Option<Type>,
}

impl OfType {
    /// Reads the attributes of a type.
    pub(crate) fn read(attributes: &[Attribute]) -> Result<OfType> {
        let mut read = OfType::default();
        each(attributes, |meta| {
            if meta.path.is_ident("check") {
                read.check = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("via") {
                read.via = Some(meta.value()?.parse()?);
            } else {
                return Err(meta.error("a type has `check = function` or `via = Type`"));
            }
            Ok(())
        })?;
        Ok(read)
    }
}

/// The tag in the attributes of a variant, if there is one.
pub(crate) fn tag(attributes: &[Attribute]) -> Result<Option<u8>> {
    let mut tag = None;
    each(attributes, |meta| {
        if !meta.path.is_ident("tag") {
            return Err(meta.error("a variant has `tag = number`"));
        }
        tag = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
        Ok(())
    })?;
    Ok(tag)
}

/// How a field is encoded.
pub(crate) enum Encoding {
    /// As `Coded` has it.
    Usual,
    /// As `Short` has it.
    Short,
    /// Not at all: the value that is read has the default of the type.
    Skip,
    /// By the functions `put` and `take` of a module.
    With(Path),
}

impl Encoding {
    /// Reads the attributes of a field.
    pub(crate) fn read(attributes: &[Attribute]) -> Result<Encoding> {
        let mut read = Encoding::Usual;
        each(attributes, |meta| {
            if meta.path.is_ident("short") {
                read = Encoding::Short;
            } else if meta.path.is_ident("skip") {
                read = Encoding::Skip;
            } else if meta.path.is_ident("with") {
                read = Encoding::With(meta.value()?.parse()?);
            } else {
                return Err(meta.error("a field has `short`, `skip` or `with = module`"));
            }
            Ok(())
        })?;
        Ok(read)
    }
}
