//! Forms of structs and enums, written as their fields. The [module](super) has an example.

/// The form of types that only give something a name, in the given order: that of what they name. They
/// have its short form as well.
#[macro_export]
macro_rules! coded_newtype {
    ($($name:ident($inner:ty)),* $(,)?) => {$(
        impl $crate::wire::Coded for $name {
            const BYTES_MIN: usize = <$inner as $crate::wire::Coded>::BYTES_MIN;

            #[inline]
            fn put(&self, out: &mut $crate::wire::BytesMut) {
                $crate::wire::Coded::put(&self.0, out);
            }

            #[inline]
            fn take(
                input: &mut $crate::wire::Input<'_>,
            ) -> ::std::result::Result<$name, $crate::wire::Malformed> {
                Ok($name($crate::wire::Coded::take(input)?))
            }
        }

        impl $crate::wire::Short for $name {
            #[inline]
            fn put_short(&self, out: &mut $crate::wire::BytesMut) {
                $crate::wire::Short::put_short(&self.0, out);
            }

            #[inline]
            fn take_short(
                input: &mut $crate::wire::Input<'_>,
            ) -> ::std::result::Result<$name, $crate::wire::Malformed> {
                Ok($name($crate::wire::Short::take_short(input)?))
            }
        }
    )*};
}

/// The form of a struct: its fields in the order given, `field: Type`, or `field: Type as short`.
#[macro_export]
macro_rules! coded_struct {
    ($name:ident { $($field:ident: $type:ty $(as $form:ident)?),* $(,)? }) => {
        impl $crate::wire::Coded for $name {
            const BYTES_MIN: usize = 0 $(+ $crate::coded_field!(min $type $(, $form)?))*;

            fn put(&self, out: &mut $crate::wire::BytesMut) {
                $($crate::coded_field!(put &self.$field, out $(, $form)?);)*
            }

            fn take(
                input: &mut $crate::wire::Input<'_>,
            ) -> ::std::result::Result<$name, $crate::wire::Malformed> {
                Ok($name { $($field: $crate::coded_field!(take input $(, $form)?)),* })
            }
        }
    };
}

/// The form of an enum: a byte that says which variant, then its fields. A variant is written as
/// `2 => Lend { field, field as short }`, `2 => Lend(field)` or `2 => Lend`; a field in a form of its own
/// as `field as module`, with the functions `put` and `take` of that module. If the enum is big and stands
/// in lists, its name is followed by `of N bytes or more`.
#[macro_export]
macro_rules! coded_enum {
    (
        $name:ident $(<$parameter:ident>)? $(of $min:literal bytes or more)? {
            $($number:literal => $variant:ident
                $({ $($field:ident $(as $form:ident)?),* $(,)? })?
                $(($single:ident $(as $single_form:ident)?))?
            ),* $(,)?
        }
    ) => {
        impl $(<$parameter: $crate::wire::Coded>)? $crate::wire::Coded
            for $name $(<$parameter>)?
        {
            const BYTES_MIN: usize = $crate::coded_field!(least $($min)?);

            fn put(&self, out: &mut $crate::wire::BytesMut) {
                match self {
                    $($name::$variant { $($($field),*)? $(0: $single)? } => {
                        $crate::wire::Coded::put(&($number as u8), out);
                        $($($crate::coded_field!(put $field, out $(, $form)?);)*)?
                        $($crate::coded_field!(put $single, out $(, $single_form)?);)?
                    })*
                }
            }

            fn take(
                input: &mut $crate::wire::Input<'_>,
            ) -> ::std::result::Result<Self, $crate::wire::Malformed> {
                match input.byte()? {
                    $($number => Ok($name::$variant {
                        $($($field: $crate::coded_field!(take input $(, $form)?)),*)?
                        $(0: $crate::coded_field!(take input $(, $single_form)?))?
                    }),)*
                    _ => Err(input.wrong(concat!("no such ", stringify!($name)))),
                }
            }
        }
    };
}

/// One field, as the other macros of this page write and read it.
#[doc(hidden)]
#[macro_export]
macro_rules! coded_field {
    (least) => {
        1
    };
    (least $min:literal) => {
        $min
    };
    (min $type:ty) => {
        <$type as $crate::wire::Coded>::BYTES_MIN
    };
    (min $type:ty, short) => {
        <$type as $crate::wire::Short>::SHORT_BYTES_MIN
    };
    (put $field:expr, $out:ident) => {
        $crate::wire::Coded::put($field, $out)
    };
    (put $field:expr, $out:ident, short) => {
        $crate::wire::Short::put_short($field, $out)
    };
    (put $field:expr, $out:ident, $form:ident) => {
        $form::put($field, $out)
    };
    (take $input:ident) => {
        $crate::wire::Coded::take($input)?
    };
    (take $input:ident, short) => {
        $crate::wire::Short::take_short($input)?
    };
    (take $input:ident, $form:ident) => {
        $form::take($input)?
    };
}
