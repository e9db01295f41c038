//! A table that is written in a text file and played against a running system: a row for each state of ours, a
//! column for each thing that happens, and in each cell what must come of it (`or`: it is a race, and both are right).

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};

/// Widest cell that is printed; what came otherwise is told whole below the table.
const WIDTH_MAX: usize = 60;

/// The table, as written.
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    /// Reads a table: cells parted by `|`, the heads of rows and columns first.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines().map(|line| line.split('|').map(|cell| cell.trim().to_owned()));
        let columns: Vec<_> = lines.next().context("the table has no head")?.skip(1).collect();
        let mut rows = Vec::new();
        for mut line in lines {
            let head = line.next().context("a row has no head")?;
            let cells: Vec<_> = line.collect();
            ensure!(cells.len() == columns.len(), "row {head} has {} cells", cells.len());
            rows.push((head, cells));
        }
        Ok(Self { columns, rows })
    }

    /// Every cell: row, column, and what must come of it.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.rows.iter().flat_map(|(row, cells)| {
            let pairs = self.columns.iter().zip(cells);
            pairs.map(|(column, cell)| (row.as_str(), column.as_str(), cell.as_str()))
        })
    }

    /// Compares with what came, cell by cell, and prints that as a table.
    ///
    /// # Errors
    /// Every cell that came otherwise than written.
    pub(crate) fn compare(&self, came: &BTreeMap<(String, String), String>) -> anyhow::Result<()> {
        let of = |row: &str, column: &str| {
            came.get(&(row.to_owned(), column.to_owned())).map_or("(nothing)", String::as_str)
        };
        let mut lines = vec![std::iter::once(String::new()).chain(self.columns.clone()).collect::<Vec<_>>()];
        for (row, _) in &self.rows {
            let cells = self.columns.iter().map(|column| of(row, column).chars().take(WIDTH_MAX).collect());
            lines.push(std::iter::once(row.clone()).chain(cells).collect());
        }
        print_aligned(&lines);
        let wrong: Vec<_> = self
            .cells()
            .filter(|(row, column, must)| must.split(" or ").all(|may| may != of(row, column)))
            .map(|(row, column, must)| format!("{row}, {column}: must {must}, came {}", of(row, column)))
            .collect();
        if !wrong.is_empty() {
            bail!("{} cells came otherwise:\n{}", wrong.len(), wrong.join("\n"));
        }
        Ok(())
    }
}

#[allow(clippy::print_stdout, reason = "the table is what a test here has to say")]
fn print_aligned(lines: &[Vec<String>]) {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for line in lines {
        let cells: Vec<_> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("{}", cells.join(" | "));
    }
}
