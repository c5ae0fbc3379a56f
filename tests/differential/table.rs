//! `docs/differences.md`: every difference that is meant.
//!
//! A row of one of its tables is `where | request | theirs | ours | why`. Where, theirs and ours are in
//! backquotes and may hold `*` for any text; where is `script.step:path` as the suite prints it.

use std::path::Path;

use crate::compare::Difference;

/// The rows, and which of them were met.
pub(crate) struct Table {
    rows: Vec<Row>,
}

struct Row {
    place: String,
    theirs: String,
    ours: String,
    met: bool,
}

impl Table {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("docs/differences.md is there");
        let rows: Vec<_> = text.lines().filter_map(Row::parse).collect();
        assert!(!rows.is_empty(), "docs/differences.md has no row that can be read");
        Self { rows }
    }

    /// Whether the difference is meant; marks the rows that say so.
    pub(crate) fn covers(&mut self, difference: &Difference) -> bool {
        let mut covered = false;
        for row in &mut self.rows {
            let says = glob(&row.place, &difference.place)
                && glob(&row.theirs, &difference.theirs)
                && glob(&row.ours, &difference.ours);
            row.met |= says;
            covered |= says;
        }
        covered
    }

    /// Rows that nothing met.
    pub(crate) fn unmet(&self) -> Vec<String> {
        let unmet = self.rows.iter().filter(|row| !row.met);
        unmet.map(|row| format!("{} | {} | {}", row.place, row.theirs, row.ours)).collect()
    }
}

impl Row {
    /// A row of five cells that begins with a place in backquotes; all other lines are for people.
    fn parse(line: &str) -> Option<Self> {
        let line = line.strip_prefix("| `")?.replace("\\|", "\u{1}");
        let cells: Vec<_> = format!("`{line}").split(" | ").map(|cell| cell.replace('\u{1}', "|")).collect();
        let [place, _, theirs, ours, _] = cells.as_slice() else {
            panic!("docs/differences.md: not five cells: {line}")
        };
        let quoted = |cell: &str| cell.trim().trim_matches('`').to_owned();
        Some(Self { place: quoted(place), theirs: quoted(theirs), ours: quoted(ours), met: false })
    }
}

/// Whether a text is a pattern's, where `*` is any text.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| glob(after, &rest[at..]))
}
