//! Draws from a seed.

use shoal_types::Random;

/// One of `items`, each as likely as the others.
///
/// # Panics
/// If there is none.
pub(crate) fn one_of<T: Copy>(random: &mut Random, items: &[T]) -> T {
    *random.pick(items).expect("something to choose from")
}
