//! Aligned columns for people, without colours or lines: they survive a pipe and a narrow terminal.

use std::fmt;

use crate::out::{Out, plain};

/// Space between two columns.
const GAP: &str = "   ";

/// Longest cell, in characters.
const CELL_MAX: usize = 500;

/// On which side a column is flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Texts.
    Left,
    /// Amounts.
    Right,
}

/// Rows under a head.
#[derive(Clone, Debug)]
pub(crate) struct Table<const N: usize> {
    head: [(&'static str, Align); N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table without rows.
    pub(crate) fn new(head: [(&'static str, Align); N]) -> Self {
        Self { head, rows: Vec::new() }
    }

    /// Whether it has no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row. What is longer than a screen is cut: --json has it whole.
    pub(crate) fn row(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(|cell| {
            let cell = plain(cell);
            match cell.char_indices().nth(CELL_MAX) {
                Some((end, _)) => format!("{}...", cell.get(..end).unwrap_or_default()),
                None => cell,
            }
        }));
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    /// Without a line break at the end. A head of empty names is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.head.map(|(name, _)| name.to_owned());
        let shown = names.iter().any(|name| !name.is_empty());
        let lines: Vec<&[String; N]> = shown.then_some(&names).into_iter().chain(&self.rows).collect();
        for (number, cells) in lines.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, (_, align))) in cells.iter().zip(self.head).enumerate() {
                let width = lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
                let gap = if column == 0 { "" } else { GAP };
                line += gap;
                line += &match align {
                    Align::Left => format!("{cell:width$}"),
                    Align::Right => format!("{cell:>width$}"),
                };
            }
            let end = if number + 1 < lines.len() { "\n" } else { "" };
            write!(f, "{}{end}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Says that a list may go on where it was cut.
///
/// # Errors
/// The output's own.
pub(crate) fn remark_cut(shown: usize, limit: i64, out: &mut Out<'_>) -> anyhow::Result<()> {
    if i64::try_from(shown).is_ok_and(|shown| shown >= limit) {
        out.line(format_args!("{shown} are shown, and there may be more: --limit N shows N"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_their_text() {
        let mut table =
            Table::new([("account", Align::Left), ("available", Align::Right), ("", Align::Left)]);
        table.row(["DE-A", "1.00 EUR", "active"]);
        table.row(["JP-LONGER", "1000000 JPY", ""]);
        let expected = "account       available\nDE-A           1.00 EUR   active\nJP-LONGER   1000000 JPY";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_table_without_names_has_no_head() {
        let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
        table.row(["tenant", "demo"]);
        assert_eq!(table.to_string(), "tenant   demo");
    }
}
