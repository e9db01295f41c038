//! Golden tables: a text file with a row for each state of a payment, a column for each event, and in each cell the expected
//! result. Alternatives are separated by `or` where the result depends on timing.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};

/// Characters of a cell that are printed at most; deviating cells are printed completely below the table.
const WIDTH_MAX: usize = 60;

/// Results by row and column.
pub(crate) type Results = BTreeMap<(String, String), String>;

/// A golden table as written.
pub(crate) struct GoldenTable {
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl GoldenTable {
    /// Parses a table: cells are separated by `|`; the first line and the first cell of each line are headings.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines().map(|line| line.split('|').map(|cell| cell.trim().to_owned()));
        let columns: Vec<_> = lines.next().context("the table is empty")?.skip(1).collect();
        let mut rows = Vec::new();
        for mut line in lines {
            let heading = line.next().context("a row has no heading")?;
            let cells: Vec<_> = line.collect();
            ensure!(
                cells.len() == columns.len(),
                "row {heading} has {} cells, expected {}",
                cells.len(),
                columns.len()
            );
            rows.push((heading, cells));
        }
        Ok(Self { columns, rows })
    }

    /// Every cell: row, column and expected result.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.rows.iter().flat_map(|(row, cells)| {
            let pairs = self.columns.iter().zip(cells);
            pairs.map(|(column, cell)| (row.as_str(), column.as_str(), cell.as_str()))
        })
    }

    /// Compares the results cell by cell, and prints them as a table.
    ///
    /// # Errors
    /// Every cell with another result than expected.
    pub(crate) fn compare(&self, results: &Results) -> anyhow::Result<()> {
        let result = |row: &str, column: &str| {
            results.get(&(row.to_owned(), column.to_owned())).map_or("(no result)", String::as_str)
        };
        let mut lines = vec![std::iter::once(String::new()).chain(self.columns.clone()).collect::<Vec<_>>()];
        for (row, _) in &self.rows {
            let cells =
                self.columns.iter().map(|column| result(row, column).chars().take(WIDTH_MAX).collect());
            lines.push(std::iter::once(row.clone()).chain(cells).collect());
        }
        print_aligned(&lines);
        let deviations: Vec<_> = self
            .cells()
            .filter(|(row, column, expected)| {
                expected.split(" or ").all(|alternative| alternative != result(row, column))
            })
            .map(|(row, column, expected)| {
                format!("{row}, {column}: expected {expected}, got {}", result(row, column))
            })
            .collect();
        if !deviations.is_empty() {
            bail!("{} cells deviate:\n{}", deviations.len(), deviations.join("\n"));
        }
        Ok(())
    }
}

#[allow(clippy::print_stdout, reason = "the table is part of the test's output")]
fn print_aligned(lines: &[Vec<String>]) {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for line in lines {
        let cells: Vec<_> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("{}", cells.join(" | "));
    }
}
