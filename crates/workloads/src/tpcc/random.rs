//! The random numbers and strings of clauses 2.1.6 and 4.3.2, drawn from a seeded source.

use super::scale::Scale;
use super::schema::Text;
use shoal_types::Random;
use std::ops::RangeInclusive;

/// C-Load of C_LAST: the constant C while loading.
const C_LAST_LOAD: u32 = 157;
/// C-Run of C_LAST: the constant C while measuring.
const C_LAST_RUN: u32 = 223;
/// The constant C of C_ID.
const C_CUSTOMER: u32 = 259;
/// The constant C of OL_I_ID.
const C_ITEM: u32 = 7911;

const A_LAST: u32 = 255;
const A_CUSTOMER: u32 = 1023;
const A_ITEM: u32 = 8191;

// Clause 2.1.6.1: how far C-Run may be from C-Load.
const _: () = {
    let delta = C_LAST_RUN.abs_diff(C_LAST_LOAD);
    assert!(delta >= 65 && delta <= 119 && delta != 96 && delta != 112);
};
// Clause 2.1.6: C is within 0 to A.
const _: () = assert!(C_LAST_LOAD <= A_LAST && C_LAST_RUN <= A_LAST);
const _: () = assert!(C_CUSTOMER <= A_CUSTOMER && C_ITEM <= A_ITEM);

/// Each number of the range is as likely as any other (clause 2.1.5). The range must not be empty.
#[inline]
pub fn uniform(random: &mut Random, range: RangeInclusive<u32>) -> u32 {
    let (low, high) = (*range.start(), *range.end());
    low + random.below(u64::from(high - low) + 1) as u32
}

/// As [`uniform`], where both ends of the range fit a byte.
#[inline]
pub fn uniform_u8(random: &mut Random, range: RangeInclusive<u8>) -> u8 {
    uniform(random, u32::from(*range.start())..=u32::from(*range.end())) as u8
}

/// As [`uniform`], where both ends of the range fit 16 bits.
#[inline]
pub fn uniform_u16(random: &mut Random, range: RangeInclusive<u16>) -> u16 {
    uniform(random, u32::from(*range.start())..=u32::from(*range.end())) as u16
}

/// Some other number of the range than `not`, which lies within it; `None` where there is none.
#[inline]
pub fn other(random: &mut Random, range: RangeInclusive<u16>, not: u16) -> Option<u16> {
    let (low, high) = (*range.start(), *range.end());
    if low == high {
        return None;
    }
    let drawn = uniform_u16(random, low..=high - 1);
    Some(if drawn < not { drawn } else { drawn + 1 })
}

/// NURand(A, x, y) with the constant C (clause 2.1.6).
#[inline]
fn nurand(random: &mut Random, a: u32, c: u32, range: RangeInclusive<u32>) -> u32 {
    let (x, y) = (*range.start(), *range.end());
    let bits = uniform(random, 0..=a) | uniform(random, range);
    (bits + c) % (y - x + 1) + x
}

/// A customer id as transactions draw it: NURand(1023, 1, 3000).
#[inline]
pub fn customer_id(random: &mut Random, scale: Scale) -> u16 {
    nurand(random, A_CUSTOMER, C_CUSTOMER, 1..=u32::from(scale.customers)) as u16
}

/// An item id as transactions draw it: NURand(8191, 1, 100000).
#[inline]
pub fn item_id(random: &mut Random, scale: Scale) -> u32 {
    nurand(random, A_ITEM, C_ITEM, 1..=scale.items)
}

/// A last name as transactions draw it: NURand(255, 0, 999).
#[inline]
pub fn last_name_at_run(random: &mut Random, scale: Scale) -> Text<16> {
    let names = 0..=u32::from(scale.last_names()) - 1;
    last_name(nurand(random, A_LAST, C_LAST_RUN, names))
}

/// A last name as the initial population draws it for customers after the first thousand.
pub fn last_name_at_load(random: &mut Random, scale: Scale) -> Text<16> {
    let names = 0..=u32::from(scale.last_names()) - 1;
    last_name(nurand(random, A_LAST, C_LAST_LOAD, names))
}

/// The last name of a number below 1000: a syllable for each of its three digits (clause 4.3.2.3).
pub fn last_name(number: u32) -> Text<16> {
    const SYLLABLES: [&[u8]; 10] =
        [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];
    let mut name = Text::default();
    let mut length = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        name.0[length..][..syllable.len()].copy_from_slice(syllable);
        length += syllable.len();
    }
    name
}

/// Fills `bytes` with random letters and digits (clause 4.3.2.2).
pub fn fill_letters(random: &mut Random, bytes: &mut [u8]) {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    bytes.fill_with(|| LETTERS[random.below(62) as usize]);
}

/// A random a-string: letters and digits, of a length within the range.
pub fn letters<const N: usize>(random: &mut Random, length: RangeInclusive<u8>) -> Text<N> {
    let mut text = Text::default();
    let length = uniform_u8(random, length);
    fill_letters(random, &mut text.0[..usize::from(length)]);
    text
}

/// A random n-string of `N` digits.
pub fn digits<const N: usize>(random: &mut Random) -> Text<N> {
    Text(std::array::from_fn(|_| uniform_u8(random, b'0'..=b'9')))
}

/// I_DATA or S_DATA: an a-string of 26 to 50, in a tenth of the cases with `ORIGINAL` somewhere in
/// it (clause 4.3.3.1).
pub fn goods_data(random: &mut Random) -> Text<50> {
    let mut data: Text<50> = letters(random, 26..=50);
    if random.chance(10, 100) {
        let length = data.as_bytes().len() as u32;
        let at = uniform(random, 0..=length - 8) as usize;
        data.0[at..at + 8].copy_from_slice(b"ORIGINAL");
    }
    data
}

/// The numbers 1 to `count` in random order.
pub fn permutation(random: &mut Random, count: u16) -> Vec<u16> {
    let mut numbers: Vec<u16> = (1..=count).collect();
    random.shuffle(&mut numbers);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn last_names_are_syllables_of_digits() {
        assert_eq!(last_name(0).as_bytes(), b"BARBARBAR");
        assert_eq!(last_name(371).as_bytes(), b"PRICALLYOUGHT");
        assert_eq!(last_name(778).as_bytes(), b"CALLYCALLYATION");
        assert_eq!(last_name(999).as_bytes(), b"EINGEINGEING");
        let longest = (0..1000).map(|number| last_name(number).as_bytes().len()).max();
        assert!(longest.is_some_and(|longest| longest <= 16));
    }

    #[test]
    fn non_uniform_numbers_fill_their_range_unevenly() {
        let (mut random, scale) = (Random::new(1), Scale::specification(1));
        let mut hits = vec![0_u32; 3001];
        for _ in 0..300_000 {
            hits[usize::from(customer_id(&mut random, scale))] += 1;
        }
        assert_eq!(hits[0], 0);
        let hit = hits.iter().filter(|count| **count > 0).count();
        assert!(hit > 2_500, "only {hit} of 3000 numbers were drawn");
        // A uniform draw gives each about 100; ORing two numbers favours those with many bits set.
        assert!(hits.iter().max() > Some(&400));
    }

    #[test]
    fn a_tenth_of_goods_is_original() {
        let mut random = Random::new(2);
        let goods: Vec<Text<50>> = (0..20_000).map(|_| goods_data(&mut random)).collect();
        let originals = goods.iter().filter(|data| data.is_original()).count();
        assert!((1_800..2_200).contains(&originals), "{originals}");
        assert!(goods.iter().all(|data| (26..=50).contains(&data.as_bytes().len())));
    }

    proptest! {
        #[test]
        fn numbers_stay_in_range(seed in any::<u64>(), items in 1_u32..200_000, customers in 1_u16..5_000) {
            let mut random = Random::new(seed);
            let scale = Scale { warehouses: 3, items, customers, undelivered: 1 };
            for _ in 0..50 {
                prop_assert!((1..=items).contains(&item_id(&mut random, scale)));
                prop_assert!((1..=customers).contains(&customer_id(&mut random, scale)));
                let names: Vec<Text<16>> =
                    (0..u32::from(scale.last_names())).map(last_name).collect();
                prop_assert!(names.contains(&last_name_at_run(&mut random, scale)));
                prop_assert!(names.contains(&last_name_at_load(&mut random, scale)));
                prop_assert!((5..=9).contains(&uniform(&mut random, 5..=9)));
                let another = other(&mut random, 1..=3, 2);
                prop_assert!(another == Some(1) || another == Some(3));
                prop_assert_eq!(other(&mut random, 1..=1, 1), None);
                let text: Text<20> = letters(&mut random, 10..=20);
                prop_assert!((10..=20).contains(&text.as_bytes().len()));
            }
        }

        #[test]
        fn permutations_have_every_number(seed in any::<u64>(), count in 0_u16..500) {
            let mut numbers = permutation(&mut Random::new(seed), count);
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (1..=count).collect::<Vec<u16>>());
        }
    }
}
