//! A page of tables and plots, about anything: [`page`](super::page) is that of a measurement.

use super::page::{card, escape, figure, table, whole};

/// A page. Its text is plain: it is made safe here.
#[derive(Debug, Clone, Default)]
pub struct Sheet {
    /// The heading, and the title of the window.
    pub title: String,
    /// The lines below the heading.
    pub lead: String,
    /// In words, whether what was promised holds, and whether it does.
    pub verdict: Option<(String, bool)>,
    /// The note at the bottom of the page.
    pub foot: String,
    cards: String,
}

impl Sheet {
    /// A page with a heading and no cards.
    pub fn new(title: &str, lead: &str) -> Sheet {
        Sheet { title: title.to_owned(), lead: lead.to_owned(), ..Sheet::default() }
    }

    /// Adds a card with a table; text in its cells is plain.
    pub fn table(&mut self, title: &str, lead: &str, heads: &[&str], rows: &[Vec<String>]) {
        let heads: Vec<String> = heads.iter().map(|head| escape(head)).collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let row = |cells: &Vec<String>| cells.iter().map(|cell| escape(cell)).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
        self.cards += &card(&escape(title), &escape(lead), &table(&heads, &rows));
    }

    /// Adds a plot, which [`plot`](super::plot) has drawn of series with these names.
    pub fn plot(&mut self, title: &str, lead: &str, names: &[String], svg: &str) {
        self.cards += &card(&escape(title), &escape(lead), &figure(names, svg));
    }

    /// The page as one HTML file.
    pub fn html(&self) -> String {
        let badge = self.verdict.as_ref().map_or(String::new(), |(words, holds)| {
            let class = if *holds { "good" } else { "bad" };
            format!("<span class=\"badge {class}\">{}</span>", escape(words))
        });
        let (title, lead) = (escape(&self.title), escape(&self.lead));
        let header = format!("<header><div><h1>{title}</h1><p>{lead}</p></div>{badge}</header>\n");
        let body = header + &self.cards;
        whole(&format!("{title} · Shoal"), &body, &escape(&self.foot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_what_was_added_and_no_markup_of_others() {
        let mut sheet = Sheet::new("A <title>", "Lead");
        sheet.verdict = Some(("met".into(), true));
        sheet.table("Table", "", &["a & b"], &[vec!["1 < 2".into()]]);
        sheet.plot("Plot", "", &["one".into()], "<svg></svg>");
        let html = sheet.html();
        for text in ["A &lt;title&gt;", "a &amp; b", "1 &lt; 2", "<svg></svg>", "badge good"] {
            assert!(html.contains(text), "{text} is missing");
        }
    }
}
