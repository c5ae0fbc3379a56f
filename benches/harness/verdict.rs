//! What may be reported: the rules by which a run refuses, and what a goal asks of two series. Pure.
//!
//! A number stands in the report only if both servers returned the same objects, no client saw an error,
//! and the machine was quiet enough to tell.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

/// The most that half of the rounds may differ, as a part of what they are compared with.
pub(crate) const SPREAD_MAX: f64 = 0.5;
/// The most of the machine's time in a round that other programs may have taken.
pub(crate) const FOREIGN_MAX: f64 = 0.25;

/// Why nothing is reported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The servers did not return the same objects.
    #[error("{what}: the two servers returned different objects: {difference}")]
    Unequal { what: String, difference: String },
    /// A client of either saw an error.
    #[error("a client saw an error: {0}")]
    Client(#[from] std::io::Error),
    /// Rounds of the same work differ too much.
    #[error(
        "{what}: too noisy to tell: the rounds spread over {spread:.2} of what they are compared with, the bound is {SPREAD_MAX}: {values:?}"
    )]
    Spread { what: String, spread: f64, values: Vec<f64> },
    /// Others used the machine in too many rounds.
    #[error(
        "too noisy to tell: other programs took {foreign:.2} of the machine's time in a round, the bound is {FOREIGN_MAX}; {disturbed} rounds were thrown away"
    )]
    Disturbed { foreign: f64, disturbed: usize },
    /// The machine or the results at hand cannot give this.
    #[error("{0}")]
    Impossible(String),
}

/// Whether a number is good when it is small or when it is large.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Better {
    Less,
    More,
}

/// What is asked of our series against theirs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Goal {
    /// So many times better than theirs.
    Gain(f64),
    /// At most so much of theirs.
    Share(f64),
    /// At most this, whatever theirs is.
    Ours(f64),
}

impl Goal {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::Gain(least) => ratio >= least,
            Self::Share(most) | Self::Ours(most) => ratio <= most,
        }
    }
}

/// One measured quantity of both servers, a value per round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) ours: Vec<f64>,
    /// Empty if there is nothing to compare with.
    pub(crate) theirs: Vec<f64>,
    /// Without one the row is there to be read.
    pub(crate) goal: Option<Goal>,
}

impl Row {
    /// A row of which less is better.
    pub(crate) fn less<W: Into<String>>(
        what: W,
        unit: &str,
        ours: Vec<f64>,
        theirs: Vec<f64>,
        goal: Option<Goal>,
    ) -> Self {
        Self { what: what.into(), unit: unit.into(), better: Better::Less, ours, theirs, goal }
    }

    /// The number that the goal is about: how many times better, or which part, or ours.
    pub(crate) fn ratio(&self) -> f64 {
        let theirs = if self.theirs.is_empty() { f64::NAN } else { median(&self.theirs) };
        self.ratio_of(median(&self.ours), theirs)
    }

    fn ratio_of(&self, ours: f64, theirs: f64) -> f64 {
        match (self.goal, self.better) {
            (Some(Goal::Ours(_)), _) => ours,
            (Some(Goal::Share(_)), _) | (_, Better::More) => ours / theirs,
            (_, Better::Less) => theirs / ours,
        }
    }

    /// Whether the goal is met, if there is one.
    pub(crate) fn met(&self) -> Option<bool> {
        self.goal.map(|goal| goal.is_met(self.ratio()))
    }

    /// Whether any of our rounds against any of theirs says the same of the goal.
    fn is_certain(&self) -> bool {
        let Some(goal) = self.goal else { return false };
        let theirs = if self.theirs.is_empty() { &[f64::NAN] } else { &*self.theirs };
        let mut pairs = self.ours.iter().flat_map(|ours| theirs.iter().map(move |theirs| (ours, theirs)));
        pairs.all(|(ours, theirs)| Some(goal.is_met(self.ratio_of(*ours, *theirs))) == self.met())
    }

    /// Refuses a row whose rounds differ too much to tell: more than the bound, and not so little that
    /// every round of ours against every one of theirs says the same. A share is as uncertain as its parts
    /// are against theirs; everything else as each series is against itself.
    pub(crate) fn judge(&self) -> Result<(), Refusal> {
        if self.is_certain() && self.ours.iter().chain(&self.theirs).all(|value| value.is_finite()) {
            return Ok(());
        }
        for values in [&self.ours, &self.theirs].into_iter().filter(|values| !values.is_empty()) {
            let against = match self.goal {
                Some(Goal::Share(_)) => median(&self.theirs),
                _ => median(values),
            };
            let spread = spread(values, against);
            if spread.is_nan() || spread > SPREAD_MAX {
                return Err(Refusal::Spread { what: self.what.clone(), spread, values: values.clone() });
            }
        }
        Ok(())
    }
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A quantile between 0 and 1, interpolated.
#[expect(clippy::cast_sign_loss, reason = "a position in the values is not negative")]
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// What the middle half of the values spans, as a part of `against`.
fn spread(values: &[f64], against: f64) -> f64 {
    let span = quantile(values, 0.75) - quantile(values, 0.25);
    if span == 0.0 { 0.0 } else { span / against.abs() }
}

/// Refuses a round in which other programs took too much of the machine.
pub(crate) fn quiet(foreign: f64, disturbed: usize, allowed: usize) -> Result<bool, Refusal> {
    match foreign <= FOREIGN_MAX {
        true => Ok(true),
        false if disturbed < allowed => Ok(false),
        false => Err(Refusal::Disturbed { foreign, disturbed: disturbed + 1 }),
    }
}

/// What a list holds: a fingerprint of labels and spec by name. The rest is the servers' own business:
/// versions, uids, times, managed fields.
pub(crate) type Contents = BTreeMap<String, u64>;

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    spec: serde_json::Value,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads a list's body.
pub(crate) fn contents(list: &[u8]) -> Result<Contents, Refusal> {
    let list: List = serde_json::from_slice(list).map_err(std::io::Error::from)?;
    let count = list.items.len();
    let fingerprint = |item: Item| {
        let mut hasher = DefaultHasher::new();
        item.metadata.labels.hash(&mut hasher);
        fingerprint(&item.spec, &mut hasher);
        (item.metadata.name, hasher.finish())
    };
    let contents: Contents = list.items.into_iter().map(fingerprint).collect();
    if contents.len() != count {
        return Err(Refusal::Unequal {
            what: "a list".into(),
            difference: "a name is there more than once".into(),
        });
    }
    Ok(contents)
}

/// Hashes a value whatever the order of its keys.
fn fingerprint(value: &serde_json::Value, hasher: &mut DefaultHasher) {
    match value {
        serde_json::Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            (b'{', sorted.len()).hash(hasher);
            for (key, value) in sorted {
                key.hash(hasher);
                fingerprint(value, hasher);
            }
        }
        serde_json::Value::Array(items) => {
            (b'[', items.len()).hash(hasher);
            for item in items {
                fingerprint(item, hasher);
            }
        }
        simple => simple.to_string().hash(hasher),
    }
}

/// Refuses unless both lists hold the same objects, and as many as were written.
pub(crate) fn equal(what: &str, ours: &[u8], theirs: &[u8], count: usize) -> Result<(), Refusal> {
    let (ours, theirs) = (contents(ours)?, contents(theirs)?);
    let unequal = |difference| Err(Refusal::Unequal { what: what.into(), difference });
    if let Some((name, _)) = theirs.iter().find(|(name, of)| ours.get(*name) != Some(of)) {
        return unequal(format!("{name} is not the same in ours"));
    }
    if let Some(name) = ours.keys().find(|name| !theirs.contains_key(*name)) {
        return unequal(format!("{name} is only in ours"));
    }
    if ours.len() != count {
        return unequal(format!("both have {} objects, {count} were expected", ours.len()));
    }
    Ok(())
}
