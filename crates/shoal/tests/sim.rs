//! `shoal sim`, as a user meets it.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shoal")).arg("sim").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_shows_examples_and_exit_codes() {
    for arguments in [&["--help"][..], &["--faults", "--help"]] {
        let output = sim(arguments);
        assert!(output.status.success());
        let help = text(&output.stdout);
        assert!(help.contains("Example") && help.contains("Exit codes"), "{help}");
    }
}

#[test]
fn mistakes_are_named() {
    let cases: [(&[&str], &str); 9] = [
        (&["--engine", "paxos"], "mako"),
        (&["--fault", "typo"], "count-learner"),
        (&["--seed", "1", "--seeds", "2"], "--seeds"),
        (&["--seeds", "0"], "1.."),
        (&["--minutes", "0"], "longer than nothing"),
        (&["--minutes", "soon"], "no unit of time"),
        (&["--jobs", "0"], "1..=1024"),
        (&["--faults", "--seed", "1"], "--seed"),
        (&["--regions", "mars"], "three, tiga"),
    ];
    for (arguments, named) in cases {
        let output = sim(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(named), "{arguments:?} should name {named}:\n{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_seed_is_printed_first_and_summed_up() {
    let output = sim(&["--seed", "1"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.starts_with("mako, seed 1\n"), "{printed}");
    for part in ["committed", "messages lost", "tombstone read", "1 of them run twice", "delivered"]
    {
        assert!(printed.contains(part), "{part} is missing:\n{printed}");
    }
    assert!(printed.ends_with("mako: the seed kept every rule\n"), "{printed}");
    assert!(output.stderr.is_empty(), "a progress bar went to a file");
}

#[test]
fn seeds_without_a_number_are_drawn_and_named() {
    let output = sim(&["--seeds", "2", "--fault", "acknowledge-at-certification"]);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("mako, seeds "), "{printed}");
    assert!(printed.lines().next().unwrap().contains(" to "), "{printed}");
}

#[test]
fn a_planted_bug_is_caught_shown_and_reproducible() {
    let planted = ["--fault", "acknowledge-at-certification", "--trace", "5"];
    let output = sim(&[&planted[..], &["--first", "0", "--seeds", "50", "--jobs", "2"]].concat());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("acknowledge-at-certification was caught by M5"), "{printed}");
    let command = printed.lines().find_map(|line| line.trim().strip_prefix("shoal sim "));
    let again: Vec<&str> = command.expect("a command to see it again").split(' ').collect();
    let rule = |printed: &str| {
        let rule = printed.lines().find(|line| line.starts_with("rule ")).map(str::to_owned);
        rule.expect("the rule that was broken")
    };
    let again = text(&sim(&again).stdout);
    assert_eq!(rule(&printed), rule(&again));
    assert!(again.contains("its last 5 events"), "{again}");
}
