//! Secrets, which are read from files that only their owner can read.
//!
//! An eavesdropper can try secrets against a recorded handshake, as many as a machine can hash. So a secret needs 128
//! bits that cannot be guessed. How many it has cannot be known from the secret alone: [`bits_max`] computes how many
//! it can have at most, from the characters it consists of, counting repetitions once.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Fewest bytes that cannot be guessed, in a cluster's secret: 16 random ones, or 32 hexadecimal digits that stand for them.
pub const SECRET_BYTES_MIN: usize = 16;

/// The same in bits.
const BITS_MIN: u32 = 8 * SECRET_BYTES_MIN as u32;

/// Fewest different bytes. Random ones, even decimal digits, have more for certain.
const DISTINCT_MIN: usize = 6;

/// The bits of a file's mode for others than its owner.
const OTHERS: u32 = 0o077;

/// A secret, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Why a file is not taken for a secret: to be read after the name of the key, or the option, that names it.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("names {file}, which cannot be read: {error}")]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error that was met.
        error: io::Error,
    },
    /// Others than its owner can read or write the file.
    #[error(
        "names {file}, which others than its owner can read or write (mode {mode:o}); run `chmod 600` on it, and draw a \
         new secret if they may have read it"
    )]
    Shared {
        /// The path of the file.
        file: PathBuf,
        /// What its mode says of permissions.
        mode: u32,
    },
    /// The secret could be guessed.
    #[error(
        "names {file}, which holds {bytes} bytes with at most {bits} bits that cannot be guessed; write {SECRET_BYTES_MIN} \
         random bytes or more into it, as `openssl rand -hex 32` prints them"
    )]
    Guessable {
        /// The path of the file.
        file: PathBuf,
        /// The length, without blanks at its end.
        bytes: usize,
        /// How many of its bits may be random.
        bits: u32,
    },
}

/// So that a client whose secret cannot be read ends with the error of a database.
impl From<SecretError> for shoal_types::Error {
    fn from(error: SecretError) -> shoal_types::Error {
        shoal_types::Error::not_connected(&format_args!("the secret {error}"))
    }
}

impl Secret {
    /// A secret of these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }

    /// The empty secret of clusters that ask clients for none.
    pub fn none() -> Secret {
        Secret(Vec::new())
    }

    /// The secret in a file, without blanks at its end.
    ///
    /// # Errors
    /// If it cannot be read, or others than its owner can, or it could be guessed.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let file = || path.to_owned();
        let unreadable = |error| SecretError::Unreadable { file: file(), error };
        let mut opened = File::open(path).map_err(unreadable)?;
        // The metadata of the file that was opened, which the path may not name any more.
        let metadata = opened.metadata().map_err(unreadable)?;
        let mode = metadata.permissions().mode() & 0o777;
        let mut bytes = Vec::new();
        opened.read_to_end(&mut bytes).map_err(unreadable)?;
        if mode & OTHERS != 0 {
            return Err(SecretError::Shared { file: file(), mode });
        }
        let secret = bytes.trim_ascii_end();
        let bits = bits_max(secret);
        if bits < BITS_MIN {
            return Err(SecretError::Guessable { file: file(), bytes: secret.len(), bits });
        }
        Ok(Secret::new(secret))
    }

    /// Writes the secret to a file that only its owner can read, as hexadecimal digits: that text is the secret then. A
    /// file that was there is replaced, since its permissions may be others.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_hex(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{digits}")
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// How many bits of a secret may be random: those of each byte by the characters that all are of, for one period. None,
/// where there are too few different bytes.
fn bits_max(secret: &[u8]) -> u32 {
    let mut distinct = secret.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() < DISTINCT_MIN {
        return 0;
    }
    let all = |of: fn(&u8) -> bool| distinct.iter().all(of);
    // Hundredths of bits a byte.
    let each = if all(u8::is_ascii_digit) {
        332
    } else if all(u8::is_ascii_hexdigit) {
        400
    } else if all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_whitespace()) {
        475
    } else if all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        600
    } else {
        800
    };
    let bytes = u32::try_from(period(secret)).unwrap_or(u32::MAX);
    bytes.saturating_mul(each) / 100
}

/// The length of the shortest piece that the whole repeats; the last time it may be cut off.
fn period(secret: &[u8]) -> usize {
    let repeats = |length: &usize| secret.iter().zip(&secret[*length..]).all(|(a, b)| a == b);
    // Random bytes may well end as they begin.
    (1..=secret.len() / 2).find(repeats).unwrap_or(secret.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    /// Half of 32 hexadecimal digits that a system drew.
    const HALF: &str = "9f2c71d0ab35e846";
    const OTHER: &str = "04d7b19ce2f86a53";

    fn read(text: &[u8], mode: u32) -> Result<Secret, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
        Secret::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn random_bytes_in_any_form_are_taken() {
        let digits = format!("{HALF}{OTHER}\n");
        assert_eq!(read(digits.as_bytes(), 0o600), Ok(Secret::new(digits.trim_end())));
        assert!(read(b"nyxW0jQ4m/7eV+2kTzR5aA", 0o400).is_ok(), "base64");
        let bytes: Vec<u8> = (0..16_u8).map(|at| at.wrapping_mul(37) ^ 0xa5).collect();
        assert!(read(&bytes, 0o600).is_ok(), "bytes");
    }

    #[test]
    fn what_can_be_guessed_is_refused() {
        for text in [
            String::new(),
            "password".to_owned(),
            HALF.to_owned(),
            HALF.repeat(4),
            "a".repeat(200),
            "abcab".repeat(40),
            "correct horse battery".to_owned(),
            "31415926535897932384626433832795".to_owned(),
        ] {
            let error = read(text.as_bytes(), 0o600).expect_err("refused");
            assert!(error.contains(&format!("holds {} bytes", text.len())), "{text}: {error}");
            assert!(error.contains("openssl rand"), "{text}: {error}");
        }
    }

    #[test]
    fn files_that_others_can_read_are_refused_and_none_is_written() {
        let digits = format!("{HALF}{OTHER}");
        for mode in [0o644, 0o640, 0o604, 0o602] {
            let error = read(digits.as_bytes(), mode).expect_err("refused");
            assert!(error.contains(&format!("mode {mode:o}")), "{error}");
            assert!(error.contains("chmod 600"), "{error}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        // One that was there, for all to read.
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("changed");
        let bytes: Vec<u8> = (0..32_u8).map(|at| at.wrapping_mul(37) ^ 0xa5).collect();
        Secret::new(bytes).write_hex(&path).expect("written");
        let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(Secret::read(&path).expect("read").bytes().len(), 64);
    }
}
