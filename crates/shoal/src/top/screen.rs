//! The screen of `shoal top`: drawn into a buffer, which is shown or printed.

use super::figures::{Figures, HotKeyFigures};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, Widget};
use shoal_workloads::report::words;
use std::collections::VecDeque;

/// Samples of throughput that are kept: as many as a wide terminal shows.
const HISTORY_MAX: usize = 400;

/// Rows of the plot of throughput.
const PLOT_ROWS: u16 = 4;

/// Keys of each kind that are shown, where there is room.
const KEYS_MAX: u16 = 10;

/// The rows above the tables: title, two lines of numbers, conflicts, the plot, and lines between.
const HEAD_ROWS: u16 = 4 + PLOT_ROWS + 1;

/// Commits a second, the oldest first.
#[derive(Debug, Default)]
pub struct History(VecDeque<u64>);

impl History {
    /// Adds the latest.
    pub fn add(&mut self, figures: &Figures) {
        self.0.push_back(figures.committed_per_s.round() as u64);
        if self.0.len() > HISTORY_MAX {
            self.0.pop_front();
        }
    }
}

/// The rows that all of it takes.
fn height(figures: &Figures) -> u16 {
    let rows = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2);
    HEAD_ROWS
        .saturating_add(rows(figures.nodes.len()))
        .saturating_add(rows(figures.shards.len()))
        .saturating_add(1 + KEYS_MAX)
}

/// All of it as text of so many columns, for where there is no terminal.
pub fn text(figures: &Figures, history: &History, columns: u16) -> String {
    let area = Rect::new(0, 0, columns, height(figures));
    let mut buffer = Buffer::empty(area);
    draw(figures, history, area, &mut buffer);
    let row = |y| {
        let cells = (0..area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    let rows: Vec<String> = (0..area.height).map(row).collect();
    rows.join("\n").trim_end().to_owned() + "\n"
}

/// Draws all that fits into `area`. Where it is too low, nodes, shards and keys are cut.
pub fn draw(figures: &Figures, history: &History, area: Rect, buffer: &mut Buffer) {
    let tables = area.height.saturating_sub(HEAD_ROWS);
    let share = |rows: usize, of: u16| {
        let wanted = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2);
        wanted.min(tables * of / 10)
    };
    let [head, plot, _, nodes, shards, keys] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(PLOT_ROWS),
        Constraint::Length(1),
        Constraint::Length(share(figures.nodes.len(), 4)),
        Constraint::Length(share(figures.shards.len(), 3)),
        Constraint::Min(0),
    ])
    .areas(area);
    draw_head(figures, head, buffer);
    let width = usize::from(plot.width);
    let data: Vec<u64> = history.0.iter().rev().take(width).rev().copied().collect();
    Sparkline::default().data(&data).style(Style::new().fg(Color::Cyan)).render(plot, buffer);
    draw_nodes(figures, nodes, buffer);
    draw_shards(figures, shards, buffer);
    draw_keys(figures, keys, buffer);
}

fn bold(text: String) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn latency(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "–".to_owned(), |seconds| words::latency((seconds * 1e9) as u64))
}

fn draw_head(figures: &Figures, area: Rect, buffer: &mut Buffer) {
    let answering = figures.nodes.iter().filter(|node| node.answers).count();
    let led = figures.shards.iter().filter(|shard| shard.leader.is_some()).count();
    let title = format!(
        "epoch {} (settled {}) · {answering} of {} nodes answer · {led} of {} shards led",
        figures.epoch,
        figures.settled,
        figures.nodes.len(),
        figures.shards.len()
    );
    let rates = vec![
        bold(format!("{} committed/s", words::rate(figures.committed_per_s))),
        Span::raw(format!(
            " · p50 {} · p99 {} · {} open",
            latency(figures.latency_p50_s),
            latency(figures.latency_p99_s),
            words::count(figures.open())
        )),
    ];
    let listed = |rates: &mut dyn Iterator<Item = (&String, &f64)>| {
        let shown = rates.filter(|(_, rate)| **rate >= 0.5);
        let shown: Vec<String> =
            shown.map(|(name, rate)| format!("{name} {}", words::rate(*rate))).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(" · ") }
    };
    let others =
        listed(&mut figures.outcomes_per_s.iter().filter(|(name, _)| *name != "committed"));
    let conflicts = listed(&mut figures.conflicts_per_s.iter());
    Paragraph::new(vec![
        Line::from(Span::styled(title, Style::new().fg(Color::Cyan))),
        Line::from(rates),
        Line::from(format!("other outcomes/s: {others}")),
        Line::from(format!("conflicts/s: {conflicts}")),
    ])
    .render(area, buffer);
}

fn draw_table(heads: &[&str], rows: &[Vec<String>], area: Rect, buffer: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or(0).max(heads[at].chars().count()) as u16
    };
    let widths: Vec<Constraint> =
        (0..heads.len()).map(|at| Constraint::Length(width(at))).collect();
    // The line below is empty, and one row says what is cut.
    let room = usize::from(area.height) - 2;
    let cut = rows.len().saturating_sub(room);
    let shown = if cut == 0 { rows.len() } else { room.saturating_sub(1) };
    let cell = |(at, text): (usize, &String)| {
        let text = Line::from(text.clone());
        Cell::from(if at == 0 { text } else { text.right_aligned() })
    };
    let row = |row: &Vec<String>| Row::new(row.iter().enumerate().map(cell));
    let head = heads.iter().enumerate().map(|(at, head)| {
        let head = Line::from((*head).to_owned());
        Cell::from(if at == 0 { head } else { head.right_aligned() })
    });
    Table::new(rows.iter().take(shown).map(row), widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::DIM)))
        .column_spacing(2)
        .render(area, buffer);
    if cut > 0 {
        // Across all columns.
        let below = Rect { y: area.y + 1 + shown as u16, height: 1, ..area };
        Line::from(format!("… {} more", rows.len() - shown)).render(below, buffer);
    }
}

fn draw_nodes(figures: &Figures, area: Rect, buffer: &mut Buffer) {
    let row = |node: &super::figures::NodeFigures| {
        let leads: Vec<String> = node.leads.iter().map(|shard| format!("S{shard}")).collect();
        let none = || "–".to_owned();
        if !node.answers {
            let cells = [node.name.clone(), node.datacenter.clone(), "silent".to_owned()];
            return cells.into_iter().chain([none(), none(), none(), none(), none()]).collect();
        }
        vec![
            node.name.clone(),
            node.datacenter.clone(),
            if leads.is_empty() { none() } else { leads.join(" ") },
            format!("e{}", node.epoch),
            node.lease_ms.map_or_else(|| "for ever".to_owned(), |ms| format!("{ms} ms")),
            words::rate(node.committed_per_s),
            words::count(node.open),
            words::bytes(node.memory_bytes),
        ]
    };
    let rows: Vec<Vec<String>> = figures.nodes.iter().map(row).collect();
    let heads = ["node", "datacenter", "leads", "epoch", "lease", "commits/s", "open", "memory"];
    draw_table(&heads, &rows, area, buffer);
}

fn draw_shards(figures: &Figures, area: Rect, buffer: &mut Buffer) {
    let numbers = figures.shards.iter().map(|shard| &shard.numbers).find(|it| !it.is_empty());
    let own: Vec<&str> = numbers.into_iter().flat_map(|it| it.keys()).map(|it| &it[..]).collect();
    let row = |shard: &super::figures::ShardFigures| {
        let number = |name: &&str| {
            shard.numbers.get(*name).map_or_else(|| "–".to_owned(), |it| words::count(*it))
        };
        let first = [
            format!("S{}", shard.shard),
            shard.leader.clone().unwrap_or_else(|| "none".to_owned()),
            words::count(shard.behind),
            words::bytes(shard.memory_bytes),
        ];
        first.into_iter().chain(own.iter().map(number)).collect()
    };
    let rows: Vec<Vec<String>> = figures.shards.iter().map(row).collect();
    let heads = ["shard", "leader", "entries behind", "memory"];
    let heads: Vec<&str> = heads.into_iter().chain(own.iter().copied()).collect();
    draw_table(&heads, &rows, area, buffer);
}

fn draw_keys(figures: &Figures, area: Rect, buffer: &mut Buffer) {
    let columns: [Rect; 3] =
        Layout::horizontal([Constraint::Ratio(1, 3); 3]).spacing(2).areas(area);
    let kinds = [("read", "keys read most"), ("written", "written"), ("conflicted", "in conflict")];
    for ((kind, head), column) in kinds.into_iter().zip(columns) {
        let mut lines = vec![Line::styled(head, Style::new().add_modifier(Modifier::DIM))];
        let keys = figures.hot_keys.get(kind).map(Vec::as_slice).unwrap_or_default();
        lines.extend(keys.iter().map(|key| Line::from(key_line(key, usize::from(column.width)))));
        if keys.is_empty() {
            lines.push(Line::from("–"));
        }
        Paragraph::new(lines).render(column, buffer);
    }
}

/// `"alice" accounts    1,234`, no wider than that: the key is cut.
fn key_line(key: &HotKeyFigures, width: usize) -> String {
    let uses = words::count(key.uses);
    let name = format!("{} {}", key.key, key.table);
    let room = width.saturating_sub(uses.chars().count() + 1);
    let name = match name.chars().count() > room {
        true => name.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
        false => name,
    };
    format!("{name:<room$} {uses}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::figures::{NodeFigures, ShardFigures};

    fn figures(nodes: usize, shards: u32) -> Figures {
        let node = |number: usize| NodeFigures {
            name: format!("s{number}v0"),
            datacenter: "frankfurt".to_owned(),
            answers: number != 1,
            leads: vec![number as u32],
            epoch: 12_345,
            lease_ms: Some(1234),
            committed_per_s: 123_456.7,
            open: 1234,
            memory_bytes: 123 << 30,
        };
        let shard = |shard: u32| ShardFigures {
            shard,
            leader: (shard != 1).then(|| format!("s{shard}v0")),
            behind: 123_456,
            memory_bytes: 123 << 30,
            numbers: [("watermark".to_owned(), 1_234_567_890), ("not durable yet".to_owned(), 12)]
                .into(),
        };
        let key = |number: u64| HotKeyFigures {
            table: "tpcc.warehouse".to_owned(),
            key: format!("(\"a long name of a key\", {number})"),
            uses: 1_234_567 / (number + 1),
        };
        Figures {
            seconds: 1.0,
            committed_per_s: 1_234_567.0,
            latency_p50_s: Some(0.001_234),
            latency_p99_s: Some(0.123),
            outcomes_per_s: ["committed", "aborted", "rejected", "unknown"]
                .map(|name| (name.to_owned(), 12_345.0))
                .into(),
            conflicts_per_s: ["locked", "read changed", "epoch"]
                .map(|name| (name.to_owned(), 12_345.0))
                .into(),
            epoch: 12_345,
            settled: 12_344,
            nodes: (0..nodes).map(node).collect(),
            shards: (0..shards).map(shard).collect(),
            hot_keys: ["read", "written"]
                .map(|kind| (kind.to_owned(), (0..10).map(key).collect()))
                .into(),
        }
    }

    fn history() -> History {
        let mut history = History::default();
        for number in 0..500 {
            history.add(&Figures { committed_per_s: f64::from(number % 37), ..figures(0, 0) });
        }
        history
    }

    #[test]
    fn all_of_a_small_cluster_is_shown_at_80_and_120_columns() {
        for columns in [80, 120] {
            let text = text(&figures(3, 2), &history(), columns);
            assert!(
                text.lines().all(|line| line.chars().count() <= usize::from(columns)),
                "{text}"
            );
            for shown in [
                "1,234,567 committed/s",
                "2 of 3 nodes",
                "s2v0",
                "silent",
                "not durable yet",
                "none",
            ] {
                assert!(text.contains(shown), "{shown} is missing at {columns} columns:\n{text}");
            }
            assert!(!text.contains("more") && text.matches("(\"a long").count() == 20, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let area = Rect::new(0, 0, 80, 24);
        let mut buffer = Buffer::empty(area);
        draw(&figures(30, 20), &history(), area, &mut buffer);
        let rows = (0..24).map(|y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>());
        let more = rows.filter(|row| row.contains("… ") && row.contains(" more")).count();
        assert_eq!(more, 2, "nodes and shards");
        for (width, height) in [(0, 0), (1, 1), (20, 5), (300, 100)] {
            let area = Rect::new(0, 0, width, height);
            draw(&figures(3, 2), &history(), area, &mut Buffer::empty(area));
        }
    }
}
