//! Aligned columns without colours and borders: readable through a pipe and on a narrow terminal.

use std::fmt;

use crate::output::{Output, escape_control};

/// Space between two columns.
const GAP: &str = "   ";

/// Longest cell, in characters.
const CELL_CHARS_MAX: usize = 500;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Left-aligned, for text.
    Left,
    /// Right-aligned, for amounts and counts.
    Right,
}

/// Rows below a header.
#[derive(Clone, Debug)]
pub(crate) struct Table<const N: usize> {
    header: [(&'static str, Align); N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table without rows. A header of empty names is not printed.
    pub(crate) fn new(header: [(&'static str, Align); N]) -> Self {
        Self { header, rows: Vec::new() }
    }

    /// Whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row. A cell of more than 500 characters is cut; `--json` has the whole text.
    pub(crate) fn row(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(|cell| {
            let cell = escape_control(cell);
            match cell.char_indices().nth(CELL_CHARS_MAX) {
                Some((end, _)) => format!("{}...", cell.get(..end).unwrap_or_default()),
                None => cell,
            }
        }));
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    /// Writes the table without a line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.header.map(|(name, _)| name.to_owned());
        let has_header = names.iter().any(|name| !name.is_empty());
        let lines: Vec<&[String; N]> = has_header.then_some(&names).into_iter().chain(&self.rows).collect();
        for (number, cells) in lines.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, (_, align))) in cells.iter().zip(self.header).enumerate() {
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

/// Writes a note below a list that has reached `limit` and may be incomplete.
///
/// # Errors
/// The output's own.
pub(crate) fn note_limit(rows: usize, limit: i64, out: &mut Output<'_>) -> anyhow::Result<()> {
    if i64::try_from(rows).is_ok_and(|rows| rows >= limit) {
        out.write_line(format_args!("the list ends at its limit of {rows} rows; show more with --limit N"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payctl_table_columns_are_aligned_without_trailing_spaces() {
        let mut table =
            Table::new([("account", Align::Left), ("available", Align::Right), ("", Align::Left)]);
        table.row(["DE-A", "1.00 EUR", "active"]);
        table.row(["JP-LONGER", "1000000 JPY", ""]);
        let expected = "account       available\nDE-A           1.00 EUR   active\nJP-LONGER   1000000 JPY";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_payctl_table_header_of_empty_names_is_not_printed() {
        let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
        table.row(["tenant", "demo"]);
        assert_eq!(table.to_string(), "tenant   demo");
    }
}
