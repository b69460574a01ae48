//! The derive of `Coded`.

use crate::attributes::{Encoding, OfType, tag};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use std::collections::BTreeSet;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Ident, Index, Result, Type, parse_quote};

/// What the three items of the trait consist of.
struct Body {
    bytes_min: TokenStream,
    put: TokenStream,
    take: TokenStream,
    /// Whether the functions are small enough to be inlined into other crates.
    inline: bool,
}

/// The implementation for a type.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let of_type = OfType::read(&input.attrs)?;
    let body = match (&of_type.via, &input.data) {
        (Some(other), _) => of_other(other),
        (None, Data::Struct(data)) => of_struct(&data.fields)?,
        (None, Data::Enum(data)) => of_enum(&input.ident, data)?,
        (None, Data::Union(_)) => return Err(Error::new_spanned(input, "a union has no encoding")),
    };
    let Body { bytes_min, put, take, inline } = body;
    let take = match &of_type.check {
        None => take,
        Some(check) => quote! {
            let taken = (|| -> ::std::result::Result<Self, ::shoal_types::wire::Malformed> { #take })()?;
            match #check(&taken) {
                ::std::result::Result::Ok(()) => ::std::result::Result::Ok(taken),
                ::std::result::Result::Err(what) => ::std::result::Result::Err(input.wrong(what)),
            }
        },
    };
    let inline = inline.then(|| quote!(#[inline]));
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::shoal_types::wire::Coded));
    }
    let (parameters, arguments, bounds) = generics.split_for_impl();
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #parameters ::shoal_types::wire::Coded for #name #arguments #bounds {
            const BYTES_MIN: usize = #bytes_min;

            #inline
            fn put(&self, out: &mut ::shoal_types::wire::BytesMut) { #put }

            #inline
            fn take(
                input: &mut ::shoal_types::wire::Input<'_>,
            ) -> ::std::result::Result<Self, ::shoal_types::wire::Malformed> { #take }
        }
    })
}

/// A type that is encoded as another one.
fn of_other(other: &Type) -> Body {
    Body {
        bytes_min: quote!(<#other as ::shoal_types::wire::Coded>::BYTES_MIN),
        put: quote! {
            let other = <#other as ::std::convert::From<&Self>>::from(self);
            ::shoal_types::wire::Coded::put(&other, out)
        },
        take: quote! {
            let other = <#other as ::shoal_types::wire::Coded>::take(input)?;
            let taken: ::std::result::Result<Self, &'static str> = ::std::convert::TryFrom::try_from(other);
            taken.map_err(|what| input.wrong(what))
        },
        inline: false,
    }
}

/// The code for the fields of a struct or a variant.
struct FieldCode {
    /// The name or the place of each field.
    members: Vec<TokenStream>,
    /// The variable that holds a reference to each field while it is written.
    bindings: Vec<Ident>,
    bytes_min: TokenStream,
    puts: Vec<TokenStream>,
    takes: Vec<TokenStream>,
}

impl FieldCode {
    fn of(fields: &Fields) -> Result<FieldCode> {
        let mut code = FieldCode {
            members: Vec::new(),
            bindings: Vec::new(),
            bytes_min: quote!(0),
            puts: Vec::new(),
            takes: Vec::new(),
        };
        for (place, field) in fields.iter().enumerate() {
            let encoding = Encoding::read(&field.attrs)?;
            let binding = match encoding {
                Encoding::Skip => format_ident!("_field_{place}"),
                Encoding::Usual | Encoding::Short | Encoding::With(_) => {
                    format_ident!("field_{place}")
                }
            };
            let ty = &field.ty;
            let (bytes_min, put, take) = match encoding {
                Encoding::Usual => (
                    quote!(<#ty as ::shoal_types::wire::Coded>::BYTES_MIN),
                    quote!(::shoal_types::wire::Coded::put(#binding, out);),
                    quote!(::shoal_types::wire::Coded::take(input)?),
                ),
                Encoding::Short => (
                    quote!(<#ty as ::shoal_types::wire::Short>::SHORT_BYTES_MIN),
                    quote!(::shoal_types::wire::Short::put_short(#binding, out);),
                    quote!(::shoal_types::wire::Short::take_short(input)?),
                ),
                Encoding::Skip => (quote!(0), quote!(), quote!(::std::default::Default::default())),
                Encoding::With(module) => {
                    (quote!(0), quote!(#module::put(#binding, out);), quote!(#module::take(input)?))
                }
            };
            code.bytes_min.extend(quote!(+ #bytes_min));
            code.puts.push(put);
            code.takes.push(take);
            code.members.push(match &field.ident {
                Some(name) => name.to_token_stream(),
                None => Index::from(place).to_token_stream(),
            });
            code.bindings.push(binding);
        }
        Ok(code)
    }
}

fn of_struct(fields: &Fields) -> Result<Body> {
    let FieldCode { members, bindings, bytes_min, puts, takes } = FieldCode::of(fields)?;
    Ok(Body {
        bytes_min,
        put: quote! {
            let Self { #(#members: #bindings),* } = self;
            #(#puts)*
        },
        take: quote!(::std::result::Result::Ok(Self { #(#members: #takes),* })),
        inline: members.len() <= 2,
    })
}

fn of_enum(name: &Ident, data: &DataEnum) -> Result<Body> {
    let (mut tags, mut minima) = (BTreeSet::new(), Vec::new());
    let (mut puts, mut takes) = (Vec::new(), Vec::new());
    for variant in &data.variants {
        let Some(tag) = tag(&variant.attrs)? else {
            return Err(Error::new_spanned(variant, "a variant needs `#[coded(tag = number)]`"));
        };
        if !tags.insert(tag) {
            return Err(Error::new_spanned(variant, "another variant has this tag"));
        }
        let name = &variant.ident;
        let code = FieldCode::of(&variant.fields)?;
        let FieldCode { members, bindings, bytes_min, puts: fields, takes: taken } = code;
        minima.push(bytes_min);
        puts.push(quote! {
            Self::#name { #(#members: #bindings),* } => {
                ::shoal_types::wire::Coded::put(&#tag, out);
                #(#fields)*
            }
        });
        takes
            .push(quote!(#tag => ::std::result::Result::Ok(Self::#name { #(#members: #taken),* })));
    }
    let unknown = format!("no such {name}");
    Ok(Body {
        bytes_min: quote!(1 + ::shoal_types::wire::least(&[#(#minima),*])),
        put: quote!(match self { #(#puts)* }),
        take: quote! {
            match input.byte()? {
                #(#takes,)*
                _ => ::std::result::Result::Err(input.wrong(#unknown)),
            }
        },
        inline: false,
    })
}
