//! What the kept inputs that are whole hold, as the builds read it that wrote them: where a change of records or blocks has this say
//! something else, files need another version (`docs/log-format.md`).

use crate::{corpus, fuzz_embedded, fuzz_worker, parts};
use shoal_client::{Db, Options, Scan};
use shoal_golden::Comparison;
use std::fmt::Write;
use std::path::Path;

/// The processes and streams of a worker's log.
fn worker(input: &[u8]) -> String {
    let parts = parts::decode(input);
    let opened = fuzz_worker::open(&parts).expect("it is whole");
    let mut text = format!("processes {:?}, void {}\n", opened.processes, opened.void);
    for stream in fuzz_worker::examine(&parts).expect("it is whole").streams {
        writeln!(text, "{stream:?}").expect("a string");
    }
    text
}

/// The rows of a database.
fn embedded(folder: &Path, input: &[u8]) -> String {
    let examined = fuzz_embedded::restore(folder, &parts::decode(input)).expect("it is whole");
    let options = Options { log_segment_bytes: 64 << 10, ..Options::default() };
    let db = Db::open_with(folder, options).expect("it is whole");
    let mut text = String::new();
    for table in &examined.tables {
        writeln!(text, "{}", table.name).expect("a string");
        let id = db.table(&table.name).expect("it is there");
        let rows = db.transact_blocking(|tx| {
            let rows = tx.scan(id, Scan::all())?;
            Ok(rows
                .iter()
                .map(|(key, value)| format!("  {} {}\n", hex(key), hex(value)))
                .collect::<String>())
        });
        text += &rows.expect("no conflict");
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn kept_files_hold_what_they_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut comparison = Comparison::default();
    for (target, read) in [
        ("worker", &worker as &dyn Fn(&[u8]) -> String),
        ("embedded", &|input| embedded(folder.path(), input)),
    ] {
        let inputs = corpus::whole(target);
        assert!(inputs.len() >= 3, "{target}: {} inputs", inputs.len());
        let texts = inputs.iter().map(|(name, input)| format!("{name}\n{}\n", read(input)));
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
        comparison.check(&kept.join(format!("{target}.txt")), &texts.collect::<String>());
    }
    comparison.finish("kept files are read otherwise than by the builds that wrote them");
}
