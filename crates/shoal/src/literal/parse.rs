//! From text to bytes.

use shoal_types::tuple::{self, Decoder, Value};
use std::str::FromStr;
use thiserror::Error;

/// Why text is no literal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("character {at}: {problem}")]
pub struct LiteralError {
    /// The place of the offending character, from 1.
    pub at: usize,
    /// What is wrong there.
    pub problem: LiteralProblem,
}

/// What is wrong with a literal; see [`LiteralError`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LiteralProblem {
    /// Something that was begun has no end.
    #[error("{what} has no end: write {end}")]
    Open {
        /// What was begun.
        what: &'static str,
        /// The character that ends it.
        end: char,
    },
    /// No element of a tuple begins here.
    #[error(
        "an element is expected: a number, \"text\", x'00ff', true, false, null or a tuple; text needs its quotes here"
    )]
    Element,
    /// Elements are not separated.
    #[error("`,` or `)` is expected")]
    Separator,
    /// The literal is complete, and the text goes on.
    #[error("the literal ends before this; quote all of it, or write it as \"text\"")]
    Trailing,
    /// Bytes in hexadecimal digits that are none.
    #[error("two hexadecimal digits are expected for each byte, as in x'00ff'")]
    Hex,
    /// A word that was a literal before the shell removed its quotes.
    #[error(
        "is this x'{0}', whose quotes the shell has removed? Write \"x'{0}'\" there; for the text write '\"x{0}\"'"
    )]
    QuotesLost(String),
    /// An escape that there is not.
    #[error("there is no such escape; there are \\\" \\' \\\\ \\n \\r \\t \\0 \\u{{1F600}}")]
    Escape,
    /// A number that is none, or does not fit.
    #[error("this is no {0}")]
    Number(&'static str),
    /// Tuples within tuples, too many of them.
    #[error("tuples are nested deeper than {}", Decoder::NESTING_MAX)]
    Nesting,
}

/// The bytes that a literal stands for; the grammar is in the [module's header](super).
///
/// # Errors
/// Where it begins as a literal does and is none. Never panics.
pub fn parse(text: &str) -> Result<Vec<u8>, LiteralError> {
    let mut parser = Parser { text, at: 0 };
    let begins = |with: &str| text.starts_with(with);
    let bytes = if begins("(") {
        let elements = parser.tuple(0)?;
        tuple::encode(elements.as_slice()).to_vec()
    } else if begins("\"") {
        parser.text()?.into_bytes()
    } else if begins("x'") {
        parser.hex()?
    } else if begins("i64(") {
        parser.call("i64(", |inner| inner.number::<i64>("i64"))?.to_le_bytes().to_vec()
    } else {
        return word(text);
    };
    parser.blanks();
    match parser.rest().is_empty() {
        true => Ok(bytes),
        false => parser.error(LiteralProblem::Trailing),
    }
}

/// Text that stands for itself.
fn word(text: &str) -> Result<Vec<u8>, LiteralError> {
    let digits = text.strip_prefix('x').filter(|digits| {
        !digits.is_empty()
            && digits.len().is_multiple_of(2)
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    match digits {
        // Taken for text, it would be another key than the one that was meant.
        Some(digits) => {
            Err(LiteralError { at: 1, problem: LiteralProblem::QuotesLost(digits.to_owned()) })
        }
        None => Ok(text.as_bytes().to_vec()),
    }
}

/// Reads a literal from its beginning to its end.
struct Parser<'t> {
    text: &'t str,
    /// Of the next character, in bytes.
    at: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn error<T>(&self, problem: LiteralProblem) -> Result<T, LiteralError> {
        self.error_at(self.at, problem)
    }

    fn error_at<T>(&self, at: usize, problem: LiteralProblem) -> Result<T, LiteralError> {
        Err(LiteralError { at: self.text[..at].chars().count() + 1, problem })
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Steps over `what`, if it is next.
    fn eat(&mut self, what: &str) -> bool {
        let is_next = self.rest().starts_with(what);
        self.at += if is_next { what.len() } else { 0 };
        is_next
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn tuple(&mut self, nesting: usize) -> Result<Vec<Value<'static>>, LiteralError> {
        let begin = self.at;
        if nesting > Decoder::NESTING_MAX {
            return self.error(LiteralProblem::Nesting);
        }
        self.eat("(");
        let mut elements = Vec::new();
        loop {
            self.blanks();
            if self.eat(")") {
                return Ok(elements);
            }
            if self.rest().is_empty() {
                return self.error_at(begin, LiteralProblem::Open { what: "the tuple", end: ')' });
            }
            elements.push(self.element(nesting)?);
            self.blanks();
            if !self.eat(",") && !self.rest().is_empty() && !self.rest().starts_with(')') {
                return self.error(LiteralProblem::Separator);
            }
        }
    }

    fn element(&mut self, nesting: usize) -> Result<Value<'static>, LiteralError> {
        let rest = self.rest();
        let begins = |with: &str| rest.starts_with(with);
        Ok(if begins("(") {
            Value::Nested(self.tuple(nesting + 1)?)
        } else if begins("\"") {
            Value::Text(self.text()?.into())
        } else if begins("x'") {
            Value::Bytes(self.hex()?.into())
        } else if begins("f64(") {
            Value::Float64(self.call("f64(", Parser::float_64)?)
        } else if begins("f32(") {
            Value::Float32(self.call("f32(", Parser::float_32)?)
        } else if begins("-") || rest.starts_with(|c: char| c.is_ascii_digit()) {
            self.integer_or_float()?
        } else {
            let word = self.word();
            let value = match word {
                "null" => Value::Null,
                "true" => Value::Boolean(true),
                "false" => Value::Boolean(false),
                _ => return self.error(LiteralProblem::Element),
            };
            self.at += word.len();
            value
        })
    }

    /// The letters, digits and signs that are next. Steps over none.
    fn word(&self) -> &'t str {
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || "+-._".contains(c);
        &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]
    }

    fn number<N: FromStr>(&mut self, kind: &'static str) -> Result<N, LiteralError> {
        let word = self.word();
        match word.parse() {
            Ok(number) => {
                self.at += word.len();
                Ok(number)
            }
            Err(_) => self.error(LiteralProblem::Number(kind)),
        }
    }

    fn integer_or_float(&mut self) -> Result<Value<'static>, LiteralError> {
        if self.word().contains(['.', 'e', 'E']) {
            return Ok(Value::Float64(self.number("number")?));
        }
        Ok(Value::Integer(self.number("integer of 128 bits")?))
    }

    fn float_64(&mut self) -> Result<f64, LiteralError> {
        if self.rest().starts_with("x'") {
            return Ok(f64::from_bits(u64::from_be_bytes(self.bits()?)));
        }
        self.number("float of 64 bits")
    }

    fn float_32(&mut self) -> Result<f32, LiteralError> {
        if self.rest().starts_with("x'") {
            return Ok(f32::from_bits(u32::from_be_bytes(self.bits()?)));
        }
        self.number("float of 32 bits")
    }

    /// Hexadecimal digits for so many bytes.
    fn bits<const N: usize>(&mut self) -> Result<[u8; N], LiteralError> {
        let begin = self.at;
        let bytes = self.hex()?;
        bytes.try_into().or_else(|_| self.error_at(begin, LiteralProblem::Hex))
    }

    /// What stands between `name`, which ends with a parenthesis, and the one that closes it.
    fn call<T>(
        &mut self,
        name: &'static str,
        inner: impl FnOnce(&mut Self) -> Result<T, LiteralError>,
    ) -> Result<T, LiteralError> {
        let begin = self.at;
        self.eat(name);
        self.blanks();
        let value = inner(self)?;
        self.blanks();
        match self.eat(")") {
            true => Ok(value),
            false => self.error_at(begin, LiteralProblem::Open { what: "the number", end: ')' }),
        }
    }

    fn hex(&mut self) -> Result<Vec<u8>, LiteralError> {
        let begin = self.at;
        self.eat("x'");
        let Some(length) = self.rest().find('\'') else {
            return self.error_at(begin, LiteralProblem::Open { what: "the hex", end: '\'' });
        };
        let digits = &self.rest()[..length];
        let digit = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        match bytes {
            Some(bytes) => {
                self.at += length + 1;
                Ok(bytes)
            }
            None => self.error(LiteralProblem::Hex),
        }
    }

    fn text(&mut self) -> Result<String, LiteralError> {
        let begin = self.at;
        self.eat("\"");
        let mut text = String::new();
        loop {
            match self.next() {
                None => {
                    let open = LiteralProblem::Open { what: "the text", end: '"' };
                    return self.error_at(begin, open);
                }
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escaped()?),
                Some(other) => text.push(other),
            }
        }
    }

    /// What stands behind a backslash.
    fn escaped(&mut self) -> Result<char, LiteralError> {
        let begin = self.at;
        let escaped = match self.next() {
            Some(same @ ('"' | '\'' | '\\')) => Some(same),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('0') => Some('\0'),
            Some('u') if self.eat("{") => self.rest().find('}').and_then(|length| {
                let code = u32::from_str_radix(&self.rest()[..length], 16).ok()?;
                self.at += length + 1;
                char::from_u32(code)
            }),
            _ => None,
        };
        match escaped {
            Some(escaped) => Ok(escaped),
            None => self.error_at(begin, LiteralProblem::Escape),
        }
    }
}
