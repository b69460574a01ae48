//! What a word that is being typed can become.

/// The words that the last of `before` can become, and where it begins. `vocabulary` has the commands with their
/// options, and `tables` the tables there are.
pub fn completions(
    before: &str,
    vocabulary: &[(String, Vec<String>)],
    tables: &[String],
) -> (usize, Vec<String>) {
    let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let typed = &before[start..];
    let former: Vec<&str> =
        before[..start].split_whitespace().skip_while(|word| *word == "shoal").collect();
    let mut known: Vec<&String> = match former.first() {
        None => vocabulary.iter().map(|(name, _)| name).collect(),
        Some(&"help") => vocabulary.iter().map(|(name, _)| name).collect(),
        Some(command) => {
            let options = vocabulary.iter().find(|(name, _)| name == command);
            let options = options.map_or(&[][..], |(_, options)| options);
            match typed.starts_with("--") {
                true => options.iter().collect(),
                false if takes_table(command, &former) => tables.iter().collect(),
                false => Vec::new(),
            }
        }
    };
    known.retain(|word| word.starts_with(typed));
    (start, known.into_iter().cloned().collect())
}

/// Whether the next word of the command is a table.
fn takes_table(command: &str, former: &[&str]) -> bool {
    match command {
        "get" | "put" | "delete" | "scan" => {
            !former[1..].iter().any(|word| !word.starts_with("--"))
        }
        "call" => former.last() == Some(&"--near"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::vocabulary;
    use super::*;

    #[track_caller]
    fn becomes(before: &str, expected: &[&str]) {
        let tables = ["accounts", "events"].map(str::to_owned);
        let (start, found) = completions(before, &vocabulary(), &tables);
        assert_eq!(found, expected, "{before}");
        assert!(found.iter().all(|word| word.starts_with(&before[start..])));
    }

    #[test]
    fn commands_tables_and_options_are_completed() {
        becomes("sc", &["scan"]);
        becomes("help be", &["begin"]);
        becomes("com", &["commit"]);
        becomes("shoal del", &["delete"]);
        becomes("get ", &["accounts", "events"]);
        becomes("put --insert a", &["accounts"]);
        becomes("call restock --near e", &["events"]);
        becomes("scan accounts --pre", &["--prefix"]);
        becomes("get accounts a", &[]);
        becomes("begin --", &["--help"]);
        becomes("nothing ", &[]);
    }
}
