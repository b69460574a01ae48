//! Planted bugs: each disables one rule, so that tests and the simulator can prove that their checkers
//! notice.
//!
//! Without the feature `planted`, which only tests and `shoal/planted` enable, a set of bugs has no size, and
//! each of its fields is the constant `false`: the compiler drops the code behind it.

/// Declares a set of bugs: a struct of booleans, which may all be set with the feature `planted` of the crate that declares
/// them.
#[macro_export]
macro_rules! planted {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $bug:ident: bool,)*
    }) => {
        #[cfg(feature = "planted")]
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$doc])* pub $bug: bool,)*
        }

        #[cfg(not(feature = "planted"))]
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(());

        #[cfg(not(feature = "planted"))]
        const _: () = assert!(size_of::<$name>() == 0);

        /// The bugs by their names, none of them planted.
        #[cfg(not(feature = "planted"))]
        #[derive(Debug)]
        pub struct Unplanted {
            $($(#[$doc])* pub $bug: bool,)*
        }

        #[cfg(not(feature = "planted"))]
        impl std::ops::Deref for $name {
            type Target = Unplanted;

            #[inline(always)]
            fn deref(&self) -> &Unplanted {
                &const { Unplanted { $($bug: false,)* } }
            }
        }
    };
}
