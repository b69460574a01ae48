//! A line, divided into words.
//!
//! Literals need no quotes: a word goes on to the parenthesis or the quote that closes the first. What has quotes for a shell
//! around it, as in a command that was copied from one, loses them.

/// The words of a line.
///
/// # Errors
/// A sentence, if a quote or a parenthesis has no end.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.starts_with('\'') {
            true => shell_word(rest)?,
            false => literal_word(rest)?,
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// A word that begins with a quote of the shell, and what comes after it.
fn shell_word(text: &str) -> Result<(String, &str), String> {
    let mut word = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next().filter(|c| !c.is_whitespace()) {
        rest = &rest[first.len_utf8()..];
        match first {
            '\'' => {
                let end = rest.find('\'').ok_or("a quote ' has no end")?;
                word += &rest[..end];
                rest = &rest[end + 1..];
            }
            '\\' => {
                let escaped = rest.chars().next().ok_or("the line ends with \\")?;
                word.push(escaped);
                rest = &rest[escaped.len_utf8()..];
            }
            other => word.push(other),
        }
    }
    Ok((word, rest))
}

/// A word that is a literal, and what comes after it. Quotes belong to it.
fn literal_word(text: &str) -> Result<(String, &str), String> {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some('"'), '\\') => escaped = true,
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"') => quote = Some(c),
            // `x'00ff'`; elsewhere it is an apostrophe.
            (None, '\'') if depth > 0 || is_bytes(&text[..at]) => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, c) if c.is_whitespace() && depth == 0 => {
                return Ok((text[..at].to_owned(), &text[at..]));
            }
            (None, _) => {}
        }
    }
    match quote {
        Some(quote) => Err(format!("a quote {quote} has no end")),
        None if depth > 0 => Err("a parenthesis ( has no end".to_owned()),
        None => Ok((text.to_owned(), "")),
    }
}

/// Whether bytes in hexadecimal digits follow: the word so far is `x`, or `--option=x`.
fn is_bytes(before: &str) -> bool {
    before == "x" || before.ends_with("=x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn divides(line: &str, expected: &[&str]) {
        assert_eq!(words(line).expect("words"), expected, "{line}");
    }

    #[test]
    fn literals_are_words_whatever_is_in_them() {
        divides("  get  accounts alice ", &["get", "accounts", "alice"]);
        divides(
            r#"put people ("users", 42) "Ada \" Lovelace""#,
            &["put", "people", r#"("users", 42)"#, r#""Ada \" Lovelace""#],
        );
        divides(
            r#"scan t --prefix=("a (", x'00 ff', ("b")) --limit 3"#,
            &["scan", "t", r#"--prefix=("a (", x'00 ff', ("b"))"#, "--limit", "3"],
        );
        divides("put t x'00 ff' i64(-30)", &["put", "t", "x'00 ff'", "i64(-30)"]);
        divides("put t who alex's", &["put", "t", "who", "alex's"]);
        divides("put t smile :)", &["put", "t", "smile", ":)"]);
        divides("", &[]);
    }

    #[test]
    fn quotes_of_a_shell_are_removed() {
        divides(
            r#"get people '("users", 42)' --after '"it'\''s"'"#,
            &["get", "people", r#"("users", 42)"#, "--after", r#""it's""#],
        );
        divides("put t '' 'two words'", &["put", "t", "", "two words"]);
    }

    #[test]
    fn what_has_no_end_is_refused() {
        for line in ["get t 'a", "get t \"a", "get t (a", "get t x'00", "get t '(\"a"] {
            let error = words(line).expect_err(line);
            assert!(error.ends_with("has no end"), "{line}: {error}");
        }
    }
}
