//! Results on disk, and the page that is made of them when all are there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::scale::{full_scale, note, print, scaled};
use super::verdict::{FOREIGN_MAX, Goal, Refusal, Row, SPREAD_MAX, median};

/// What is measured, and what stands on its page beside the numbers.
pub(crate) struct Page {
    /// Of the file in `docs/benchmarks`, and of the directory that the results are kept in.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What writes it.
    pub(crate) command: &'static str,
    pub(crate) works: &'static [Work],
    /// Heads of the two columns of figures.
    pub(crate) columns: [&'static str; 2],
    /// How to read the table.
    pub(crate) legend: &'static str,
    /// The most connections that a process has at once.
    pub(crate) connections: fn() -> usize,
    /// Versions of what else was measured, a line each.
    pub(crate) versions: fn() -> Vec<String>,
    /// How it was measured, and what a run refuses; with the bounds in place of `{spread}` and `{foreign}`.
    pub(crate) method: &'static str,
}

/// A work, what it is called in the report, and how many objects of 2 KiB there are before it begins.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) objects: usize,
}

/// The result of one work.
#[derive(Serialize, Deserialize)]
pub(crate) struct Outcome {
    work: String,
    rows: Vec<Row>,
    /// The most of the machine that other programs took in a round.
    foreign: f64,
    origin: Origin,
}

impl Outcome {
    /// Refuses if the rounds cannot tell; a run at a smaller scale is not judged.
    pub(crate) fn judged(work: &Work, rows: Vec<Row>, foreign: f64, origin: Origin) -> Result<Self, Refusal> {
        if full_scale() {
            rows.iter().filter(|row| row.goal.is_some()).try_for_each(Row::judge)?;
        }
        Ok(Self { work: work.name.into(), rows, foreign, origin })
    }

    /// Writes it where the page is made from, unless it is of a smaller scale.
    pub(crate) fn keep(&self, page: &Page) -> Result<(), Refusal> {
        if !full_scale() {
            return Ok(());
        }
        let path = kept(page, &self.work);
        std::fs::create_dir_all(path.parent().expect("it is in a directory"))?;
        std::fs::write(path, serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?)?;
        Ok(())
    }
}

fn kept(page: &Page, work: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(page.name).join(format!("{work}.json"))
}

/// Writes the page from the results of this origin; it says which works have none.
pub(crate) fn write(page: &Page, origin: &Origin) -> Result<(), Refusal> {
    if !full_scale() {
        print("SCALED DOWN: times are not judged, nothing is kept or written.");
        return Ok(());
    }
    let mut outcomes = vec![];
    let mut missing = vec![];
    for work in page.works {
        let read = std::fs::read(kept(page, work.name)).ok();
        match read.and_then(|bytes| serde_json::from_slice::<Outcome>(&bytes).ok()) {
            Some(outcome) if outcome.origin == *origin => outcomes.push(outcome),
            _ => missing.push(work.name),
        }
    }
    if outcomes.is_empty() {
        print("Not written: there is no result of these programs on this machine.");
        return Ok(());
    }
    let path = format!("docs/benchmarks/{}.md", page.name);
    let text = text(page, &outcomes, &missing, origin)?;
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path), text)?;
    note(&format!("{path} is written"));
    Ok(())
}

fn text(page: &Page, outcomes: &[Outcome], missing: &[&str], origin: &Origin) -> Result<String, Refusal> {
    let rows = || outcomes.iter().flat_map(|outcome| &outcome.rows).filter_map(Row::met);
    let since = UNIX_EPOCH.elapsed().map_err(|error| Refusal::Impossible(error.to_string()))?;
    let mut text = format!("# {}\n\n", page.title);
    let mut say = |line: &str| writeln!(text, "{line}").map_err(|_| std::io::Error::other("out of memory"));
    say(&format!("Written by `{}`; no number here was typed by hand.", page.command))?;
    say(&format!(
        "Measured on {}; {} of {} goals met.",
        day(since.as_secs()),
        rows().filter(|met| *met).count(),
        rows().count()
    ))?;
    if !missing.is_empty() {
        say(&format!(
            "**Without a result** of these programs on this machine: {}. A run that refuses leaves none.",
            missing.join(", ")
        ))?;
    }
    say("")?;
    say(&table(page, outcomes))?;
    say("Medians, with the smallest and the largest round in parentheses.")?;
    say(&format!("{}\n", page.legend))?;
    say("## Machine and versions\n")?;
    say(&format!("- machine: {}; servers and clients share it", origin.machine))?;
    let foreign = outcomes.iter().map(|outcome| outcome.foreign).fold(0.0, f64::max);
    say(&format!("- other programs took at most {} of its time in a round that counts", number(foreign)))?;
    say(&format!("- shardcache: {}; binary {}", origin.ours, origin.ours_binary))?;
    say(&format!("- reference: {}; binary {}", origin.theirs, origin.theirs_binary))?;
    for version in (page.versions)() {
        say(&format!("- {version}"))?;
    }
    say("")?;
    say(&page
        .method
        .replace("{spread}", &SPREAD_MAX.to_string())
        .replace("{foreign}", &FOREIGN_MAX.to_string()))?;
    Ok(text)
}

/// All rows as a markdown table.
pub(crate) fn table(page: &Page, outcomes: &[Outcome]) -> String {
    let [ours, theirs] = page.columns;
    let mut text = format!("| work | {ours} | {theirs} | ratio | goal | |\n|---|---|---|---|---|---|\n");
    for outcome in outcomes {
        let title = page.works.iter().find(|work| work.name == outcome.work).map_or("", |work| work.title);
        for (at, row) in outcome.rows.iter().enumerate() {
            let before = if at == 0 { format!("**{title}**: ") } else { "… ".into() };
            let line = format!(
                "| {before}{} | {} | {} | {} | {} | {} |\n",
                row.what,
                figure(&row.ours, &row.unit),
                figure(&row.theirs, &row.unit),
                ratio(row),
                row.goal.map_or("–".into(), goal),
                match row.met() {
                    None => "",
                    Some(true) => "met",
                    Some(false) => "missed",
                }
            );
            text.push_str(&line);
        }
    }
    if !full_scale() {
        writeln!(text, "\nSCALED DOWN to {} of 1,000 and so on: not a result.", scaled(1_000))
            .expect("a string takes everything");
    }
    text
}

fn ratio(row: &Row) -> String {
    match row.goal {
        Some(Goal::Ours(_)) => "–".into(),
        _ if row.theirs.is_empty() => "–".into(),
        Some(Goal::Share(_)) if (0.0..0.1).contains(&row.ratio()) => {
            format!("1/{}", number((1.0 / row.ratio()).round()))
        }
        Some(Goal::Share(_)) => number(row.ratio()),
        _ => format!("{} ×", number(row.ratio())),
    }
}

fn goal(goal: Goal) -> String {
    match goal {
        Goal::Gain(times) => format!("{times} ×"),
        Goal::Share(part) if part < 0.5 => format!("≤ 1/{:.0}", 1.0 / part),
        Goal::Share(part) => format!("≤ {part}"),
        Goal::Ours(most) if most > 0.0 => format!("≤ {most}"),
        Goal::Ours(most) => format!("{most}"),
    }
}

fn figure(values: &[f64], unit: &str) -> String {
    if values.is_empty() {
        return "–".into();
    }
    let middle = format!("{} {unit}", number(median(values)));
    if values.len() < 2 {
        return middle.trim().to_owned();
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} ({}–{})", middle.trim(), number(least), number(most))
}

/// Three significant digits, thousands with a separator.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "∞".into();
    }
    if value.abs() >= 1_000.0 {
        let digits = format!("{:.0}", value.abs());
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","));
    }
    let places = match value.abs() {
        0.0 => 0,
        small if small < 0.1 => 3,
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

/// A day of the Gregorian calendar, from seconds since 1970.
fn day(seconds: u64) -> String {
    // Days since 0000-03-01, so that the leap day is the last of its year.
    let days = (seconds / 86_400) + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400)
}
