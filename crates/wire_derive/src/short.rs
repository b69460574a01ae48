//! The derive of `Short`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Error, Index, Result};

/// The implementation for a struct.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(input, "only a struct has a derived short encoding"));
    };
    let types = data.fields.iter().map(|field| &field.ty);
    let members: Vec<_> = data
        .fields
        .iter()
        .enumerate()
        .map(|(place, field)| match &field.ident {
            Some(name) => name.to_token_stream(),
            None => Index::from(place).to_token_stream(),
        })
        .collect();
    let name = &input.ident;
    let (parameters, arguments, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters ::shoal_types::wire::Short for #name #arguments #bounds {
            const SHORT_BYTES_MIN: usize =
                0 #(+ <#types as ::shoal_types::wire::Short>::SHORT_BYTES_MIN)*;

            #[inline]
            fn put_short(&self, out: &mut ::shoal_types::wire::BytesMut) {
                #(::shoal_types::wire::Short::put_short(&self.#members, out);)*
            }

            #[inline]
            fn take_short(
                input: &mut ::shoal_types::wire::Input<'_>,
            ) -> ::std::result::Result<Self, ::shoal_types::wire::Malformed> {
                ::std::result::Result::Ok(Self {
                    #(#members: ::shoal_types::wire::Short::take_short(input)?),*
                })
            }
        }
    })
}
