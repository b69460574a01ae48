//! Recorded conversations: the messages of a version of a protocol, as text and as bytes.
//!
//! ```text
//! n0 → n1 Lock n0.1 s1 #1 [put b 1]
//!     000001000201…
//! ```
//! The file of a version is written once, by a build of which it is the newest, and stays for as long as a build supports
//! that version. The text shows what the bytes mean, so that a change that gives old bytes another meaning is noticed too.

use crate::is_refreshing;
use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedMessage {
    /// The sender, the receiver and the message, in one line.
    pub text: String,
    /// The encoded message, as it is sent.
    pub bytes: Vec<u8>,
}

/// Checks the conversation `name` of each of `versions`, kept in `folder` as `NAME-VERSION.txt`: `again` reads a kept
/// message, given by its text and its bytes, and writes it once more. `record` makes the conversation of the newest version,
/// to write its file with `GOLDEN=refresh`.
///
/// # Panics
/// If a message cannot be read, or is written differently; the panic names it, and what to do.
pub fn check_conversations(
    folder: &Path,
    name: &str,
    versions: RangeInclusive<u16>,
    record: impl FnOnce() -> Vec<RecordedMessage>,
    again: impl Fn(&RecordedMessage) -> Result<RecordedMessage, String>,
) {
    let newest = *versions.end();
    let path = |version: u16| folder.join(format!("{name}-{version}.txt"));
    if is_refreshing() {
        let kept =
            fs::create_dir_all(folder).and_then(|()| fs::write(path(newest), write(&record())));
        kept.unwrap_or_else(|error| panic!("{}: {error}", path(newest).display()));
    }
    let mut complaints = Vec::new();
    for version in versions {
        let text = fs::read_to_string(path(version)).unwrap_or_else(|error| {
            let path = path(version);
            panic!(
                "{}: {error}; write it with GOLDEN=refresh while {version} is the newest version",
                path.display()
            )
        });
        let kept =
            read(&text).unwrap_or_else(|line| panic!("{}: {line:?}", path(version).display()));
        assert!(!kept.is_empty(), "{} has no message", path(version).display());
        for message in &kept {
            let now = again(message);
            if now.as_ref() != Ok(message) {
                complaints.push(format!("version {version}: {message:?}\n  is now {now:?}"));
            }
        }
    }
    assert!(
        complaints.is_empty(),
        "the form of messages has changed, and nodes or clients of another release would not understand them.\n\
         If a release with version {newest} is out: keep its form, give the new one a new version in \
         crates/types/src/wire/version.rs, choose by the version of the connection, and record it with GOLDEN=refresh.\n\
         If version {newest} is in no release: GOLDEN=refresh writes its conversation anew.\n{}\n",
        complaints.join("\n")
    );
}

fn write(messages: &[RecordedMessage]) -> String {
    messages.iter().fold(String::new(), |mut text, message| {
        write!(text, "{}\n    ", message.text).expect("a string takes all");
        for byte in &message.bytes {
            write!(text, "{byte:02x}").expect("a string takes all");
        }
        text + "\n"
    })
}

/// The messages of a file; the error is the first malformed line.
fn read(text: &str) -> Result<Vec<RecordedMessage>, String> {
    let mut lines = text.lines();
    let mut messages = Vec::new();
    while let Some(text) = lines.next() {
        let digits = lines.next().unwrap_or_default();
        let bytes = hex(digits.trim()).ok_or_else(|| digits.to_owned())?;
        messages.push(RecordedMessage { text: text.to_owned(), bytes });
    }
    Ok(messages)
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn message(text: &str, bytes: &[u8]) -> RecordedMessage {
        RecordedMessage { text: text.to_owned(), bytes: bytes.to_vec() }
    }

    #[test]
    fn what_is_written_is_read() {
        let messages = [message("a → b Ask", &[0, 0xab, 255]), message("b → a Answer", &[7])];
        assert_eq!(write(&messages), "a → b Ask\n    00abff\nb → a Answer\n    07\n");
        assert_eq!(read(&write(&messages)).expect("well formed"), messages);
        assert!(read("a → b Ask\n    00x\n").is_err());
    }

    #[test]
    fn a_change_of_form_is_told_with_what_to_do() {
        if is_refreshing() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let kept = [message("a → b Ask", &[1]), message("b → a Answer", &[2])];
        fs::write(folder.path().join("talk-1.txt"), write(&kept)).expect("a file");
        let check = |again: &dyn Fn(&RecordedMessage) -> Result<RecordedMessage, String>| {
            let check = || check_conversations(folder.path(), "talk", 1..=1, Vec::new, again);
            catch_unwind(AssertUnwindSafe(check))
                .map_err(|cause| *cause.downcast::<String>().expect("a text"))
        };
        check(&|message| Ok(message.clone())).expect("as it was");
        let longer = check(&|it| Ok(message(&it.text, &[&it.bytes[..], &[0]].concat())));
        assert!(longer.expect_err("another form").contains("version.rs"));
        check(&|it| Ok(message("b → a Answer", &it.bytes))).expect_err("another meaning");
        check(&|_| Err("cut off".to_owned())).expect_err("not read");
    }
}
